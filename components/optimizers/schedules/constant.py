"""Linear warm-up, then constant."""

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    return progress / config.warmup if progress < config.warmup else 1.0
