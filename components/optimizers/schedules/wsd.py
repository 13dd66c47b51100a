"""Warm-up, stable, decay: linear decay to 0 over the last `decay` share (Hu et al. 2024)."""

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    if progress < config.warmup:
        return progress / config.warmup
    return min(1.0, max(0.0, 1 - progress) / config.decay)
