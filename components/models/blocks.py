"""The Transformer's parts, shared by encoder and decoder (Vaswani et al. 2017)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from components.params import Activation


class SelfAttention(nn.Module):
    """Multi-head self-attention through SDPA."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """x (batch, length, hidden); mask (batch, 1, 1 or length, length), True where a key may be seen -> (batch, length, hidden)."""
        batch, length, hidden = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, hidden // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, hidden / heads)
        seen = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal and mask is None, dropout_p=self.dropout if self.training else 0.0
        )
        return self.output(seen.transpose(1, 2).reshape(batch, length, hidden))


def gelu(activation: Activation) -> nn.GELU:
    return nn.GELU("tanh" if activation == "gelu_tanh" else "none")


class Block(nn.Module):
    """Attention and feed-forward, each with a residual; LayerNorm before (`norm_first`, GPT-2) or after (BERT) them."""

    def __init__(
        self, hidden_size: int, num_heads: int, intermediate_size: int, dropout: float,
        norm_first: bool, eps: float, activation: Activation,
    ):  # fmt: skip
        super().__init__()
        self.norm_first = norm_first
        self.attention = SelfAttention(hidden_size, num_heads, dropout)
        self.attention_norm = nn.LayerNorm(hidden_size, eps)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_size, intermediate_size), gelu(activation), nn.Linear(intermediate_size, hidden_size)
        )  # fmt: skip
        self.feed_forward_norm = nn.LayerNorm(hidden_size, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """x (batch, length, hidden) -> the same shape."""
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), mask, causal))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, causal)))
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
