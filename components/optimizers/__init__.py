"""Learning-rate schedules, and which weights learn at which rate."""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from components import params


def factor(config: params.Optimizer, progress: float) -> float:
    """The share of the full learning rate at `progress` in [0, 1] of the budget."""
    left = max(0.0, 1 - progress)
    if config.schedule == "slanted_triangular":
        rising = progress / config.warmup if progress < config.warmup else left / (1 - config.warmup)
        return (1 + 31 * rising) / 32
    if progress < config.warmup:
        return progress / config.warmup
    if config.schedule == "linear":
        return left / (1 - config.warmup)
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(config.warmup, 1e-9) / max(progress, 1e-9))
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (1 - left / (1 - config.warmup))))
    if config.schedule == "wsd":
        return min(1.0, left / config.decay)
    return 1.0


def parameter_groups(
    module: nn.Module, learning_rate: float, weight_decay: float, layer_decay: float = 1.0, distance: Callable[[str], int] = lambda _: 0
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
