"""GPT-2 (Radford et al. 2019): causal Transformer decoder."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.common.dropout import Dropout
from components.models.common.positions import Positions
from components.models.common.transformer import TransformerBlock, initialise, norm, sublayers
from components.models.contract import LanguageModel
from components.models.decoder.config import DecoderArchitecture
from components.text.tokenizer import Tokenizer


class Decoder(LanguageModel):
    """As published: pre-LN, learned positions, tied output; standard deviation 0.02 / sqrt(2 layers) for residual projections."""

    embeddings = frozenset({"token_embedding", "position_embedding", "positions", "output_embedding"})
    low_rank = ("query_key_value",)

    def __init__(self, config: DecoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size = config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.position_embedding = nn.Embedding(config.max_length, size) if config.positions == "learned" else None
        self.positions = Positions(config, causal=True)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))
        self.final_norm = norm(config) if config.norm_first else nn.Identity()
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        initialise(self)
        for block in self.blocks:
            for projection in (block.attention.output, block.feed_forward[-1]):
                nn.init.normal_(projection.weight, std=0.02 / math.sqrt(2 * config.num_layers))

    def _states(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None) -> list[Tensor]:
        """Return the embedding and every layer's output, each (batch, length, hidden)."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.positions.add(self.token_embedding(ids), positions)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        states = [self.dropout(x)]
        mask = self.positions.mask(mask, ids.shape[1])
        for block in self.blocks:
            states.append(block(states[-1], self.positions, mask, causal=True))
        states[-1] = self.final_norm(states[-1])
        return states

    def forward(self, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """ids, positions (batch, length); mask (batch, 1, length, length), by default causal -> (batch, length, hidden)."""
        return self._states(ids, positions, mask)[-1]

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """Return all layers. Padding needs no mask, since it is on the right of a causal model."""
        return self._states(ids, None, None)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): the last real token, which attends to all others."""
        return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        return sublayers(self.blocks)


Model = Decoder
