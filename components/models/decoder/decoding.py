"""The decoder, a token at a time."""

import torch
from torch import Tensor

from components.models.common.cached import Cache, attend, rotated
from components.models.common.transformer import TransformerBlock
from components.models.decoder.model import Decoder


class Decoding:
    """What the model makes of texts that grow. Keys and values of what was read are kept."""

    def __init__(self, model: Decoder, ids: Tensor, lengths: Tensor, room: int):
        """Beginnings (rows, length), padded on the right, lengths (rows,); texts of `room` tokens at most, these counted."""
        self.model, self.begun = model, (ids, lengths)
        self.caches = [Cache(room) for _ in model.blocks]

    def opening(self, rows: int) -> tuple[Tensor, Tensor]:
        """What the texts begin with, (rows, length), and how many tokens that are, (rows,)."""
        return self.begun

    def read(self, ids: Tensor, places: Tensor) -> Tensor:
        """New tokens (rows, new) at `places` (rows, new) -> the last layer there, (rows, new, hidden)."""
        model = self.model
        x = model.positions.add(model.token_embedding(ids), places)
        if model.position_embedding is not None:
            x = x + model.position_embedding(places)
        for block, cache in zip(model.blocks, self.caches, strict=True):
            x = self._block(block, x, cache, places)
        return model.final_norm(x)

    def _block(self, block: TransformerBlock, x: Tensor, cache: Cache, places: Tensor) -> Tensor:
        if block.norm_first:
            x = x + self._attention(block, block.attention_norm(x), cache, places)
            return x + block.feed_forward(block.feed_forward_norm(x))
        x = block.attention_norm(x + self._attention(block, x, cache, places))
        return block.feed_forward_norm(x + block.feed_forward(x))

    def _attention(self, block: TransformerBlock, x: Tensor, cache: Cache, places: Tensor) -> Tensor:
        part, positions = block.attention, self.model.positions
        heads = part.query_key_value(x).unflatten(2, (3, part.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads  # each (rows, heads, new, head)
        cache.put(rotated(key, positions, places), value, places)
        seen = attend(rotated(query, positions, places), cache, places, positions)
        return part.output(seen.transpose(1, 2).flatten(2))

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; one may be there several times."""
        for cache in self.caches:
            if cache.keys is not None:
                cache.select(rows)
        self.begun = tuple(torch.index_select(part, 0, rows) for part in self.begun)
