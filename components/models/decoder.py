"""GPT-2 (Radford et al. 2019): causal Transformer decoder."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.blocks import Block, Positions, initialise, norm
from components.params import DecoderArchitecture
from components.tokenizer import Tokenizer


class Decoder(nn.Module):
    """As published: pre-LN, learned positions, tied output; residual projections drawn at 0.02 / sqrt(2 layers)."""

    pairs = False
    """Whether it was trained on two texts in one input."""

    def __init__(self, config: DecoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size = config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.position_embedding = nn.Embedding(config.max_length, size) if config.positions == "learned" else None
        self.positions = Positions(config, causal=True)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = norm(config) if config.norm_first else nn.Identity()
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        initialise(self)
        for block in self.blocks:
            for projection in (block.attention.output, block.feed_forward[-1]):
                nn.init.normal_(projection.weight, std=0.02 / math.sqrt(2 * config.num_layers))

    def layers(self, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> list[Tensor]:
        """ids, positions (batch, length); mask (batch, 1, length, length), by default causal -> embedding and layers, (batch, length, hidden)."""
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
        """-> (batch, length, hidden)."""
        return self.layers(ids, positions, mask)[-1]

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """The last layer, (batch, length, hidden)."""
        return self.layers(ids)[-1]

    def features(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """All layers, the embedding first: (batch, length, num_layers + 1, hidden). Padding stands on the right, where causality hides it."""
        return torch.stack(self.layers(ids), 2)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): the last real token, which has seen all others."""
        return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]
