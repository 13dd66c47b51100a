"""Attention of new tokens to all that stands before them, whose keys and values are kept. All rows are as long."""

import torch
from torch import Tensor

from components.models.common.positions import Positions
from components.models.common.transformer import attention


class Cache:
    """Keys and values of one layer, (rows, heads, room, head) each, of which so many tokens are `used`."""

    def __init__(self, room: int):
        self.room, self.used = room, 0
        self.keys: Tensor | None = None

    def put(self, key: Tensor, value: Tensor) -> None:
        """Keys and values (rows, heads, new, head) of the tokens that follow."""
        if self.keys is None:
            shape = (*key.shape[:2], self.room, key.shape[3])
            self.keys, self.values = key.new_empty(shape), value.new_empty(shape)
        first, self.used = self.used, self.used + key.shape[2]
        self.keys[:, :, first : self.used], self.values[:, :, first : self.used] = key, value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; one may be there several times."""
        self.keys, self.values = self._selected(self.keys, rows), self._selected(self.values, rows)

    def _selected(self, kept: Tensor, rows: Tensor) -> Tensor:
        chosen = kept.new_empty((len(rows), *kept.shape[1:]))
        torch.index_select(kept[:, :, : self.used], 0, rows, out=chosen[:, :, : self.used])  # the room behind is not copied
        return chosen


def attend(query: Tensor, key: Tensor, value: Tensor, cache: Cache, positions: Positions) -> Tensor:
    """Heads (rows, heads, new, head) of the tokens that follow -> (rows, heads, new, head), over them and what stands before."""
    first, new = cache.used, query.shape[2]
    cache.put(_rotated(key, positions, first), value)
    places, known = torch.arange(first, first + new), torch.arange(cache.used)
    seen = known <= places[:, None]  # (new, used)
    mask = None if new == 1 else seen
    if positions.kind == "relative":
        bias = positions.bias(positions.buckets[first : first + new, : cache.used]).permute(2, 0, 1)
        mask = bias.masked_fill(~seen, -torch.inf)
    elif positions.kind == "alibi":
        mask = (positions.slopes * -(known - places[:, None]).abs()).masked_fill(~seen, -torch.inf)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(query.dtype)
    return attention(
        _rotated(query, positions, first), cache.keys[:, :, : cache.used], cache.values[:, :, : cache.used], mask, False, 0.0
    )  # fmt: skip


def _rotated(heads: Tensor, positions: Positions, first: int) -> Tensor:
    """Queries or keys (rows, heads, new, head), the first of which stands at `first`, turned by their places where these are rotary."""
    if positions.kind != "rotary":
        return heads
    here, (one, other) = slice(first, first + heads.shape[2]), heads.chunk(2, 3)
    return heads * positions.cos[here].to(heads.dtype) + torch.cat([-other, one], 3) * positions.sin[here].to(heads.dtype)
