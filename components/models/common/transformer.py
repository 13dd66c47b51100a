"""Transformer layers, shared by encoder and decoder (Vaswani et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from components.models.common.config import Activation, TransformerArchitecture
from components.models.common.dropout import Dropout, dropout
from components.models.common.positions import Positions
from components.models.contract import gather_positions


def norm(config: TransformerArchitecture, width: int | None = None) -> nn.Module:
    """Build the norm of an architecture, over hidden_size or another width."""
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
    """Linear, activation, linear; the first matrix of a gated activation has gate and value."""
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


def ungated(activation: Activation) -> nn.Module:
    """Build an activation without its gate, as in BERT's head."""
    module = ACTIVATIONS[activation]()
    return module.activation if isinstance(module, Gated) else module


SHORT = 256
"""Longest sequence for which a CPU computes attention in bf16 by plain matrix products."""


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, probability: float) -> Tensor:
    """Heads (batch, heads, length, head) -> the same shape, with dropout on the attention weights.

    Uses SDPA except for short bf16 sequences on a CPU: its kernels convert them to 32 bit and back, which makes attention in
    training 2 to 4 times slower than plain matrix products.
    """
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

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool, positions: Positions, only: Tensor | None = None) -> Tensor:
        """x (batch, length, hidden) -> the same shape; mask (batch, 1 or heads, 1 or length, length), True where a key is visible,
        or added to the scores. `only` (batch, targets): the positions whose output is wanted -> (batch, targets, hidden)."""
        batch, length, _ = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, head)
        query, key = positions.rotate(query), positions.rotate(key)
        if only is not None:
            query = gather_positions(query, only[:, None].expand(-1, self.num_heads, -1))
            if mask is not None and mask.shape[2] > 1:  # a row for each query
                mask = gather_positions(mask.expand(batch, -1, -1, -1), only[:, None].expand(-1, mask.shape[1], -1))
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        attended = attention(query, key, value, mask, causal and mask is None, self.dropout if self.training else 0.0)
        return self.output(attended.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Attention and feed-forward network, each with a residual connection; norms before (`norm_first`) or after them."""

    def __init__(self, config: TransformerArchitecture):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = SelfAttention(config)
        self.attention_norm = norm(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, positions: Positions, mask: Tensor | None = None, causal: bool = False, only: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """x (batch, length, hidden) -> the same shape; with `only`, positions (batch, targets) in a text that is read on
        both sides, (batch, targets, hidden): all but queries, keys and values is computed for these alone."""
        residual = x if only is None else gather_positions(x, only)
        if self.norm_first:
            x = residual + self.dropout(self.attention(self.attention_norm(x), mask, causal, positions, only))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(residual + self.dropout(self.attention(x, mask, causal, positions, only)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """Initialise with normal weights and zero biases; norms stay at one (Devlin et al. 2019; Radford et al. 2019)."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=std)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def length_mask(lengths: Tensor, length: int) -> Tensor | None:
    """lengths (batch,) -> (batch, 1, 1, length), True for real tokens; None without padding, for SDPA's fast path."""
    positions = torch.arange(length, device=lengths.device)
    mask = positions < lengths[:, None]
    # evaluated on a CPU only: reading the value from a GPU would wait for it, and a compiled graph would break
    unpadded = lengths.device.type == "cpu" and not torch.compiler.is_compiling() and bool(mask.all())
    return None if unpadded else mask[:, None, None, :]


def share(blocks: nn.ModuleList, names: Sequence[str], groups: int) -> int:
    """Make all layers of a group use these modules of its first layer, so that they are saved and trained once.

    `groups` is at most the number of layers. Return the layers of a group.
    """
    size = max(1, len(blocks) // groups)
    for i, block in enumerate(blocks):
        for name in names if i % size else ():
            delattr(block, name)
            block.__dict__[name] = getattr(blocks[i - i % size], name)  # an attribute that torch does not register as a module
    return size


SUBLAYERS = {"attention": ("attention", "attention_norm"), "feed_forward": ("feed_forward", "feed_forward_norm")}
"""The modules of a TransformerBlock."""


def sublayers(blocks: nn.ModuleList) -> list[tuple[nn.Module, str]]:
    """Return the output projections of attention and feed-forward networks, as (module, attribute).

    Adapters follow them, before the residual connection (Houlsby et al. 2019, figure 2).
    """
    projections = [projection for block in blocks for projection in ((block.attention, "output"), (block.feed_forward, "2"))]
    return list(dict.fromkeys(projections))  # layers may share modules
