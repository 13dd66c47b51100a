"""Position encodings: learned, sinusoidal, rotary, relative, ALiBi."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from components.models.common.config import TransformerArchitecture


class Positions(nn.Module):
    """The position encoding: vectors added to the embedding, a rotation of queries and keys, or a bias on attention scores.

    Learned positions are an embedding of the model.
    """

    def __init__(self, config: TransformerArchitecture, causal: bool):
        super().__init__()
        self.kind, self.causal, head = config.positions, causal, config.hidden_size // config.num_heads
        positions = torch.arange(config.max_length)
        if self.kind == "sinusoidal":
            angles = positions[:, None] / 10_000 ** (torch.arange(0, config.hidden_size, 2) / config.hidden_size)
            table = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, : config.hidden_size]
            self.register_buffer("table", table * 0.02 * math.sqrt(2), persistent=False)  # as large as learned positions initially
        elif self.kind == "rotary":
            angles = positions[:, None] / 10_000 ** (torch.arange(0, head, 2) / head)
            self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)  # (max_length, head)
            self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)
        elif self.kind == "relative":
            self.bias = nn.Embedding(BUCKETS, config.num_heads)
            self.register_buffer("buckets", bucket(positions[None, :] - positions[:, None], causal), persistent=False)
        elif self.kind == "alibi":
            self.register_buffer("slopes", slopes(config.num_heads)[:, None, None], persistent=False)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (batch, length, hidden), positions (length,) or (batch, length) -> the same shape as x."""
        return x + embedding(positions, self.table) if self.kind == "sinusoidal" else x

    def rotate(self, heads: Tensor, first: int = 0) -> Tensor:
        """Rotate queries or keys (batch, heads, length, head) at the positions first, first + 1, ..., if positions are rotary."""
        if self.kind != "rotary":
            return heads
        positions, (one, other) = slice(first, first + heads.shape[2]), heads.chunk(2, 3)
        return heads * self.cos[positions].to(heads.dtype) + torch.cat([-other, one], 3) * self.sin[positions].to(heads.dtype)

    def mask(self, mask: Tensor | None, length: int) -> Tensor | None:
        """mask (batch, 1, 1 or length, length), True where a key is visible -> the same, or with a bias a tensor added to the scores."""
        if self.kind not in ("relative", "alibi"):
            return mask
        if self.kind == "relative":
            bias = self.bias(self.buckets[:length, :length]).permute(2, 0, 1)[None]  # (1, heads, length, length)
        else:
            positions = torch.arange(length, device=self.slopes.device)
            bias = (self.slopes * -(positions[None, :] - positions[:, None]).abs())[None]
        if mask is None and self.causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=bias.device).tril()
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


def slopes(heads: int) -> Tensor:
    """Return ALiBi's slopes (heads,): 2^(-8/n), 2^(-16/n), ... for a power of two n (Press et al. 2022, section 3 and their code).

    Other numbers of heads take the slopes of the power below, then every other slope of the power above.
    """
    below = 2 ** int(math.log2(heads))
    of_below = [2 ** (-8 * (i + 1) / below) for i in range(below)]
    of_above = [2 ** (-8 * (i + 1) / (2 * below)) for i in range(0, 2 * below, 2)]
    return torch.tensor((of_below + of_above)[:heads])


BUCKETS, FARTHEST = 32, 128
"""The number of buckets of relative positions, and the distance from which on all share the last bucket (T5)."""


def bucket(distance: Tensor, causal: bool) -> Tensor:
    """Position of the key minus that of the query -> bucket (Raffel et al. 2020, section 2.1).

    Half of the buckets are one small distance each, the others grow logarithmically. If attention is bidirectional, each
    direction has half of the buckets.
    """
    count, first = (BUCKETS, 0) if causal else (BUCKETS // 2, (distance > 0) * (BUCKETS // 2))
    far = (-distance).clamp(min=0) if causal else distance.abs()
    exact = count // 2
    logarithmic = exact + (far.clamp(min=1) / exact).log() / math.log(FARTHEST / exact) * (count - exact)
    return first + torch.where(far < exact, far, logarithmic.long().clamp(max=count - 1))
