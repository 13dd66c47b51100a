"""Attention of new tokens to all before them, whose keys and values are cached. All sequences have the same length."""

import torch
from torch import Tensor

from components.models.common.positions import Positions
from components.models.common.transformer import attention


class KeyValueCache:
    """Keys and values of one layer, (batch, heads, capacity, head) each, of which the first `used` tokens are filled."""

    def __init__(self, capacity: int):
        self.capacity, self.used = capacity, 0
        self.keys: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add keys and values (batch, heads, new, head) of the next tokens."""
        if self.keys is None:
            shape = (*key.shape[:2], self.capacity, key.shape[3])
            self.keys, self.values = key.new_empty(shape), value.new_empty(shape)
        first, self.used = self.used, self.used + key.shape[2]
        self.keys[:, :, first : self.used], self.values[:, :, first : self.used] = key, value

    def select(self, rows: Tensor) -> None:
        """Keep these sequences, in this order; one may occur several times."""
        self.keys, self.values = self._selected(self.keys, rows), self._selected(self.values, rows)

    def _selected(self, cached: Tensor, rows: Tensor) -> Tensor:
        selected = cached.new_empty((len(rows), *cached.shape[1:]))
        torch.index_select(cached[:, :, : self.used], 0, rows, out=selected[:, :, : self.used])  # without the unused capacity
        return selected


def attend(query: Tensor, key: Tensor, value: Tensor, cache: KeyValueCache, positions: Positions) -> Tensor:
    """Heads (batch, heads, new, head) of the next tokens -> (batch, heads, new, head), attending to them and all before."""
    first, new = cache.used, query.shape[2]
    cache.append(positions.rotate(key, first), value)
    query_positions, key_positions = torch.arange(first, first + new), torch.arange(cache.used)
    visible = key_positions <= query_positions[:, None]  # (new, used)
    mask = None if new == 1 else visible
    if positions.kind == "relative":
        bias = positions.bias(positions.buckets[first : first + new, : cache.used]).permute(2, 0, 1)
        mask = bias.masked_fill(~visible, -torch.inf)
    elif positions.kind == "alibi":
        mask = (positions.slopes * -(key_positions - query_positions[:, None]).abs()).masked_fill(~visible, -torch.inf)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(query.dtype)
    keys, values = cache.keys[:, :, : cache.used], cache.values[:, :, : cache.used]
    return attention(positions.rotate(query, first), keys, values, mask, False, 0.0)
