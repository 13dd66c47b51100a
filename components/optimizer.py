"""Learning-rate schedules and the optimizer."""

import math

from torch import nn
from torch.optim import AdamW

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
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (1 - left / (1 - config.warmup))))
    if config.schedule == "wsd":
        return min(1.0, left / config.decay)
    return 1.0


def adamw(
    module: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> AdamW:  # fmt: skip
    """Fused AdamW over the trainable weights in two groups: matrices are decayed, biases, norms and other 1-d parameters are not."""
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [own for own in trainable if own.ndim > 1], "weight_decay": weight_decay},
        {"params": [own for own in trainable if own.ndim <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=learning_rate, betas=betas, eps=eps, fused=True)
