"""The Transformer's parts, shared by encoder and decoder (Vaswani et al. 2017)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from components.params import Activation, TransformerArchitecture


def norm(config: TransformerArchitecture) -> nn.Module:
    """The norm that an architecture names, over hidden_size."""
    return {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}[config.norm](config.hidden_size, config.layer_norm_eps)


class Gated(nn.Module):
    """(..., 2 * width) -> (..., width): one half through the activation, times the other (Shazeer 2020)."""

    def __init__(self, activation: nn.Module):
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        gate, value = x.chunk(2, -1)
        return self.activation(gate) * value


def feed_forward(config: TransformerArchitecture) -> nn.Sequential:
    """Linear, activation, linear; a gated one's first matrix has both halves."""
    activation = ACTIVATIONS[config.activation]()
    inner = config.intermediate_size * (2 if isinstance(activation, Gated) else 1)
    return nn.Sequential(nn.Linear(config.hidden_size, inner), activation, nn.Linear(config.intermediate_size, config.hidden_size))


ACTIVATIONS = {
    "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU("tanh"), "relu": nn.ReLU, "geglu": lambda: Gated(nn.GELU()), "swiglu": lambda: Gated(nn.SiLU()),
}  # fmt: skip


def plain(activation: Activation) -> nn.Module:
    """An activation where nothing can be gated, as in BERT's head: that inside the gate."""
    found = ACTIVATIONS[activation]()
    return found.activation if isinstance(found, Gated) else found


class Positions(nn.Module):
    """What tells a model where a token stands: vectors to be added to the embedding, a rotation of queries and keys, or a bias on attention."""

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
        """A mask (batch, 1, 1 or length, length), True where a key may be seen -> that, or with a bias what is to be added to the scores."""
        if self.kind != "relative":
            return mask
        bias = self.bias(self.buckets[:length, :length]).permute(2, 0, 1)[None]  # (1, heads, length, length)
        if mask is None and self.causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=bias.device).tril()
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


BUCKETS, FARTHEST = 32, 128
"""Of relative positions, and the distance from which on all share the last one (T5)."""


def bucket(distance: Tensor, causal: bool) -> Tensor:
    """Key's place less the query's -> bucket: half of them for each small distance, half growing with its logarithm (Raffel et al. 2020, section 2.1).

    Both directions share the buckets where attention goes both ways.
    """
    count, first = (BUCKETS, 0) if causal else (BUCKETS // 2, (distance > 0) * (BUCKETS // 2))
    far = (-distance).clamp(min=0) if causal else distance.abs()
    exact = count // 2
    grown = exact + (far.clamp(min=1) / exact).log() / math.log(FARTHEST / exact) * (count - exact)
    return first + torch.where(far < exact, far, grown.long().clamp(max=count - 1))


class SelfAttention(nn.Module):
    """Multi-head self-attention through SDPA."""

    def __init__(self, config: TransformerArchitecture):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.dropout
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool, positions: Positions) -> Tensor:
        """x (batch, length, hidden); mask (batch, 1 or heads, 1 or length, length), True where a key may be seen, or to be added -> (batch, length, hidden)."""
        batch, length, hidden = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, hidden // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, hidden / heads)
        query, key = positions.rotate(query), positions.rotate(key)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        seen = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal and mask is None, dropout_p=self.dropout if self.training else 0.0
        )
        return self.output(seen.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    """Attention and feed-forward, each with a residual; the norm before (`norm_first`) or after them."""

    def __init__(self, config: TransformerArchitecture):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = SelfAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, positions: Positions, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """x (batch, length, hidden) -> the same shape."""
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), mask, causal, positions))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, causal, positions)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Adapter(nn.Module):
    """A bottleneck with a residual, next to the identity at first (Houlsby et al. 2019, section 2.1)."""

    def __init__(self, width: int, bottleneck: int):
        super().__init__()
        self.down, self.up = nn.Linear(width, bottleneck), nn.Linear(bottleneck, width)
        for part in (self.down, self.up):
            nn.init.trunc_normal_(part.weight, std=1e-3)
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(nn.functional.gelu(self.down(x)))


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """Normal weights, zero biases, LayerNorm at one (Devlin et al. 2019; Radford et al. 2019)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


def length_mask(lengths: Tensor, length: int) -> Tensor | None:
    """lengths (batch,) -> (batch, 1, 1, length), True on real tokens; None when nothing is padded, for SDPA's fast path."""
    positions = torch.arange(length, device=lengths.device)
    mask = positions < lengths[:, None]
    return None if lengths.device.type == "cpu" and bool(mask.all()) else mask[:, None, None, :]
