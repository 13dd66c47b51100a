"""Generation with the encoder-decoder, token by token."""

import torch
from torch import Tensor

from components.models.common.kv_cache import KeyValueCache, attend
from components.models.common.transformer import attention, length_mask
from components.models.encoder_decoder.model import Attention, EncoderDecoder, Layer


class Decoding:
    """The state of growing targets, one per source: the keys and values of their tokens, and of the sources."""

    def __init__(self, model: EncoderDecoder, ids: Tensor, lengths: Tensor, capacity: int):
        """Source ids (rows, length), padded on the right, lengths (rows,); `capacity` is the maximum length of a target with its start."""
        self.model, self.stack = model, model.decoder
        memory = model.encode(ids, lengths)[-1]
        self.mask = length_mask(lengths, ids.shape[1])
        self.source = [layer.cross_attention.keys_values(memory) for layer in self.stack.blocks]
        self.caches = [KeyValueCache(capacity) for _ in self.stack.blocks]
        self.width = 1

    def opening(self) -> Tensor:
        """Return the start tokens of the targets, (rows, 1)."""
        return torch.full((len(self.source[0][0]), 1), self.model.start)

    def read(self, ids: Tensor) -> Tensor:
        """The next tokens (rows, new) -> the last layer for them, (rows, new, hidden)."""
        x = self.stack.embed_positions(self.model.embed(ids), self.caches[0].used)
        for layer, cache, source in zip(self.stack.blocks, self.caches, self.source, strict=True):
            x = self._layer(layer, x, cache, source)
        return self.stack.final_norm(x)

    def _layer(self, layer: Layer, x: Tensor, cache: KeyValueCache, source: tuple[Tensor, Tensor]) -> Tensor:
        x = layer.residual(x, layer.attention_norm, lambda x: self._self_attention(layer.attention, x, cache))
        x = layer.residual(x, layer.cross_attention_norm, lambda x: self._cross_attention(layer.cross_attention, x, source))
        return layer.residual(x, layer.feed_forward_norm, layer.feed_forward)

    def _self_attention(self, layer: Attention, x: Tensor, cache: KeyValueCache) -> Tensor:
        attended = attend(layer.heads(layer.query(x)), *layer.keys_values(x), cache, self.stack.positions)
        return layer.output(attended.transpose(1, 2).flatten(2))

    def _cross_attention(self, layer: Attention, x: Tensor, source: tuple[Tensor, Tensor]) -> Tensor:
        # all targets of one source attend to it together, so that its keys and values are stored once
        query = layer.heads(layer.query(x.reshape(-1, self.width * x.shape[1], x.shape[2])))
        attended = attention(query, *source, self.mask, False, 0.0)
        return layer.output(attended.transpose(1, 2).flatten(2)).view_as(x)

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these targets, in this order; one may occur several times. From now on `width` consecutive ones share a source."""
        for cache in self.caches:
            cache.select(rows)
        sources, self.width = rows[::width] // self.width, width
        if len(sources) != len(self.source[0][0]) or (sources != torch.arange(len(sources))).any():
            self.source = [(key[sources], value[sources]) for key, value in self.source]
            self.mask = None if self.mask is None else self.mask[sources]

    @staticmethod
    @torch.no_grad()
    def attention_weights(model: EncoderDecoder, ids: Tensor, targets: Tensor) -> Tensor:
        """ids (source,), targets (target,) -> the cross-attention weights of each layer, (layers, target, source), averaged over the
        heads (Bahdanau et al. 2015, figure 3)."""
        weights = []

        def record(layer: Attention, inputs: tuple) -> None:
            x, memory, *_ = inputs
            key, _ = layer.keys_values(memory)
            query = layer.heads(layer.query(x))
            weights.append((query @ key.transpose(2, 3) * query.shape[3] ** -0.5).softmax(3)[0].mean(0))

        hooks = [layer.cross_attention.register_forward_pre_hook(record) for layer in model.decoder.blocks]
        model(ids[None], torch.tensor([len(ids)]), targets[None])
        for hook in hooks:
            hook.remove()
        return torch.stack(weights)
