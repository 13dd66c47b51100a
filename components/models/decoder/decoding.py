"""Generation with the decoder, token by token."""

import torch
from torch import Tensor

from components.models.common.kv_cache import KeyValueCache, attend
from components.models.common.transformer import TransformerBlock
from components.models.decoder.model import Decoder


class Decoding:
    """The state of growing texts: the keys and values of their tokens."""

    def __init__(self, model: Decoder, ids: Tensor, lengths: Tensor, capacity: int):
        """Prefixes (rows, length), all of the same length; `capacity` is the maximum number of tokens of a text with its prefix."""
        self.model, self.prefix = model, ids
        self.caches = [KeyValueCache(capacity) for _ in model.blocks]

    def opening(self) -> Tensor:
        """Return the prefixes, (rows, length)."""
        return self.prefix

    def read(self, ids: Tensor) -> Tensor:
        """The next tokens (rows, new) -> the last layer for them, (rows, new, hidden)."""
        model, first = self.model, self.caches[0].used
        positions = torch.arange(first, first + ids.shape[1])
        x = model.positions.add(model.token_embedding(ids), positions)
        if model.position_embedding is not None:
            x = x + model.position_embedding(positions)
        for block, cache in zip(model.blocks, self.caches, strict=True):
            x = self._block(block, x, cache)
        return model.final_norm(x)

    def _block(self, block: TransformerBlock, x: Tensor, cache: KeyValueCache) -> Tensor:
        if block.norm_first:
            x = x + self._attention(block, block.attention_norm(x), cache)
            return x + block.feed_forward(block.feed_forward_norm(x))
        x = block.attention_norm(x + self._attention(block, x, cache))
        return block.feed_forward_norm(x + block.feed_forward(x))

    def _attention(self, block: TransformerBlock, x: Tensor, cache: KeyValueCache) -> Tensor:
        layer = block.attention
        heads = layer.query_key_value(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = attend(*heads, cache, self.model.positions)  # query, key and value, each (rows, heads, new, head)
        return layer.output(attended.transpose(1, 2).flatten(2))

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these texts, in this order; one may occur several times."""
        for cache in self.caches:
            cache.select(rows)
