"""The Transformer's parts, shared by encoder and decoder (Vaswani et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from components.models.common.config import Activation, TransformerArchitecture
from components.models.common.dropout import Dropout, dropout
from components.models.common.positions import Positions


def norm(config: TransformerArchitecture, width: int | None = None) -> nn.Module:
    """The norm that an architecture names, over hidden_size or another width."""
    width = width or config.hidden_size
    if config.norm == "rms_norm":
        return nn.RMSNorm(width, config.layer_norm_eps)
    return nn.LayerNorm(width, config.layer_norm_eps, bias=config.biases)


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
    return nn.Sequential(
        nn.Linear(config.hidden_size, inner, config.biases),
        activation,
        nn.Linear(config.intermediate_size, config.hidden_size, config.biases),
    )


ACTIVATIONS = {
    "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU("tanh"), "relu": nn.ReLU,
    "geglu": lambda: Gated(nn.GELU()), "swiglu": lambda: Gated(nn.SiLU()),
}  # fmt: skip


def plain(activation: Activation) -> nn.Module:
    """An activation where nothing can be gated, as in BERT's head: that inside the gate."""
    module = ACTIVATIONS[activation]()
    return module.activation if isinstance(module, Gated) else module


SHORT = 256
"""Tokens up to which a CPU attends in bf16 by plain matrix products."""


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, probability: float) -> Tensor:
    """Heads (batch, heads, length, head) -> the same shape, with dropout on the weights. Through SDPA but for one case: in bf16 its CPU
    kernels turn all to 32 bit and back, and a training step's attention takes 2 to 4 times as long as the plain one."""
    if query.device.type != "cpu" or query.dtype != torch.bfloat16 or query.shape[2] > SHORT or torch.compiler.is_compiling():
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=probability)
    scores = ((query * query.shape[3] ** -0.5) @ key.transpose(2, 3)).float()
    if causal:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(3).to(value.dtype)
    return (dropout(weights, probability) if probability else weights) @ value


class SelfAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, config: TransformerArchitecture):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.dropout
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.heads_size, config.biases)
        self.output = nn.Linear(config.heads_size, config.hidden_size, config.biases)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool, positions: Positions) -> Tensor:
        """x (batch, length, hidden) -> the same shape;
        mask (batch, 1 or heads, 1 or length, length), True where a key may be seen, or to be added."""
        batch, length, _ = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, head)
        query, key = positions.rotate(query), positions.rotate(key)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        seen = attention(query, key, value, mask, causal and mask is None, self.dropout if self.training else 0.0)
        return self.output(seen.transpose(1, 2).reshape(batch, length, -1))


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each with a residual; the norm before (`norm_first`) or after them."""

    def __init__(self, config: TransformerArchitecture):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = SelfAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, positions: Positions, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """x (batch, length, hidden) -> the same shape."""
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), mask, causal, positions))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, causal, positions)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


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
    # asked on a CPU only: a GPU would have to be waited for, and a compiled graph would break
    whole = lengths.device.type == "cpu" and not torch.compiler.is_compiling() and bool(mask.all())
    return None if whole else mask[:, None, None, :]


def share(blocks: nn.ModuleList, parts: Sequence[str], groups: int) -> None:
    """Have all layers of a group use these parts of its first one, which alone has them as its own: they are saved and trained once.
    There are no more groups than layers."""
    size = max(1, len(blocks) // groups)
    for i, block in enumerate(blocks):
        for name in parts if i % size else ():
            delattr(block, name)
            block.__dict__[name] = getattr(blocks[i - i % size], name)  # no part of this layer to torch, and found by its name


PARTS = {"attention": ("attention", "attention_norm"), "feed_forward": ("feed_forward", "feed_forward_norm")}
"""Of a block."""


def sublayers(blocks: nn.ModuleList) -> list[tuple[nn.Module, str]]:
    """Where adapters go: behind attention and feed-forward of each block, before the residual (Houlsby et al. 2019, figure 2)."""
    places = [place for block in blocks for place in ((block.attention, "output"), (block.feed_forward, "2"))]
    return list(dict.fromkeys(places))  # layers may share
