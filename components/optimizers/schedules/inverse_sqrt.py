"""Linear warm-up, then proportional to 1 / sqrt(step) (Vaswani et al. 2017, section 5.3)."""

import math

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    if progress < config.warmup:
        return progress / config.warmup
    return math.sqrt(max(config.warmup, 1e-9) / max(progress, 1e-9))
