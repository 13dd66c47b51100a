"""Muon: the update of a matrix is its momentum with all singular values near 1 (Jordan et al. 2024).

`torch.optim.Muon` (torch 2.13) accepts only matrices, only unsharded ones, and steps with non-finite gradients. Therefore the update is
implemented here, and a test compares it with torch's.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import AdamW

from components.core import compute
from components.core.errors import SesameError
from components.optimizers import parameter_groups
from components.optimizers.muon import config

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial ax + bx^3 + cx^5, which maps singular values in (0, 1] to values near 1."""
FUSED = {"query_key_value": 3, "key_value": 2}
"""Linear layers whose weight consists of several matrices, stacked by rows: each is orthogonalised separately."""
TOGETHER = 2**22
"""Numbers in the weights of one shape that are updated together. Of small matrices the calls take longer than the products; all updates
of a large model would take its memory once more."""
GATES = {nn.LSTM: 4, nn.GRU: 3}
"""Gates of recurrent layers, whose matrices are stacked as well."""


def build(
    settings: config.Muon, module: nn.Module, layers: Sequence[nn.Module], distance: Callable[[str], int]
) -> "Muon":  # fmt: skip
    """Build Muon as `components.optimizers.build` does. Raise SesameError if the layers have no matrices."""
    matrices = {id(weight): count for layer in layers for weight, count in _matrices(layer) if weight.requires_grad}
    if not matrices:
        raise SesameError("optimizer muon: the model has no layers with matrices; take adamw")
    groups = parameter_groups(module, settings.learning_rate, settings.weight_decay, settings.layer_decay, distance)
    return Muon([subgroup for group in groups for subgroup in _split_group(group, matrices, settings)], settings)


def _matrices(layer: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """Yield the weights of a layer that are 2-d, and the number of matrices in each."""
    weights = [weight for weight in layer.parameters() if weight.ndim == 2]
    counts = {id(weight): 1 for weight in weights}
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear) and (count := FUSED.get(name.rpartition(".")[2])):
            counts[id(module.weight)] = count
        elif type(module) in GATES:
            gates = (weight for key, weight in module.named_parameters() if key.startswith(("weight_ih", "weight_hh")))
            counts |= {id(weight): GATES[type(module)] for weight in gates}
        linear = [child for child in module.children() if isinstance(child, nn.Linear)]
        # a gated feed-forward network: the first weight has gate and value, and so twice the rows that the second one reads
        if len(linear) == 2 and linear[0].out_features == 2 * linear[1].in_features:
            counts[id(linear[0].weight)] = 2
    yield from ((weight, counts[id(weight)]) for weight in weights)


def _split_group(group: dict[str, Any], matrices: dict[int, int], settings: config.Muon) -> Iterator[dict[str, Any]]:
    """Split a group by the number of matrices in a weight; `matrices` is 0 for the weights that AdamW trains, at its rate."""
    for count in sorted({0, *matrices.values()}):
        if parameters := [parameter for parameter in group["params"] if matrices.get(id(parameter), 0) == count]:
            rate = group["full_lr"] * (settings.matrix_learning_rate / settings.learning_rate if count else 1)
            yield group | {"params": parameters, "lr": rate, "full_lr": rate, "matrices": count}


class Muon(AdamW):
    """One optimizer for both kinds of weights, so that a checkpoint has the state of all."""

    def __init__(self, groups: list[dict[str, Any]], settings: config.Muon):
        super().__init__(groups, betas=settings.betas, eps=settings.eps, fused=True)
        self.momentum, self.iterations = settings.momentum, settings.iterations

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        groups = self.param_groups
        by_shape: dict[tuple[int, int], list[tuple[Tensor, dict[str, Any]]]] = defaultdict(list)
        for group in groups:
            for parameter in group["params"] if group["matrices"] else ():
                if parameter.grad is not None:
                    by_shape[parameter.shape[0] // group["matrices"], parameter.shape[1]].append((parameter, group))
        for shape, weights in by_shape.items():
            together = max(1, TOGETHER // weights[0][0].numel())
            for first in range(0, len(weights), together):
                self._update_matrices(weights[first : first + together], *shape)
        self.param_groups = [group for group in groups if not group["matrices"]]
        try:
            super().step()
        finally:
            self.param_groups = groups

    def _update_matrices(self, weights: list[tuple[Tensor, dict[str, Any]]], rows: int, columns: int) -> None:
        """Decay weights and add their orthogonalised updates, unless `found_inf` reports a non-finite gradient.

        A weight is (count * rows, columns). A sharded update is gathered first: complete matrices are needed.
        """
        rates, updates = zip(*(self._momentum(parameter, group["lr"]) for parameter, group in weights), strict=True)
        complete = [update.full_tensor() if isinstance(update, DTensor) else update for update in updates]
        matrices = orthogonal(torch.cat([update.view(-1, rows, columns) for update in complete]), self.iterations)
        matrices *= math.sqrt(max(1.0, rows / columns))
        parts = matrices.split([group["matrices"] for _, group in weights])
        for (parameter, group), rate, part in zip(weights, rates, parts, strict=True):
            change = part.reshape(parameter.shape)
            if isinstance(parameter, DTensor):
                change = distribute_tensor(change, parameter.device_mesh, parameter.placements)
            parameter.mul_(1 - rate * group["weight_decay"])
            parameter.sub_(rate * change)

    def _momentum(self, parameter: Tensor, rate: float) -> tuple[float | Tensor, Tensor]:
        """Move a weight's momentum by its gradient. Return the rate, 0 where the gradient is not finite, and Nesterov's update."""
        if not (state := self.state[parameter]):
            # AdamW expects a step in each state when it loads them
            state |= {"step": torch.zeros((), dtype=torch.float32, device=parameter.device), "momentum": torch.zeros_like(parameter)}
        momentum = state["momentum"]
        bad = getattr(self, "found_inf", None)
        gradient = parameter.grad if bad is None else torch.where(bad > 0, 0.0, parameter.grad)
        mean = momentum.lerp(gradient, 1 - self.momentum)
        update = gradient.lerp(mean, self.momentum)
        if bad is not None:
            mean, rate = torch.where(bad > 0, momentum, mean), torch.where(bad > 0, 0.0, rate)
        momentum.copy_(mean)
        return rate, update


def orthogonal(matrices: Tensor, iterations: int) -> Tensor:
    """matrices (count, rows, columns) -> the same with singular values near 1, by Newton-Schulz iterations; computed in bfloat16 where
    the hardware multiplies it."""
    x = matrices.bfloat16() if matrices.is_cuda or _cpu_multiplies_bf16() else matrices.float()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x  # which makes the square products smaller
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


@cache
def _cpu_multiplies_bf16() -> bool:
    """Whether this CPU trains in bf16 by default. There the products of 32 bits took a third of a small model's step."""
    return compute.precision("auto", "cpu") == "bf16-mixed"
