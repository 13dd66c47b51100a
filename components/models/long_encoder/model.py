"""BERT's encoder with attention of linear cost, for long texts."""

import torch
from torch import Tensor, nn

from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.positions import Positions
from components.models.common.transformer import TransformerBlock, initialise, length_mask, norm
from components.models.long_encoder.attention import ATTENTIONS
from components.models.long_encoder.config import LongEncoderArchitecture
from components.text.tokenizer import Tokenizer


class LongEncoder(MaskedLanguageModel):
    """With `attention: full` it computes what the `encoder` does."""

    embeddings = frozenset({
        "token_embedding", "position_embedding", "segment_embedding", "embedding_norm", "positions", "output_embedding",
    })  # fmt: skip
    low_rank = ("query_key_value", "key_value")

    def __init__(self, config: LongEncoderArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config, size = config, config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.position_embedding = nn.Embedding(config.max_length, size) if config.positions == "learned" else None
        self.positions = Positions(config, causal=False)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, size)
        self.embedding_norm = norm(config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        for block in self.blocks:
            block.attention = ATTENTIONS[config.attention](config)
        self.final_norm = norm(config) if config.norm_first else nn.Identity()
        self.add_heads(config, tokens.vocab_size, size)
        initialise(self)

    def forward(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """-> (batch, length, hidden); with positions (batch, targets) the states of these tokens."""
        return self.layers(ids, lengths, segment_ids, positions)[-1]

    def at(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        return self(ids, lengths, segment_ids, positions)

    def layers(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None, only: Tensor | None = None
    ) -> list[Tensor]:  # fmt: skip
        """As the contract's; `only` (batch, targets): positions of which the last layer is wanted -> (batch, targets,
        hidden)."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.positions.add(self.token_embedding(ids), positions)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        if segment_ids is None or self.segment_embedding.num_embeddings == 1:
            segment_ids = torch.zeros_like(ids)
        states = [self.dropout(self.embedding_norm(x + self.segment_embedding(segment_ids)))]
        mask = length_mask(lengths, ids.shape[1])
        for block in self.blocks[:-1]:
            states.append(block(states[-1], self.positions, mask))
        states.append(self.final_norm(self.blocks[-1](states[-1], self.positions, mask, only=only)))
        return states


Model = LongEncoder
