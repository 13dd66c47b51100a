"""Standardised vectors: each dimension with mean 0 and deviation 1."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Standard:
    """Means and deviations of some vectors, to standardise others."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "Standard":
        """x (n, width)."""
        return cls(x.mean(0), x.std(0, correction=0).clamp(min=1e-6))

    def __call__(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return (x - self.mean) / self.deviation
