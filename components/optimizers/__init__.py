"""Optimizers and schedules, found by name.

One more optimizer is a folder here and its name in `OPTIMIZERS` of `components.params.models`. In the folder: `config.py`
with its settings, an OptimizerBlock, as `Optimizer` (no torch), and `optimizer.py` with `build`, as the one below, whose optimizer must

- take the rate of each group from its `lr`, which the training sets before each step to a share of the group's `full_lr`;
- leave weights and state as they are where its attribute `found_inf`, a tensor on the device, is above 0, and not ask the device for
  its value: reading a value waits for all that is under way;
- have all its state in `state_dict`, so that a resumed training ends with the same bits;
- work on weights that are sharded (`DTensor`, under `strategy: fsdp`), where it needs more than one element at a time.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from components.optimizers.config import OptimizerBlock

if TYPE_CHECKING:  # settings of optimizers are read where nothing is trained
    import torch
    from torch import nn


def build(
    settings: OptimizerBlock, module: "nn.Module", layers: "Sequence[nn.Module]", distance: Callable[[str], int]
) -> "torch.optim.Optimizer":  # fmt: skip
    """Of the trainable weights of `module`. `layers` are those that are stacked, for an optimizer that treats their matrices differently;
    `distance` as in `parameter_groups`."""
    return import_module(f"components.optimizers.{settings.name}.optimizer").build(settings, module, layers, distance)


def factor(config: OptimizerBlock, progress: float) -> float:
    """The share of the full learning rate at `progress` in [0, 1] of the budget."""
    return import_module(f"components.optimizers.schedules.{config.schedule}").share(config, progress)


def parameter_groups(
    module: "nn.Module", learning_rate: float, weight_decay: float, layer_decay: float = 1.0, distance: Callable[[str], int] = lambda _: 0
) -> list[dict[str, Any]]:  # fmt: skip
    """Trainable weights: matrices are decayed, biases, norms and other 1-d parameters are not. With `layer_decay` those of each layer below
    the top one learn so many times slower; `distance` says of a parameter by its name how far below the heads it stands, 0 for them and 1
    for the top layer. Schedules take a share of each group's `full_lr`."""
    parts: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            rate = learning_rate * layer_decay ** max(0, distance(name) - 1)
            parts.setdefault((rate, weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    return [{"params": own, "lr": rate, "full_lr": rate, "weight_decay": decay} for (rate, decay), own in parts.items()]
