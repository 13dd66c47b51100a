"""Linear warm-up, then linear decay to 0 (Devlin et al. 2019, appendix A.2)."""

from components.optimizers.config import OptimizerBlock


def share(config: OptimizerBlock, progress: float) -> float:
    if progress < config.warmup:
        return progress / config.warmup
    return max(0.0, 1 - progress) / (1 - config.warmup)
