"""Linear warm-up from 1/32, then linear decay back to it (Howard and Ruder 2018, equation 3)."""

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    left = max(0.0, 1 - progress)
    rising = progress / config.warmup if progress < config.warmup else left / (1 - config.warmup)
    return (1 + 31 * rising) / 32
