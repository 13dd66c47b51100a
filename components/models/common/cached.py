"""Attention of a few new tokens to all that stands before them, whose keys and values are kept."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from components.models.common.positions import Positions


class Cache:
    """Keys and values of one layer, (rows, heads, room, head) each; those of a row stand one after another from 0 on."""

    def __init__(self, room: int):
        self.room = room
        self.keys: Tensor | None = None

    def put(self, key: Tensor, value: Tensor, places: Tensor) -> None:
        """Keys and values (rows, heads, new, head) of tokens at `places` (rows, new)."""
        if self.keys is None:
            shape = (*key.shape[:2], self.room, key.shape[3])
            self.keys, self.values = key.new_zeros(shape), value.new_zeros(shape)
        at = places[:, None, :, None].expand_as(key)
        self.keys.scatter_(2, at, key)
        self.values.scatter_(2, at, value)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; one may be there several times."""
        self.keys, self.values = self.keys[rows], self.values[rows]


def attend(query: Tensor, cache: Cache, places: Tensor, positions: Positions) -> Tensor:
    """query (rows, heads, new, head) of tokens at `places` (rows, new) -> (rows, heads, new, head), over what stands at or before them."""
    length = int(places.max()) + 1
    known = torch.arange(length)
    seen = known <= places[:, :, None]  # (rows, new, length)
    mask = None if seen.all() else seen[:, None]
    if positions.kind == "relative":
        bias = positions.bias(positions.buckets[places][:, :, :length]).permute(0, 3, 1, 2)
        mask = bias.masked_fill(~seen[:, None], -torch.inf)
    elif positions.kind == "alibi":
        bias = positions.slopes[None] * -(known - places[:, :, None]).abs()[:, None]
        mask = bias.masked_fill(~seen[:, None], -torch.inf)
    return scaled_dot_product_attention(query, cache.keys[:, :, :length], cache.values[:, :, :length], attn_mask=mask)


def rotated(heads: Tensor, positions: Positions, places: Tensor) -> Tensor:
    """Queries or keys (rows, heads, new, head) of tokens at `places` (rows, new), turned by them where positions are rotary."""
    if positions.kind != "rotary":
        return heads
    first, second = heads.chunk(2, 3)
    return heads * positions.cos[places][:, None] + torch.cat([-second, first], 3) * positions.sin[places][:, None]
