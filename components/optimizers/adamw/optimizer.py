"""AdamW."""

from collections.abc import Callable, Sequence

from torch import nn
from torch.optim import AdamW

from components.optimizers import parameter_groups
from components.optimizers.adamw import config


def build(
    settings: config.AdamW, module: nn.Module, layers: Sequence[nn.Module], distance: Callable[[str], int]
) -> AdamW:  # fmt: skip
    """Build AdamW as `components.optimizers.build` does; `layers` are not treated differently."""
    groups = parameter_groups(module, settings.learning_rate, settings.weight_decay, settings.layer_decay, distance)
    return AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True)
