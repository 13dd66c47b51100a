"""Muon: the update of a matrix is its momentum with all singular values brought near 1 (Jordan et al. 2024).

`torch.optim.Muon` (torch 2.13) takes matrices alone, whole, and steps with gradients that are not numbers. So the rule is written here, and
a test compares it with that one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import AdamW

from components.core.errors import SesameError
from components.optimizers import parameter_groups
from components.optimizers.muon import config

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial x -> ax + bx^3 + cx^5, which takes singular values in (0, 1] to near 1."""
FUSED = {"query_key_value": 3, "key_value": 2}
"""Linear layers whose weight is several matrices, one above the other: each is made orthogonal by itself."""
GATES = {nn.LSTM: 4, nn.GRU: 3}
"""Of recurrent layers."""


def build(
    settings: config.Muon, module: nn.Module, layers: Sequence[nn.Module], distance: Callable[[str], int]
) -> "Muon":  # fmt: skip
    """As `components.optimizers.build`. Raises SesameError where the layers have no matrices."""
    matrices = {id(weight): count for layer in layers for weight, count in _matrices(layer) if weight.requires_grad}
    if not matrices:
        raise SesameError("optimizer muon: the model has no layers with matrices; take adamw")
    groups = parameter_groups(module, settings.learning_rate, settings.weight_decay, settings.layer_decay, distance)
    return Muon([part for group in groups for part in _divided(group, matrices, settings)], settings)


def _matrices(layer: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """The weights of a layer that are matrices, and how many each is made of."""
    counts = {id(weight): 1 for weight in layer.parameters() if weight.ndim == 2}
    for name, part in layer.named_modules():
        if isinstance(part, nn.Linear) and (count := FUSED.get(name.rpartition(".")[2])):
            counts[id(part.weight)] = count
        elif type(part) in GATES:
            gates = (weight for key, weight in part.named_parameters() if key.startswith(("weight_ih", "weight_hh")))
            counts |= {id(weight): GATES[type(part)] for weight in gates}
        linear = [own for own in part.children() if isinstance(own, nn.Linear)]
        # a gated feed-forward network: its first matrix has gate and value, and is twice as high as what the second one reads
        if len(linear) == 2 and linear[0].out_features == 2 * linear[1].in_features:
            counts[id(linear[0].weight)] = 2
    yield from ((weight, counts[id(weight)]) for weight in layer.parameters() if weight.ndim == 2)


def _divided(group: dict[str, Any], matrices: dict[int, int], settings: config.Muon) -> Iterator[dict[str, Any]]:
    """The matrices of a group, by how many each weight is made of, at their own rate; and what AdamW takes, for which `matrices` is 0."""
    for count in sorted({0, *matrices.values()}):
        if parameters := [each for each in group["params"] if matrices.get(id(each), 0) == count]:
            rate = group["full_lr"] * (settings.matrix_learning_rate / settings.learning_rate if count else 1)
            yield group | {"params": parameters, "lr": rate, "full_lr": rate, "matrices": count}


class Muon(AdamW):
    """One optimizer for both kinds of weights, so that a save has the state of all."""

    def __init__(self, groups: list[dict[str, Any]], settings: config.Muon):
        super().__init__(groups, betas=settings.betas, eps=settings.eps, fused=True)
        self.momentum, self.iterations = settings.momentum, settings.iterations

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        every = self.param_groups
        for group in every:
            for parameter in group["params"] if group["matrices"] else ():
                if parameter.grad is not None:
                    self._turn(parameter, group)
        self.param_groups = [group for group in every if not group["matrices"]]
        try:
            super().step()
        finally:
            self.param_groups = every

    def _turn(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Decay a matrix, and move it by its orthogonal update; not where `found_inf` says that a gradient is not a number."""
        if not (state := self.state[parameter]):
            # AdamW looks for a step in each state when it is loaded
            state |= {"step": torch.zeros((), dtype=torch.float32, device=parameter.device), "momentum": torch.zeros_like(parameter)}
        momentum = state["momentum"]
        bad = getattr(self, "found_inf", None)
        gradient = parameter.grad if bad is None else torch.where(bad > 0, 0.0, parameter.grad)
        mean = momentum.lerp(gradient, 1 - self.momentum)
        update, rate = gradient.lerp(mean, self.momentum), group["lr"]
        if bad is not None:
            mean, rate = torch.where(bad > 0, momentum, mean), torch.where(bad > 0, 0.0, rate)
        momentum.copy_(mean)
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.sub_(rate * self._orthogonal(update, group["matrices"]))

    def _orthogonal(self, update: Tensor, count: int) -> Tensor:
        """(count * rows, columns), as `update`. Sharded weights are put together first: the rule is one of whole matrices."""
        if isinstance(update, DTensor):
            whole = self._orthogonal(update.full_tensor(), count)
            return distribute_tensor(whole, update.device_mesh, update.placements)
        parts = [orthogonal(part, self.iterations) for part in update.chunk(count)]
        return torch.cat([part * math.sqrt(max(1.0, part.shape[0] / part.shape[1])) for part in parts])


def orthogonal(matrix: Tensor, iterations: int) -> Tensor:
    """(rows, columns) with its singular values near 1, by iterations of Newton and Schulz; in bfloat16 on a GPU."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x  # the products are square, and smaller so
    x = x / (x.norm() + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).to(matrix.dtype)
