"""Optimizers and learning-rate schedules by name.

To add an optimizer, add a folder here and its name in `OPTIMIZERS` of `components.params.models`. The folder has `config.py` with the
settings, an OptimizerBlock, as `Optimizer` (without torch), and `optimizer.py` with `build`, as below, whose optimizer must

- take the learning rate of each group from `lr`, which the training sets before each step to a share of the group's `full_lr`;
- change neither weights nor state if its attribute `found_inf`, a tensor on the device, is above 0, without reading the value:
  that would wait for all pending work of the device;
- have all its state in `state_dict`, so that a resumed training gives the same bits;
- handle sharded weights (`DTensor`, under `strategy: fsdp`) if it needs more than one element at a time.
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
    """Build the optimizer of the trainable weights of `module`.

    `layers` are the stacked layers, for an optimizer that treats their matrices differently; `distance` as in `parameter_groups`.
    """
    return import_module(f"components.optimizers.{settings.name}.optimizer").build(settings, module, layers, distance)


def factor(config: OptimizerBlock, progress: float) -> float:
    """Return the share of the full learning rate at `progress` in [0, 1] of the budget."""
    return import_module(f"components.optimizers.schedules.{config.schedule}").share(config, progress)


def parameter_groups(
    module: "nn.Module", learning_rate: float, weight_decay: float, layer_decay: float = 1.0, distance: Callable[[str], int] = lambda _: 0
) -> list[dict[str, Any]]:  # fmt: skip
    """Group the trainable weights by learning rate and weight decay: matrices are decayed, 1-d parameters (biases, norms) are not.

    `layer_decay` multiplies the rate of each layer below the top one once more. `distance` maps a parameter's name to the
    number of layers from the heads down to it: 0 for a head, 1 for the top layer. Schedules take a share of a group's `full_lr`.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            rate = learning_rate * layer_decay ** max(0, distance(name) - 1)
            groups.setdefault((rate, weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    return [{"params": weights, "lr": rate, "full_lr": rate, "weight_decay": decay} for (rate, decay), weights in groups.items()]
