"""The encoder-decoder, a target token at a time."""

import torch
from torch import Tensor

from components.models.common.cached import Cache, attend
from components.models.common.transformer import attention, length_mask
from components.models.encoder_decoder.model import Attention, EncoderDecoder, Layer


class Decoding:
    """What the model makes of targets that grow, one for each source. Their keys and values are kept, the source's made once."""

    def __init__(self, model: EncoderDecoder, ids: Tensor, lengths: Tensor, room: int):
        """Source ids (rows, length), padded on the right, lengths (rows,); targets of `room` tokens at most, the opening one counted."""
        self.model, self.stack = model, model.decoder
        memory = model.encode(ids, lengths)[-1]
        self.mask = length_mask(lengths, ids.shape[1])
        self.source = [layer.cross_attention.keys_values(memory) for layer in self.stack.blocks]
        self.caches = [Cache(room) for _ in self.stack.blocks]
        self.width = 1

    def opening(self) -> Tensor:
        """What the targets begin with, (rows, 1)."""
        return torch.full((len(self.source[0][0]), 1), self.model.start)

    def read(self, ids: Tensor) -> Tensor:
        """The tokens that follow, (rows, new) -> the last layer there, (rows, new, hidden)."""
        x = self.stack.place(self.model.embed(ids), self.caches[0].used)
        for layer, cache, source in zip(self.stack.blocks, self.caches, self.source, strict=True):
            x = self._layer(layer, x, cache, source)
        return self.stack.final_norm(x)

    def _layer(self, layer: Layer, x: Tensor, cache: Cache, source: tuple[Tensor, Tensor]) -> Tensor:
        x = layer.residual(x, layer.attention_norm, lambda x: self._own(layer.attention, x, cache))
        x = layer.residual(x, layer.cross_attention_norm, lambda x: self._cross(layer.cross_attention, x, source))
        return layer.residual(x, layer.feed_forward_norm, layer.feed_forward)

    def _own(self, part: Attention, x: Tensor, cache: Cache) -> Tensor:
        seen = attend(part.heads(part.query(x)), *part.keys_values(x), cache, self.stack.positions)
        return part.output(seen.transpose(1, 2).flatten(2))

    def _cross(self, part: Attention, x: Tensor, source: tuple[Tensor, Tensor]) -> Tensor:
        # the texts of one source look at it together: it stands there once
        query = part.heads(part.query(x.reshape(-1, self.width * x.shape[1], x.shape[2])))
        seen = attention(query, *source, self.mask, False, 0.0)
        return part.output(seen.transpose(1, 2).flatten(2)).view_as(x)

    def select(self, rows: Tensor, width: int = 1) -> None:
        """Keep these rows, in this order; one may be there several times. From now on each `width` of them have one source."""
        for cache in self.caches:
            cache.select(rows)
        sources, self.width = rows[::width] // self.width, width
        if len(sources) != len(self.source[0][0]) or (sources != torch.arange(len(sources))).any():
            self.source = [(key[sources], value[sources]) for key, value in self.source]
            self.mask = None if self.mask is None else self.mask[sources]

    @staticmethod
    @torch.no_grad()
    def looks(model: EncoderDecoder, ids: Tensor, targets: Tensor) -> Tensor:
        """Where each place of a target looks in its source, by layer: ids (source,), targets (target,) -> (layers, target, source), the
        mean over the heads of attention's weights (Bahdanau et al. 2015, figure 3)."""
        weights = []

        def note(part: Attention, given: tuple) -> None:
            x, memory, *_ = given
            key, _ = part.keys_values(memory)
            query = part.heads(part.query(x))
            weights.append((query @ key.transpose(2, 3) * query.shape[3] ** -0.5).softmax(3)[0].mean(0))

        hooks = [layer.cross_attention.register_forward_pre_hook(note) for layer in model.decoder.blocks]
        model(ids[None], torch.tensor([len(ids)]), targets[None])
        for hook in hooks:
            hook.remove()
        return torch.stack(weights)
