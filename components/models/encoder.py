"""BERT (Devlin et al. 2019): bidirectional Transformer encoder, masked-LM head, next-sentence head."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.blocks import Block, gelu, initialise, length_mask
from components.params import EncoderArchitecture
from components.tokenizer import Tokenizer


class Encoder(nn.Module):
    """Post-LN, learned positions, segments, output embedding tied to the input's."""

    pairs = True
    """Whether it was trained on two texts in one input."""

    def __init__(self, config: EncoderArchitecture, tokens: Tokenizer):
        super().__init__()
        size = config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.position_embedding = nn.Embedding(config.max_length, size)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, size)
        self.embedding_norm = nn.LayerNorm(size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(
                size, config.num_heads, config.intermediate_size, config.dropout,
                norm_first=False, eps=config.layer_norm_eps, activation=config.activation,
            )  # fmt: skip
            for _ in range(config.num_layers)
        )
        self.pooler = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        self.head_transform = nn.Sequential(nn.Linear(size, size), gelu(config.activation), nn.LayerNorm(size, config.layer_norm_eps))
        self.head_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        self.next_sentence = nn.Linear(size, 2)
        initialise(self)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden)."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.token_embedding(ids) + self.position_embedding(positions)
        if segment_ids is None or self.segment_embedding.num_embeddings == 1:
            segment_ids = torch.zeros_like(ids)
        x = x + self.segment_embedding(segment_ids)
        states = [self.dropout(self.embedding_norm(x))]
        mask = length_mask(lengths, ids.shape[1])
        for block in self.blocks:
            states.append(block(states[-1], mask))
        return states

    def forward(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """-> (batch, length, hidden)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def top(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """The last layer, (batch, length, hidden)."""
        return self.layers(ids, lengths, segment_ids)[-1]

    def features(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """All layers, the embedding first: (batch, length, num_layers + 1, hidden)."""
        return torch.stack(self.layers(ids, lengths, segment_ids), 2)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size): dense, GELU, LayerNorm, then the tied embedding with its own bias."""
        return linear(self.head_transform(hidden), self.token_embedding.weight, self.head_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): dense and tanh on `[CLS]`."""
        return self.pooler(hidden[:, 0])
