"""Weights in fewer bits."""

import copy
from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
from torch.nn.utils import parametrize

from components import params

GROUP = 32
"""Weights that share a scale at 4 bits."""


def int8(weight: Tensor) -> Tensor:
    """Each row in 256 steps, as torch's integer kernels have them, (out, in)."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127.5
    return (weight / scale).round().clamp(-128, 127) * scale


def int4(weight: Tensor) -> Tensor:
    """Each group of 32 in a row in 15 steps, (out, in)."""
    grouped = nn.functional.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scale = grouped.abs().amax(2, keepdim=True).clamp(min=1e-12) / 7
    return ((grouped / scale).round().clamp(-7, 7) * scale).flatten(1)[:, : weight.shape[1]]


def ternary(weight: Tensor) -> Tensor:
    """Each row of -a, 0 and a: what is smaller than .7 of the mean size becomes 0, a is the mean of the rest (Li and Liu 2016, equation 6;
    theirs is one a matrix)."""
    size = weight.abs()
    kept = size > 0.7 * size.mean(1, keepdim=True)
    return weight.sign() * kept * (size * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)


ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {"int8": int8, "int4": int4, "ternary": ternary}
BITS = {"int8": 8, "int4": 4, "ternary": 2}
"""Of a weight, as packed; beside them a scale of 32 bits a row, at 4 bits one of 16 a group."""


class Rounding(nn.Module):
    """A weight as it will be; the gradient goes by as if nothing had been rounded (Bengio et al. 2013)."""

    def __init__(self, weights: str):
        super().__init__()
        self.rounded = ROUNDED[weights]

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.rounded(weight) - weight).detach()


def matrices(module: nn.Module) -> list[nn.Linear]:
    """What is rounded: linear layers of the model's layers and of the head, each once, wherever they are shared."""
    parts = [*module.model.stacked(), module.head]
    return list(dict.fromkeys(part for own in parts for part in own.modules() if isinstance(part, nn.Linear)))


def begin(module: nn.Module, how: params.Quantised) -> None:
    """Round the weights in every forward pass from now on."""
    for linear in matrices(module):
        parametrize.register_parametrization(linear, "weight", Rounding(how.weights))


def end(module: nn.Module, how: params.Quantised) -> nn.Module:
    """The module with rounded weights, which are then plain ones; with int8 another one that multiplies integers, on a CPU."""
    whole = how.weights == "int8"  # torch rounds them itself, and what is rounded already would be rounded otherwise
    for linear in matrices(module):
        if not parametrize.is_parametrized(linear):
            parametrize.register_parametrization(linear, "weight", Rounding(how.weights))
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=not whole)
    if not whole:
        return module
    # torch's own kernels: torchao's need a compiled graph to be faster than 32 bits on a CPU (measured in docs/green.md). Parts that
    # layers share are one module in the copy, too
    rounded = {part: per_channel_dynamic_qconfig for part in names(module)}
    return quantize_dynamic(copy.deepcopy(module), rounded)


def by_batch(how: params.Quantised | None) -> bool:
    """Whether an answer depends on what is read beside it: torch rounds what goes into a product in steps of the
    largest number of the whole batch, padding included."""
    return how is not None and how.weights == "int8"


def names(module: nn.Module) -> list[str]:
    """Of `matrices`."""
    chosen = set(map(id, matrices(module)))
    return [name for name, part in module.named_modules() if id(part) in chosen]


def size(weights: Iterable[nn.Parameter], module: nn.Module, how: params.Quantised | None) -> int:
    """Bytes of these weights of a module, packed, those that it rounds in fewer bits. Before `end`."""
    total = sum(part.numel() * part.element_size() for part in weights)
    for linear in matrices(module) if how else ():
        scales = -(-linear.in_features // GROUP) * 2 if how.weights == "int4" else 4
        packed = linear.out_features * scales + (BITS[how.weights] * linear.weight.numel() + 7) // 8
        total += packed - linear.weight.element_size() * linear.weight.numel()
    return total
