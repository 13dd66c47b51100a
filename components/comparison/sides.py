"""The scores of one side of a comparison, on all examples and without each block of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

BLOCKS = 100
"""Blocks of examples that are left out in turn; fewer where there are fewer groups."""


@dataclass(frozen=True)
class Side:
    """The scores of the runs of one side. Both sides of a comparison have the same examples in the same order."""

    scores: np.ndarray
    """On all examples, (runs,); NaN where undefined, as a correlation with a constant."""
    without: np.ndarray
    """With each block of examples left out, (blocks, runs)."""
    drawn: bool = True
    """Whether the runs are random. False for a single deterministic run, which has no variance."""
    groups: int = 0
    """Groups of examples that are scored independently; 0 where the sampling of examples is ignored."""

    @property
    def runs(self) -> int:
        return len(self.scores)

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def variance(self) -> float:
        """Of the mean over the runs; NaN for a single random run."""
        if not self.drawn:
            return 0.0
        return float(self.scores.var(ddof=1) / self.runs) if self.runs > 1 else nan


def of_values(
    values: np.ndarray, blocks: Sequence[np.ndarray], drawn: bool = True, weights: np.ndarray | None = None, groups: int = 0
) -> Side:  # fmt: skip
    """A side whose score is the mean over the examples of `values` (runs, examples), by `weights` (examples,) if given.

    The mean of what is left without a block is over its own weights, as that of the whole is over all.
    """
    weights = np.ones(values.shape[1]) if weights is None else weights
    values, count = values * weights, weights.sum()
    total = values.sum(1)
    without = [(total - values[:, block].sum(1)) / (count - weights[block].sum()) for block in blocks]
    return Side(total / count, np.array(without).reshape(len(blocks), len(values)), drawn, groups)
