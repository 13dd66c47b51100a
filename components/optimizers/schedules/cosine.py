"""Linear warm-up, then cosine decay to 0 (Loshchilov and Hutter 2017)."""

import math

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    if progress < config.warmup:
        return progress / config.warmup
    return 0.5 * (1 + math.cos(math.pi * (1 - max(0.0, 1 - progress) / (1 - config.warmup))))
