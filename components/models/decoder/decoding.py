"""The decoder, a token at a time."""

import torch
from torch import Tensor

from components.models.common.cached import Cache, attend
from components.models.common.transformer import TransformerBlock
from components.models.decoder.model import Decoder


class Decoding:
    """What the model makes of texts that grow. Keys and values of what was read are kept."""

    def __init__(self, model: Decoder, ids: Tensor, lengths: Tensor, room: int):
        """Beginnings (rows, length), all as long; texts of `room` tokens at most, these counted."""
        self.model, self.begun = model, ids
        self.caches = [Cache(room) for _ in model.blocks]

    def opening(self) -> Tensor:
        """What the texts begin with, (rows, length)."""
        return self.begun

    def read(self, ids: Tensor) -> Tensor:
        """The tokens that follow, (rows, new) -> the last layer there, (rows, new, hidden)."""
        model, first = self.model, self.caches[0].used
        places = torch.arange(first, first + ids.shape[1])
        x = model.positions.add(model.token_embedding(ids), places)
        if model.position_embedding is not None:
            x = x + model.position_embedding(places)
        for block, cache in zip(model.blocks, self.caches, strict=True):
            x = self._block(block, x, cache)
        return model.final_norm(x)

    def _block(self, block: TransformerBlock, x: Tensor, cache: Cache) -> Tensor:
        if block.norm_first:
            x = x + self._attention(block, block.attention_norm(x), cache)
            return x + block.feed_forward(block.feed_forward_norm(x))
        x = block.attention_norm(x + self._attention(block, x, cache))
        return block.feed_forward_norm(x + block.feed_forward(x))

    def _attention(self, block: TransformerBlock, x: Tensor, cache: Cache) -> Tensor:
        part = block.attention
        heads = part.query_key_value(x).unflatten(2, (3, part.num_heads, -1)).permute(2, 0, 3, 1, 4)
        seen = attend(*heads, cache, self.model.positions)  # query, key and value, each (rows, heads, new, head)
        return part.output(seen.transpose(1, 2).flatten(2))

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these rows, in this order; one may be there several times."""
        for cache in self.caches:
            cache.select(rows)
