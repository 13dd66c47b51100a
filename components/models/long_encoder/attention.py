"""Self-attention whose cost grows linearly with the length of a text."""

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import elu, normalize, pad

from components.models.common.dropout import dropout
from components.models.common.positions import Positions
from components.models.common.transformer import SelfAttention, attention
from components.models.contract import gather_positions
from components.models.long_encoder.config import LongEncoderArchitecture


class LinearCostAttention(SelfAttention):
    """Base class: the projections of `SelfAttention`, and `attend` of a subclass between them."""

    def __init__(self, config: LongEncoderArchitecture):
        super().__init__(config)
        self.config, self.head_size = config, config.hidden_size // config.num_heads

    def project(self, x: Tensor) -> Tensor:
        """x (batch, length, hidden) -> (batch, length, queries, keys and values side by side)."""
        return self.query_key_value(x)

    def attend(self, heads: Tensor, real: Tensor, positions: Positions) -> Tensor:
        """heads (queries, keys and values; batch, heads, length, head), real (batch, length) bool, False for padding
        -> (batch, heads, length, head)."""
        raise NotImplementedError

    def forward(
        self, x: Tensor, mask: Tensor | None, causal: bool, positions: Positions, only: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """As `SelfAttention.forward`; mask (batch, 1, 1, length)."""
        batch, length, _ = x.shape
        heads = self.project(x).view(batch, length, -1, self.num_heads, self.head_size).permute(2, 0, 3, 1, 4)
        real = x.new_ones(batch, length, dtype=torch.bool) if mask is None else mask[:, 0, 0]
        attended = self.attend(heads, real, positions)
        if only is not None:
            attended = gather_positions(attended, only[:, None].expand(-1, self.num_heads, -1))
        return self.output(attended.transpose(1, 2).flatten(2))


class WindowAttention(LinearCostAttention):
    """A token attends to `window` tokens on each side; the first `global_tokens` attend to all, and all to them.

    Beltagy et al. 2020, section 3.1. Unlike in the authors' model, the global tokens have no projections of their own.
    """

    def attend(self, heads: Tensor, real: Tensor, positions: Positions) -> Tensor:
        query, key, value = positions.rotate(heads[0]), positions.rotate(heads[1]), heads[2]
        probability = self.dropout if self.training else 0.0
        (batch, _, length, _), width = query.shape, self.config.window
        if length <= width + 1:  # the window has the whole text
            return attention(query, key, value, real[:, None, None], False, probability)
        first = min(self.config.global_tokens, length)
        # blocks of `width` queries; the keys of a block are its own and those of both its neighbours
        room = -length % width
        blocks = (length + room) // width
        queries = pad(query, (0, 0, 0, room)).unflatten(2, (blocks, width)).transpose(1, 2).flatten(0, 1)
        keys, values = (
            pad(x, (0, 0, width, width + room)).unfold(2, 3 * width, width).permute(0, 2, 1, 4, 3).flatten(0, 1)
            for x in (key, value)
        )
        distance = (
            torch.arange(3 * width, device=real.device) - width - torch.arange(width, device=real.device)[:, None]
        )
        # global tokens are keys of every block, once
        local = real & (torch.arange(length, device=real.device) >= first)
        visible = pad(local, (width, width + room)).unfold(1, 3 * width, width)[:, :, None] & (distance.abs() <= width)
        # padding attends to itself: no row of the softmax may be empty
        visible = (visible | (distance == 0)).flatten(0, 1)

        def of_each_block(x: Tensor) -> Tensor:
            return x[:, None].expand(batch, blocks, *x.shape[1:]).flatten(0, 1)

        keys = torch.cat([of_each_block(key[:, :, :first]), keys], 2)
        values = torch.cat([of_each_block(value[:, :, :first]), values], 2)
        visible = torch.cat([of_each_block(real[:, None, :first].expand(-1, width, -1)), visible], 2)
        attended = attention(queries, keys, values, visible[:, None], False, probability)
        attended = attended.unflatten(0, (batch, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]
        if not first:
            return attended
        of_global = attention(query[:, :, :first], key, value, real[:, None, None], False, probability)
        return torch.cat([of_global, attended[:, :, first:]], 2)


class HashAttention(LinearCostAttention):
    """A token attends to tokens whose vectors point where its own does (Kitaev et al. 2020, section 2).

    Queries and keys are the same vectors. Random rotations hash each (Andoni et al. 2015). Tokens are sorted by their
    hash, cut into chunks, and attend to their chunk and the one before it, to themselves only if there is nothing else.
    The rounds are weighted by their sums of exponentials. Unlike in the authors' code, the rotations are drawn once, so
    that a text has one result, and the first chunk has none before it, so that padding changes nothing. Reversible
    layers save memory, as `trainer.recompute` does, and are left out.
    """

    def __init__(self, config: LongEncoderArchitecture):
        super().__init__(config)
        del self.query_key_value
        self.key_value = Linear(config.hidden_size, 2 * config.hidden_size, config.biases)
        self.buckets = 2 * -(-config.max_length // config.chunk)  # chunks hold two buckets on average (section 3)
        self.register_buffer(
            "rotations", torch.randn(config.num_heads, config.rounds, self.head_size, self.buckets // 2)
        )

    def project(self, x: Tensor) -> Tensor:
        return self.key_value(x)

    def attend(self, heads: Tensor, real: Tensor, positions: Positions) -> Tensor:
        room = -heads.shape[3] % self.config.chunk
        real = pad(real, (0, room))[:, None, None].expand(-1, self.num_heads, self.config.rounds, -1)
        query, value = (pad(x, (0, 0, 0, room)) for x in heads)
        order = self._sorted(query, real)  # (batch, heads, rounds, length)
        query = positions.rotate(query[:, :, : heads.shape[3]])
        query = pad(query, (0, 0, 0, room))

        def chunks(x: Tensor) -> Tensor:
            """(batch, heads, length, head) -> (batch, heads, rounds, chunks, chunk, head), sorted."""
            x = x[:, :, None].expand(-1, -1, self.config.rounds, -1, -1)
            return gather_positions(x, order).unflatten(3, (-1, self.config.chunk))

        queries, values = chunks(query), _with_previous(chunks(value))
        keys = _with_previous(normalize(queries, dim=-1))
        index = order.unflatten(3, (-1, self.config.chunk))
        others = _with_previous(index[..., None], -1)[..., 0]
        visible = _with_previous(real.gather(3, order).unflatten(3, (-1, self.config.chunk))[..., None])[..., 0]
        scores = (queries @ keys.transpose(4, 5)).float()  # keys of length 1, times sqrt(head), over sqrt(head)
        scores = scores.masked_fill(~visible[..., None, :], -torch.inf)
        scores = scores.masked_fill(index[..., None] == others[..., None, :], ITSELF)
        total = scores.logsumexp(5, keepdim=True)
        weights = (scores - total).exp().to(values.dtype)
        attended = (dropout(weights, self.dropout) if self.training and self.dropout else weights) @ values
        back = order.argsort(3)
        attended, total = (gather_positions(x.flatten(3, 4), back) for x in (attended, total))
        return (attended * total.softmax(2).to(attended.dtype)).sum(2)[:, :, : heads.shape[3]]

    @torch.no_grad()
    def _sorted(self, query: Tensor, real: Tensor) -> Tensor:
        """query (batch, heads, length, head), real (batch, heads, rounds, length) -> the shape of real: positions in the
        order of their hashes, padding last."""
        rotated = query[:, :, None] @ self.rotations.to(query.dtype)  # (batch, heads, rounds, length, buckets / 2)
        bucket = torch.cat([rotated, -rotated], 4).argmax(4)
        return bucket.masked_fill(~real, self.buckets).argsort(dim=3, stable=True)


ITSELF = -1e5
"""Score of a token for itself: it has a weight only where nothing else is visible."""


def _with_previous(x: Tensor, fill: float = 0) -> Tensor:
    """(batch, heads, rounds, chunks, chunk, any) -> (..., 2 * chunk, any): the chunk before, then each chunk itself."""
    before = torch.cat([torch.full_like(x[:, :, :, :1], fill), x[:, :, :, :-1]], 3)
    return torch.cat([before, x], 4)


class LinearAttention(LinearCostAttention):
    """elu(x) + 1 of queries and keys in place of the softmax, so that one sum over keys serves all queries.

    Katharopoulos et al. 2020, section 3.2. There are no weights that dropout could act on. Rotary positions rotate the
    features above the fraction bar only (Su et al. 2021, section 3.3).
    """

    def attend(self, heads: Tensor, real: Tensor, positions: Positions) -> Tensor:
        query, key = elu(heads[0]) + 1, (elu(heads[1]) + 1) * real[:, None, :, None]
        sums = positions.rotate(key).transpose(2, 3) @ heads[2]  # (batch, heads, head, head)
        return positions.rotate(query) @ sums / (query @ key.sum(2)[..., None])


ATTENTIONS = {"full": SelfAttention, "windows": WindowAttention, "hashes": HashAttention, "linear": LinearAttention}
