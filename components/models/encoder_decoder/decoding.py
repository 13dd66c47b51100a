"""The encoder-decoder, a target token at a time."""

import torch
from torch import Tensor

from components.models.common.cached import Cache, attend, rotated
from components.models.common.transformer import attention, length_mask
from components.models.encoder_decoder.model import Attention, EncoderDecoder, Layer, Stack


class Decoding:
    """What the model makes of targets that grow, one for each source. Their keys and values are kept, the source's made once."""

    def __init__(self, model: EncoderDecoder, ids: Tensor, lengths: Tensor, room: int):
        """Source ids (rows, length), padded on the right, lengths (rows,); targets of `room` tokens at most, the opening one counted."""
        self.model, self.stack = model, model.decoder
        memory = model.encode(ids, lengths)[-1]
        self.mask = length_mask(lengths, ids.shape[1])
        self.source = [layer.cross_attention.keys_values(memory) for layer in self.stack.blocks]
        self.caches = [Cache(room) for _ in self.stack.blocks]

    def opening(self, rows: int) -> tuple[Tensor, Tensor]:
        """What the targets begin with, (rows, 1), and how many tokens that are, (rows,)."""
        return torch.full((rows, 1), self.model.start), torch.ones(rows, dtype=torch.long)

    def read(self, ids: Tensor, places: Tensor) -> Tensor:
        """New tokens (rows, new) at `places` (rows, new) -> the last layer there, (rows, new, hidden)."""
        x = _placed(self.stack, self.model.embed(ids), places)
        for layer, cache, source in zip(self.stack.blocks, self.caches, self.source, strict=True):
            x = self._layer(layer, x, cache, source, places)
        return self.stack.final_norm(x)

    def _layer(self, layer: Layer, x: Tensor, cache: Cache, source: tuple[Tensor, Tensor], places: Tensor) -> Tensor:
        x = layer.residual(x, layer.attention_norm, lambda x: self._own(layer.attention, x, cache, places))
        x = layer.residual(x, layer.cross_attention_norm, lambda x: self._cross(layer.cross_attention, x, source))
        return layer.residual(x, layer.feed_forward_norm, layer.feed_forward)

    def _own(self, part: Attention, x: Tensor, cache: Cache, places: Tensor) -> Tensor:
        key, value = part.keys_values(x)
        positions = self.stack.positions
        cache.put(rotated(key, positions, places), value, places)
        query = rotated(part.heads(part.query(x)), positions, places)
        return part.output(attend(query, cache, places, positions).transpose(1, 2).flatten(2))

    def _cross(self, part: Attention, x: Tensor, source: tuple[Tensor, Tensor]) -> Tensor:
        seen = attention(part.heads(part.query(x)), *source, self.mask, False, 0.0)
        return part.output(seen.transpose(1, 2).flatten(2))

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; one may be there several times."""
        for cache in self.caches:
            if cache.keys is not None:
                cache.select(rows)
        self.source = [(key[rows], value[rows]) for key, value in self.source]
        self.mask = None if self.mask is None else self.mask[rows]

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


def _placed(stack: Stack, x: Tensor, places: Tensor) -> Tensor:
    if stack.kind == "learned":
        x = x + stack.position_embedding(places)
    elif stack.kind == "sinusoidal":
        x = x + stack.table[places]
    return stack.embedding_norm(x)
