"""Quantisation of weights."""

import copy
from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
from torch.nn.utils import parametrize

from components import params

GROUP = 32
"""Weights with the same scale at 4 bits."""


def int8(weight: Tensor) -> Tensor:
    """Each row in 256 steps, as in torch's integer kernels, (out, in)."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127.5
    return (weight / scale).round().clamp(-128, 127) * scale


def int4(weight: Tensor) -> Tensor:
    """Each group of 32 in a row in 15 steps, (out, in)."""
    grouped = nn.functional.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scale = grouped.abs().amax(2, keepdim=True).clamp(min=1e-12) / 7
    return ((grouped / scale).round().clamp(-7, 7) * scale).flatten(1)[:, : weight.shape[1]]


def ternary(weight: Tensor) -> Tensor:
    """Each row of -a, 0 and a: weights below .7 of the mean size become 0, a is the mean size of the others (Li and Liu 2016, equation 6;
    theirs is one per matrix)."""
    size = weight.abs()
    kept = size > 0.7 * size.mean(1, keepdim=True)
    return weight.sign() * kept * (size * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)


ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {"int8": int8, "int4": int4, "ternary": ternary}
BITS = {"int8": 8, "int4": 4, "ternary": 2}
"""Bits of a packed weight, without the scales: 32 bits per row, at 4 bits 16 bits per group."""


class Rounding(nn.Module):
    """A rounded weight; the gradient is that without rounding (straight-through estimator, Bengio et al. 2013)."""

    def __init__(self, weights: str):
        super().__init__()
        self.rounded = ROUNDED[weights]

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.rounded(weight) - weight).detach()


def matrices(module: nn.Module) -> list[nn.Linear]:
    """The linear layers to quantise: those of the model's layers and of the head, each once, even if layers share them."""
    modules = [*module.model.stacked(), module.head]
    return list(dict.fromkeys(child for parent in modules for child in parent.modules() if isinstance(child, nn.Linear)))


def simulate(module: nn.Module, how: params.Quantised) -> None:
    """Round the weights in every forward pass (quantisation-aware training)."""
    for linear in matrices(module):
        parametrize.register_parametrization(linear, "weight", Rounding(how.weights))


def convert(module: nn.Module, how: params.Quantised) -> nn.Module:
    """The module with rounded weights in place of the parametrised ones; for int8 another module with integer kernels for a CPU."""
    by_torch = how.weights == "int8"  # torch rounds the weights, which must not be rounded already
    for linear in matrices(module):
        if not parametrize.is_parametrized(linear):
            parametrize.register_parametrization(linear, "weight", Rounding(how.weights))
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=not by_torch)
    if not by_torch:
        return module
    # torch's kernels: torchao's need a compiled graph to be faster than 32 bits on a CPU (measured in docs/green.md). Modules that
    # layers share are a single module in the copy, too
    rounded = {name: per_channel_dynamic_qconfig for name in names(module)}
    return quantize_dynamic(copy.deepcopy(module), rounded)


def depends_on_batch(how: params.Quantised | None) -> bool:
    """Whether an answer depends on the rest of its batch: torch scales activations by the largest value of the batch, including
    padding."""
    return how is not None and how.weights == "int8"


def names(module: nn.Module) -> list[str]:
    """The names of `matrices`."""
    chosen = set(map(id, matrices(module)))
    return [name for name, child in module.named_modules() if id(child) in chosen]


def size(weights: Iterable[nn.Parameter], module: nn.Module, how: params.Quantised | None) -> int:
    """Bytes of these weights of a module, those of `matrices` packed. Call it before `convert`."""
    weights = list(weights)
    total, counted = sum(parameter.numel() * parameter.element_size() for parameter in weights), set(map(id, weights))
    for linear in matrices(module) if how else ():
        if not counted & set(map(id, linear.parameters())):  # as of a decoder where only the encoder's states are read
            continue
        scales = -(-linear.in_features // GROUP) * 2 if how.weights == "int4" else 4
        packed = linear.out_features * scales + (BITS[how.weights] * linear.weight.numel() + 7) // 8
        total += packed - linear.weight.element_size() * linear.weight.numel()
    return total
