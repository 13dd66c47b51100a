"""Generation with the prefix language model, token by token."""

import torch
from torch import Tensor

from components.models.common.kv_cache import KeyValueCache
from components.models.common.transformer import SelfAttention, TransformerBlock, attention
from components.models.decoder.decoding import Decoding as DecoderDecoding
from components.models.prefix_decoder.model import PrefixDecoder, padded_left
from components.text.tokenizer import CLS


class Decoding(DecoderDecoding):
    """The state of growing targets: the keys and values of their sources and tokens."""

    def __init__(self, model: PrefixDecoder, ids: Tensor, lengths: Tensor, capacity: int):
        """Source ids (rows, length), padded on the right, lengths (rows,); `capacity` is the maximum length of a target with its start."""
        self.model, self.lengths, self.source = model, lengths, ids.shape[1]
        self.caches = [KeyValueCache(self.source + capacity) for _ in model.blocks]
        self.read(padded_left(ids, lengths))

    def opening(self) -> Tensor:
        """Return the start tokens of the targets, (rows, 1)."""
        return torch.full((len(self.lengths), 1), CLS)

    def read(self, ids: Tensor) -> Tensor:
        """The next tokens (rows, new) -> the last layer for them, (rows, new, hidden)."""
        model, first = self.model, self.caches[0].used
        length = first + ids.shape[1]
        places = model.places(self.lengths, self.source, length)[:, first:]
        x = model.positions.add(model.token_embedding(ids), places)
        if model.position_embedding is not None:
            x = x + model.position_embedding(places)
        self.mask = model.positions.mask(model.visible(self.lengths, self.source, length), length)[:, :, first:]
        for block, cache in zip(model.blocks, self.caches, strict=True):
            x = self._block(block, x, cache)
        return model.final_norm(x)

    def _attention(self, block: TransformerBlock, x: Tensor, cache: KeyValueCache) -> Tensor:
        """x (rows, new, hidden) -> the same shape, by the mask of these tokens, (rows, 1 or heads, new, used)."""
        layer, first = block.attention, cache.used
        query, key, value = layer.query_key_value(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
        cache.append(self.model.positions.rotate(key, first), value)
        keys, values = cache.keys[:, :, : cache.used], cache.values[:, :, : cache.used]
        mask = self.mask if self.mask.dtype == torch.bool else self.mask.to(query.dtype)
        attended = attention(self.model.positions.rotate(query, first), keys, values, mask, False, 0.0)
        return layer.output(attended.transpose(1, 2).flatten(2))

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these targets, in this order; one may occur several times."""
        self.lengths = self.lengths[rows]
        super().select(rows, width)

    @staticmethod
    @torch.no_grad()
    def attention_weights(model: PrefixDecoder, ids: Tensor, targets: Tensor) -> Tensor:
        """ids (source,), targets (target,) -> the weights of each layer from target to source, (layers, target, source), averaged over
        the heads. The rest of each target's weight is on the targets before it."""
        weights, source = [], len(ids)

        def record(layer: SelfAttention, inputs: tuple) -> None:
            x, mask, _, positions, *_ = inputs
            query, key, _ = layer.query_key_value(x).unflatten(2, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
            scores = positions.rotate(query) @ positions.rotate(key).transpose(2, 3) * query.shape[3] ** -0.5
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            weights.append(scores.softmax(3)[0].mean(0)[source:, :source])

        hooks = [block.attention.register_forward_pre_hook(record) for block in model.blocks]
        model(ids[None], torch.tensor([source]), targets[None])
        for hook in hooks:
            hook.remove()
        return torch.stack(weights)
