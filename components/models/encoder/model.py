"""BERT (Devlin et al. 2019): bidirectional Transformer encoder, masked-LM head, next-sentence head."""

import torch
from torch import Tensor, nn

from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.positions import Positions
from components.models.common.transformer import SUBLAYERS, TransformerBlock, initialise, length_mask, norm, share
from components.models.encoder.config import EncoderArchitecture
from components.text.tokenizer import Tokenizer


class Encoder(MaskedLanguageModel):
    """As published: post-LN, learned positions, segments, output tied to the embedding."""

    embeddings = frozenset({
        "token_embedding", "position_embedding", "segment_embedding", "embedding_norm", "embedding_projection", "positions",
        "output_embedding",
    })  # fmt: skip
    low_rank = ("query_key_value",)

    def __init__(self, config: EncoderArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config = config
        size, embedding_size = config.hidden_size, config.embedding_size or config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, embedding_size)
        self.position_embedding = nn.Embedding(config.max_length, embedding_size) if config.positions == "learned" else None
        self.positions = Positions(config, causal=False)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, embedding_size)
        self.embedding_norm = norm(config, embedding_size)
        self.dropout = Dropout(config.dropout)
        self.embedding_projection = nn.Linear(embedding_size, size) if config.embedding_size else nn.Identity()
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        kinds = {"none": (), "all": SUBLAYERS}.get(config.shared_layers, (config.shared_layers,))
        self.shared = [name for kind in kinds for name in SUBLAYERS[kind]]
        self.group = share(self.blocks, self.shared, config.layer_groups)
        self.final_norm = norm(config) if config.norm_first else nn.Identity()
        self.add_heads(config, tokens.vocab_size, embedding_size)
        initialise(self)

    def forward(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """-> (batch, length, hidden); with positions (batch, targets) those tokens' states, (batch, targets, hidden)."""
        return self.layers(ids, lengths, segment_ids, positions)[-1]

    def depth(self, parameter: str) -> int:
        """Return the depth of a parameter: what layers share is as deep as the last of them.

        So it learns, and is unfrozen, with the layers next to the head.
        """
        depth, path = super().depth(parameter), parameter.split(".")
        shared = path[0] == self.stack and path[2] in self.shared
        return min(depth + self.group - 1, self.num_layers) if shared else depth

    def at(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        return self(ids, lengths, segment_ids, positions)

    def layers(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None, only: Tensor | None = None
    ) -> list[Tensor]:  # fmt: skip
        """ids, segment_ids (batch, length); lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden).

        `only` (batch, targets): positions for which the last layer is computed, (batch, targets, hidden). No other layer
        reads its output, so training on 15 % of the tokens needs it for these alone: of two layers a quarter less FLOPs.
        """
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.positions.add(self.token_embedding(ids), positions)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        if segment_ids is None or self.segment_embedding.num_embeddings == 1:
            segment_ids = torch.zeros_like(ids)
        x = x + self.segment_embedding(segment_ids)
        states = [self.embedding_projection(self.dropout(self.embedding_norm(x)))]
        mask = self.positions.mask(length_mask(lengths, ids.shape[1]), ids.shape[1])
        for block in self.blocks[:-1]:
            states.append(block(states[-1], self.positions, mask))
        states.append(self.blocks[-1](states[-1], self.positions, mask, only=only))
        states[-1] = self.final_norm(states[-1])
        return states


Model = Encoder
