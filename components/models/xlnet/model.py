"""XLNet (Yang et al. 2019): a Transformer-XL that predicts tokens in any order, with two streams."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.common.dropout import Dropout
from components.models.common.transformer import attention, feed_forward, initialise, norm, sublayers
from components.models.contract import LanguageModel
from components.models.xlnet.config import XLNetArchitecture
from components.text.tokenizer import Tokenizer


class RelativeAttention(nn.Module):
    """Attention scores by content, by distance, and by whether query and key are in the same segment (Dai et al. 2019, section 3.3; Yang
    et al. 2019, section 2.5)."""

    def __init__(self, config: XLNetArchitecture):
        super().__init__()
        size, heads = config.hidden_size, config.num_heads
        self.num_heads, self.dropout = heads, config.dropout
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.distance = nn.Linear(size, size, bias=False)
        self.output = nn.Linear(size, size, bias=False)
        # added to every query in the scores of content, distance and segment
        self.content_bias, self.distance_bias, self.segment_bias = (nn.Parameter(torch.zeros(size)) for _ in range(3))
        self.segments = nn.Parameter(torch.empty(heads, 2, size // heads).normal_(std=0.02))  # same segment, other segment

    def _heads(self, x: Tensor) -> Tensor:
        """(..., length, hidden) -> (..., heads, length, hidden / heads)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor | None, distances: Tensor, index: Tensor, other: Tensor) -> Tensor:
        """queries (batch, n, hidden), keys (batch, keys, hidden); mask (batch or 1, n or 1, keys), True where a key is visible;
        distances (distances, hidden), their vectors; index (batch or 1, n, keys), the distance of each pair; other (batch, n, keys),
        whether a key is in another segment -> (batch, n, hidden)."""
        query, key, value = self._heads(self.query(queries)), self._heads(self.key(keys)), self._heads(self.value(keys))
        biases = (self.content_bias, self.distance_bias, self.segment_bias)
        content, distance, segment = (bias.view(self.num_heads, 1, -1) for bias in biases)
        by_distance = (query + distance) @ self._heads(self.distance(distances)).transpose(1, 2)
        bias = by_distance.gather(3, index[:, None].expand(*query.shape[:3], -1))
        same, another = ((query + segment) @ self.segments.transpose(1, 2)).split(1, 3)
        bias = (bias + torch.where(other[:, None], another, same)) * query.shape[3] ** -0.5
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None], -torch.inf)
        attended = attention((query + content).to(key.dtype), key, value, bias, False, self.dropout if self.training else 0.0)
        return self.output(attended.transpose(1, 2).flatten(2))


class XLNetBlock(nn.Module):
    """Attention and feed-forward network, each with a residual connection and a norm after it."""

    def __init__(self, config: XLNetArchitecture):
        super().__init__()
        self.attention = RelativeAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, queries: Tensor, keys: Tensor, *relations: Tensor | None) -> Tensor:
        """The same arguments as of the attention; the residual connection is from the queries."""
        x = self.attention_norm(queries + self.dropout(self.attention(queries, keys, *relations)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class XLNet(LanguageModel):
    """As published. `layers` encodes a text; `forward` predicts some of its tokens in a random order."""

    embeddings = frozenset({"token_embedding", "asking_embedding"})
    low_rank = ("query", "key", "value")

    def __init__(self, config: XLNetArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config, size = config, config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.asking_embedding = nn.Parameter(torch.empty(size).normal_(std=0.02))
        """The input of the query stream, instead of a token's vector."""
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(XLNetBlock(config) for _ in range(config.num_layers))
        self.head_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        self.pooler = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        suffix = getattr(tokens, "suffix", ())
        self.class_id = suffix[-1] if len(suffix) > 1 else None
        """The last token of imported tokenizers that end a text with `<sep> <cls>`; it is in no segment."""
        initialise(self)

    def _distances(self, length: int, memory: int) -> tuple[Tensor, Tensor]:
        """Return the vectors of all distances of a query to its keys, (distances, hidden), and the index of each pair's,
        (1, length, memory + length)."""
        device = self.head_bias.device
        distances = torch.arange(1 - length, memory + length, device=device)  # position of the query minus that of the key
        rates = 10_000 ** (-torch.arange(0, self.width, 2, device=device) / self.width)
        angles = distances[:, None] * rates
        vectors = torch.cat([angles.sin(), angles.cos()], 1)[:, : self.width]
        index = torch.arange(length, device=device)[:, None] + memory - torch.arange(memory + length, device=device) + length - 1
        return self.dropout(vectors), index[None]

    def _segments(self, ids: Tensor, segment_ids: Tensor | None) -> Tensor:
        segments = torch.zeros_like(ids) if segment_ids is None else segment_ids
        return segments if self.class_id is None else segments.masked_fill(ids == self.class_id, -1)

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden)."""
        segments = self._segments(ids, segment_ids)
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[:, None]
        relations = mask, *self._distances(ids.shape[1], 0), segments[:, :, None] != segments[:, None]
        states = [self.dropout(self.token_embedding(ids))]
        for block in self.blocks:
            states.append(block(states[-1], states[-1], *relations))
        return states

    def forward(self, ids: Tensor, order: Tensor, positions: Tensor, segment_ids: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Run two streams (section 2.3): content attends to the tokens before it in the order and itself, queries only to those before.

        ids, segment_ids, order (batch, length): 0 for tokens visible to all, else the rank of a predicted token; positions (batch,
        targets) of the predicted tokens; memory (batch, layers, tokens, hidden), the states of the text before at each layer, in the
        first segment of the sequence -> the last layer of the queries (batch, targets, hidden), and the next memory, detached.
        """
        length, memory_length = ids.shape[1], memory.shape[2]
        vectors, index = self._distances(length, memory_length)
        key_segments = nn.functional.pad(segment_ids, (memory_length, 0))
        key_order = nn.functional.pad(order, (memory_length, 0))[:, None]

        def relations(last: Tensor, index: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
            return key_order <= last[:, :, None], vectors, index, segments[:, :, None] != key_segments[:, None]

        content = relations(order, index, segment_ids)
        rank = order.gather(1, positions)
        query = relations((rank - 1).clamp(min=0), index[0][positions], segment_ids.gather(1, positions))
        x = self.dropout(self.token_embedding(ids))
        queries = self.dropout(self.asking_embedding.expand(*positions.shape, -1))
        next_memory = []
        for i, block in enumerate(self.blocks):
            keys = torch.cat([memory[:, i].to(x.dtype), x], 1)
            next_memory.append(keys[:, length:].detach())
            queries = block(queries, keys, *query)
            if i < len(self.blocks) - 1:
                x = block(x, keys, *content)
        return self.dropout(queries), torch.stack(next_memory, 1)

    def at_holes(self, ids: Tensor, lengths: Tensor, positions: Tensor, holes: Tensor) -> Tensor:
        """The last layer of the queries at some holes, given all tokens that are in none: ids (batch, length), holes (batch, length) bool,
        positions (batch, targets) of holes -> (batch, targets, hidden)."""
        inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        order = holes.long().masked_fill(~inside, 2)  # what is visible, the holes, and padding, which nothing sees
        memory = self.head_bias.new_zeros(len(ids), self.num_layers, 0, self.width)
        return self(ids, order, positions, self._segments(ids, None), memory)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.head_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): dense and tanh on the last token."""
        return self.pooler(hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1])

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        return sublayers(self.blocks)


Model = XLNet
