"""DeBERTa (He et al. 2021): disentangled attention; absolute positions only in the decoder of masked tokens."""

import math

import torch
from torch import Tensor, nn

from components.models.common.dropout import Dropout
from components.models.common.masked import MaskedLanguageModel
from components.models.common.transformer import attention, feed_forward, initialise, length_mask, norm
from components.models.contract import gather_positions
from components.models.deberta.config import DebertaArchitecture
from components.text.tokenizer import Tokenizer


def distances(length: int, buckets: int | None, farthest: int, device: torch.device) -> Tensor:
    """Return the position of the query minus that of the key, (length, length); with buckets, logarithmic beyond half of them."""
    positions = torch.arange(length, device=device)
    distance = positions[:, None] - positions[None, :]
    if buckets is None:
        return distance
    middle = buckets // 2
    size = torch.where(distance.abs() < middle, middle - 1, distance.abs())
    logarithmic = ((size / middle).log() / math.log((farthest - 1) / middle) * (middle - 1)).ceil() + middle
    return torch.where(size <= middle, distance, (logarithmic * distance.sign()).long())


class DisentangledAttention(nn.Module):
    """Content to content, content to position, position to content (section 3.1, equation 4)."""

    def __init__(self, config: DebertaArchitecture):
        super().__init__()
        size = config.hidden_size
        self.num_heads, self.dropout = config.num_heads, config.dropout
        self.query, self.value = nn.Linear(size, size, config.biases), nn.Linear(size, size, config.biases)
        self.key = nn.Linear(size, size, bias=config.shared_projections and config.biases)
        self.position_key = None if config.shared_projections else nn.Linear(size, size, bias=False)
        self.position_query = None if config.shared_projections else nn.Linear(size, size, config.biases)
        self.output = nn.Linear(size, size, config.biases)

    def _heads(self, x: Tensor) -> Tensor:
        """(..., length, hidden) -> (..., heads, length, hidden / heads)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def forward(self, x: Tensor, queries: Tensor, mask: Tensor | None, relative: Tensor, index: Tensor) -> Tensor:
        """x (batch, length, hidden), the keys and values; queries (batch, targets, hidden); mask (batch, 1, 1, length);
        relative (positions, hidden), vectors of relative positions; index (batch or 1, 1, targets, length), the relative
        position of each query to each key."""
        query, key, value = self._heads(self.query(queries)), self._heads(self.key(x)), self._heads(self.value(x))
        position_key = self._heads((self.position_key or self.key)(relative))  # (heads, positions, hidden / heads)
        position_query = self._heads((self.position_query or self.query)(relative))
        query = query * 3**-0.5  # each of the three scores that are added up is scaled by a third
        index = index.expand(*query.shape[:2], -1, -1)
        to_position = (query @ position_key.transpose(1, 2)).gather(3, index)
        from_position = key @ position_query.transpose(1, 2) * 3**-0.5
        from_position = from_position.gather(3, index.transpose(2, 3)).transpose(2, 3)
        bias = (to_position + from_position) * query.shape[3] ** -0.5
        if mask is not None:
            bias = bias.masked_fill(~mask, -torch.inf)
        attended = attention(query, key, value, bias, False, self.dropout if self.training else 0.0)
        return self.output(attended.transpose(1, 2).flatten(2))


class DebertaBlock(nn.Module):
    """Attention and feed-forward network, each with a residual connection and a norm after it."""

    def __init__(self, config: DebertaArchitecture):
        super().__init__()
        self.attention = DisentangledAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, queries: Tensor, mask: Tensor | None, relative: Tensor, index: Tensor) -> Tensor:
        """The same arguments as of the attention; the residual connection is from the queries."""
        x = self.attention_norm(queries + self.dropout(self.attention(x, queries, mask, relative, index)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Deberta(MaskedLanguageModel):
    """As published. `forward`, for pre-training, includes the decoder with absolute positions; `layers` does not."""

    embeddings = frozenset({"token_embedding", "segment_embedding", "embedding_norm", "relative_embedding", "relative_norm"})
    low_rank = ("query", "key", "value")

    def __init__(self, config: DebertaArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config, size = config, config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.farthest = config.max_relative_positions or config.max_length
        self.span = config.position_buckets or self.farthest
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, size) if config.type_vocab_size else None
        self.embedding_norm = norm(config)
        self.dropout = Dropout(config.dropout)
        self.relative_embedding = nn.Embedding(2 * self.span, size)
        self.relative_norm = norm(config) if config.norm_positions else nn.Identity()
        self.blocks = nn.ModuleList(DebertaBlock(config) for _ in range(config.num_layers))
        self.position_embedding = nn.Embedding(config.max_length, size) if config.mask_decoder else None
        self.add_heads(config, tokens.vocab_size, size)
        initialise(self)

    def _relative(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the vectors of the relative positions in a text of this length, (positions, hidden), and the index of each
        pair's, (1, 1, length, length)."""
        distance = distances(length, self.config.position_buckets, self.farthest, self.relative_embedding.weight.device)
        index = (distance + self.span).clamp(0, 2 * self.span - 1)
        # with buckets all vectors, since their number for a length has no simple formula; else those that occur
        first, last = 0, 2 * self.span
        if not self.config.position_buckets:
            first, last = max(0, self.span - length), min(2 * self.span, self.span + length)
        return self.relative_norm(self.relative_embedding.weight[first:last]), (index - first)[None, None]

    def _below(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None, Tensor, Tensor]:  # fmt: skip
        """Return the states below the last layer, each (batch, length, hidden), and mask, vectors and index of its attention."""
        x = self.token_embedding(ids)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(torch.zeros_like(ids) if segment_ids is None else segment_ids)
        states = [self.dropout(self.embedding_norm(x))]
        mask, (relative, index) = length_mask(lengths, ids.shape[1]), self._relative(ids.shape[1])
        for block in self.blocks[:-1]:
            states.append(block(states[-1], states[-1], mask, relative, index))
        return states, mask, relative, index

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden)."""
        states, *relations = self._below(ids, lengths, segment_ids)
        return [*states, self.blocks[-1](states[-1], states[-1], *relations)]

    def forward(
        self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """Return the output of the decoder, or without one of the last layer, (batch, length, hidden); with positions
        (batch, targets) those tokens', (batch, targets, hidden), for which alone the last layer is computed."""
        (*_, below), mask, relative, index = self._below(ids, lengths, segment_ids)
        queries = below
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        else:
            queries = gather_positions(below, positions)
            index = gather_positions(index.expand(len(ids), -1, -1, -1), positions[:, None])
        if self.position_embedding is None:
            return self.blocks[-1](below, queries, mask, relative, index)
        queries = queries + self.position_embedding(positions)
        for _ in range(2):  # the decoder is the last layer, twice (their code)
            queries = self.blocks[-1](below, queries, mask, relative, index)
        return queries

    def at(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        return self(ids, lengths, segment_ids, positions)


Model = Deberta
