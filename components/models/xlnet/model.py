"""XLNet (Yang et al. 2019): a Transformer-XL that reads in any order, by two streams."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.models.common.dropout import Dropout
from components.models.common.transformer import attention, feed_forward, initialise, norm, sublayers
from components.models.contract import LanguageModel
from components.models.xlnet.config import XLNetArchitecture
from components.text.tokenizer import Tokenizer


class RelativeAttention(nn.Module):
    """What attends asks by what it is, by how far away a key stands, and by whether that is of its own segment (Dai et al. 2019, section
    3.3; Yang et al. 2019, section 2.5)."""

    def __init__(self, config: XLNetArchitecture):
        super().__init__()
        size, heads = config.hidden_size, config.num_heads
        self.num_heads, self.dropout = heads, config.dropout
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.distance = nn.Linear(size, size, bias=False)
        self.output = nn.Linear(size, size, bias=False)
        # what every query asks of contents, distances and segments, whatever it is itself
        self.content_bias, self.distance_bias, self.segment_bias = (nn.Parameter(torch.zeros(size)) for _ in range(3))
        self.segments = nn.Parameter(torch.empty(heads, 2, size // heads).normal_(std=0.02))  # the same one, another one

    def _heads(self, x: Tensor) -> Tensor:
        """(..., length, hidden) -> (..., heads, length, hidden / heads)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def forward(self, asking: Tensor, around: Tensor, mask: Tensor | None, distances: Tensor, places: Tensor, other: Tensor) -> Tensor:
        """asking (batch, n, hidden), around (batch, keys, hidden); mask (batch or 1, n or 1, keys), True where a key may be seen;
        distances (different ones, hidden), places (batch or 1, n, keys), which of them lies between; other (batch, n, keys), whether a
        key is of another segment -> (batch, n, hidden)."""
        query, key, value = self._heads(self.query(asking)), self._heads(self.key(around)), self._heads(self.value(around))
        content, distance, segment = (own.view(self.num_heads, 1, -1) for own in (self.content_bias, self.distance_bias, self.segment_bias))
        by_distance = (query + distance) @ self._heads(self.distance(distances)).transpose(1, 2)
        bias = by_distance.gather(3, places[:, None].expand(*query.shape[:3], -1))
        same, another = ((query + segment) @ self.segments.transpose(1, 2)).split(1, 3)
        bias = (bias + torch.where(other[:, None], another, same)) * query.shape[3] ** -0.5
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None], -torch.inf)
        seen = attention((query + content).to(key.dtype), key, value, bias, False, self.dropout if self.training else 0.0)
        return self.output(seen.transpose(1, 2).flatten(2))


class XLNetBlock(nn.Module):
    """Attention and feed-forward, each with a residual and a norm after it."""

    def __init__(self, config: XLNetArchitecture):
        super().__init__()
        self.attention = RelativeAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, asking: Tensor, around: Tensor, *relations: Tensor | None) -> Tensor:
        """As of the attention; the residual is what attends."""
        x = self.attention_norm(asking + self.dropout(self.attention(asking, around, *relations)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class XLNet(LanguageModel):
    """As published. `layers` reads a text as it stands; `forward` predicts some of its tokens in the order that is drawn."""

    embeddings = frozenset({"token_embedding", "asking_embedding"})
    low_rank = ("query", "key", "value")

    def __init__(self, config: XLNetArchitecture, tokens: Tokenizer):
        super().__init__()
        self.config, size = config, config.hidden_size
        self.width, self.num_layers, self.max_length = size, config.num_layers, config.max_length
        self.token_embedding = nn.Embedding(tokens.vocab_size, size)
        self.asking_embedding = nn.Parameter(torch.empty(size).normal_(std=0.02))
        """What a token to be predicted is before the first layer."""
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(XLNetBlock(config) for _ in range(config.num_layers))
        self.head_bias = nn.Parameter(torch.zeros(tokens.vocab_size))
        self.output_embedding = None if config.tie_word_embeddings else nn.Embedding(tokens.vocab_size, size)
        self.pooler = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        suffix = getattr(tokens, "suffix", ())
        self.class_id = suffix[-1] if len(suffix) > 1 else None
        """Of tokenizers from elsewhere that end a text with `<sep> <cls>`: the last is of no segment."""
        initialise(self)

    def _distances(self, length: int, memory: int) -> tuple[Tensor, Tensor]:
        """Vectors of all distances between a token and what it may see, (distances, hidden), and which lies between which: (1, length,
        memory + length)."""
        device = self.head_bias.device
        away = torch.arange(1 - length, memory + length, device=device)  # how far a key stands before a query
        rates = 10_000 ** (-torch.arange(0, self.width, 2, device=device) / self.width)
        angles = away[:, None] * rates
        vectors = torch.cat([angles.sin(), angles.cos()], 1)[:, : self.width]
        places = torch.arange(length, device=device)[:, None] + memory - torch.arange(memory + length, device=device) + length - 1
        return self.dropout(vectors), places[None]

    def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
        """ids, segment_ids (batch, length); lengths (batch,) -> the embedding and every layer's output, each (batch, length, hidden)."""
        segments = torch.zeros_like(ids) if segment_ids is None else segment_ids
        places = torch.arange(ids.shape[1], device=ids.device)
        if self.class_id is not None:
            segments = segments.masked_fill(ids == self.class_id, -1)
        mask = (places < lengths[:, None])[:, None]
        relations = mask, *self._distances(ids.shape[1], 0), segments[:, :, None] != segments[:, None]
        states = [self.dropout(self.token_embedding(ids))]
        for block in self.blocks:
            states.append(block(states[-1], states[-1], *relations))
        return states

    def forward(self, ids: Tensor, order: Tensor, asked: Tensor, segment_ids: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Two streams (section 2.3). Content sees what stands before it in the order and itself; a token that is predicted sees the same
        but itself.

        ids, segment_ids, order (batch, length): 0 for what all may see, else a token's number among those that are predicted;
        asked (batch, targets), their places in the text; memory (batch, layers, tokens, hidden), what stood before the rows at each
        layer, of the rows' first segment -> the last layer at the places asked (batch, targets, hidden), and what the rows leave to
        remember, as long as `memory` and cut from the graph.
        """
        length, remembered = ids.shape[1], memory.shape[2]
        vectors, places = self._distances(length, remembered)
        others = nn.functional.pad(segment_ids, (remembered, 0))
        seen = nn.functional.pad(order, (remembered, 0))[:, None]

        def relations(last: Tensor, places: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
            return seen <= last[:, :, None], vectors, places, segments[:, :, None] != others[:, None]

        content = relations(order, places, segment_ids)
        rank = order.gather(1, asked)
        query = relations((rank - 1).clamp(min=0), places[0][asked], segment_ids.gather(1, asked))
        x = self.dropout(self.token_embedding(ids))
        asking = self.dropout(self.asking_embedding.expand(*asked.shape, -1))
        left = []
        for i, block in enumerate(self.blocks):
            around = torch.cat([memory[:, i].to(x.dtype), x], 1)
            left.append(around[:, length:].detach())
            asking, x = block(asking, around, *query), block(x, around, *content) if i < len(self.blocks) - 1 else x
        return self.dropout(asking), torch.stack(left, 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab_size)."""
        return linear(hidden, (self.output_embedding or self.token_embedding).weight, self.head_bias)

    def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length, hidden) -> (batch, hidden): dense and tanh on the last token."""
        return self.pooler(hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1])

    def sublayers(self) -> list[tuple[nn.Module, str]]:
        return sublayers(self.blocks)


Model = XLNet
