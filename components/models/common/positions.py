"""Where a token stands: positions that are learned, sinusoidal, rotary or relative."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from components.models.common.config import TransformerArchitecture


class Positions(nn.Module):
    """What tells a model where a token stands:
    vectors to be added to the embedding, a rotation of queries and keys, or a bias on attention."""

    def __init__(self, config: TransformerArchitecture, causal: bool):
        super().__init__()
        self.kind, self.causal, head = config.positions, causal, config.hidden_size // config.num_heads
        places = torch.arange(config.max_length)
        if self.kind == "sinusoidal":
            angles = places[:, None] / 10_000 ** (torch.arange(0, config.hidden_size, 2) / config.hidden_size)
            table = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, : config.hidden_size]
            self.register_buffer("table", table * 0.02 * math.sqrt(2), persistent=False)  # as large as learned ones at first
        elif self.kind == "rotary":
            angles = places[:, None] / 10_000 ** (torch.arange(0, head, 2) / head)
            self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)  # (max_length, head)
            self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)
        elif self.kind == "relative":
            self.bias = nn.Embedding(BUCKETS, config.num_heads)
            self.register_buffer("buckets", bucket(places[None, :] - places[:, None], causal), persistent=False)
        elif self.kind == "alibi":
            self.register_buffer("slopes", slopes(config.num_heads)[:, None, None], persistent=False)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (batch, length, hidden), positions (length,) or (batch, length) -> the same shape as x."""
        return x + embedding(positions, self.table) if self.kind == "sinusoidal" else x

    def rotate(self, heads: Tensor) -> Tensor:
        """Queries or keys (batch, heads, length, head) turned by their place."""
        if self.kind != "rotary":
            return heads
        length, (first, second) = heads.shape[2], heads.chunk(2, 3)
        return heads * self.cos[:length].to(heads.dtype) + torch.cat([-second, first], 3) * self.sin[:length].to(heads.dtype)

    def mask(self, mask: Tensor | None, length: int) -> Tensor | None:
        """A mask (batch, 1, 1 or length, length), True where a key may be seen
        -> that, or with a bias what is to be added to the scores."""
        if self.kind not in ("relative", "alibi"):
            return mask
        if self.kind == "relative":
            bias = self.bias(self.buckets[:length, :length]).permute(2, 0, 1)[None]  # (1, heads, length, length)
        else:
            places = torch.arange(length, device=self.slopes.device)
            bias = (self.slopes * -(places[None, :] - places[:, None]).abs())[None]
        if mask is None and self.causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=bias.device).tril()
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


def slopes(heads: int) -> Tensor:
    """(heads,): 2^(-8/n), 2^(-16/n), ... for n heads a power of two; else those of the power below, and every other one of that above
    (Press et al. 2022, section 3 and their code)."""
    below = 2 ** int(math.log2(heads))
    own = [2 ** (-8 * (i + 1) / below) for i in range(below)]
    between = [2 ** (-8 * (i + 1) / (2 * below)) for i in range(0, 2 * below, 2)]
    return torch.tensor((own + between)[:heads])


BUCKETS, FARTHEST = 32, 128
"""Of relative positions, and the distance from which on all share the last one (T5)."""


def bucket(distance: Tensor, causal: bool) -> Tensor:
    """Key's place less the query's -> bucket: half of them for each small distance, half growing with its logarithm
    (Raffel et al. 2020, section 2.1).

    Both directions share the buckets where attention goes both ways.
    """
    count, first = (BUCKETS, 0) if causal else (BUCKETS // 2, (distance > 0) * (BUCKETS // 2))
    far = (-distance).clamp(min=0) if causal else distance.abs()
    exact = count // 2
    grown = exact + (far.clamp(min=1) / exact).log() / math.log(FARTHEST / exact) * (count - exact)
    return first + torch.where(far < exact, far, grown.long().clamp(max=count - 1))
