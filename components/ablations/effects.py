"""How far a variant is from its study's base, with the interval over seeds and examples (Sellam et al. 2022, The MultiBERTs, section 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from components import params
from components.tasks import Example
from components.tasks.metrics import METRICS

RESAMPLES = 1000


@dataclass(frozen=True)
class Effect:
    """A variant less the base in a task's headline metric."""

    difference: float
    """Of the means over seeds."""
    low: float
    """Of the 95 % interval."""
    high: float
    deviations: float
    """The difference in standard deviations over seeds, of both sides together; NaN for one seed."""

    @property
    def verdict(self) -> str:
        """`higher`, `lower`, or `no difference` where the interval has 0 in it; `undefined`."""
        if np.isnan([self.difference, self.low, self.high]).any():  # a constant prediction has no correlation
            return "undefined"
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "no difference"


def resampled(task: params.Task, metric: str, examples: Sequence[Example], runs: Sequence[Sequence[object]]) -> np.ndarray:
    """The metric of each run (a prediction for each example) on the whole, then on resampled examples: (1 + RESAMPLES, runs).

    Every call draws the same examples, so that what two variants have in common falls out of their difference. NaN is undefined.
    """
    rng = np.random.default_rng(0)
    size, judge = len(examples), METRICS[task.kind][metric]
    scores = np.full((1 + RESAMPLES, len(runs)), np.nan)
    for i in range(1 + RESAMPLES):
        drawn = np.arange(size) if i == 0 else rng.integers(size, size=size)
        rows = [examples[j] for j in drawn]
        for k, run in enumerate(runs):
            score = judge(task, rows, [run[j] for j in drawn])
            scores[i, k] = np.nan if score is None else score
    return scores


def effect(variant: np.ndarray, base: np.ndarray) -> Effect:
    """Two sides as `resampled` gives them. The seeds of each are drawn anew in each resample, too."""
    rng = np.random.default_rng(1)
    means = []
    for scores in (variant, base):
        drawn = rng.integers(scores.shape[1], size=scores[1:].shape)
        means.append(np.take_along_axis(scores[1:], drawn, 1).mean(1))
    differences = means[0] - means[1]
    defined = differences[~np.isnan(differences)]
    low, high = np.percentile(defined, [2.5, 97.5]) if len(defined) else (np.nan, np.nan)
    difference = variant[0].mean() - base[0].mean()
    spread = [scores[0].std(ddof=1) if scores.shape[1] > 1 else np.nan for scores in (variant, base)]
    pooled = float(np.sqrt(np.mean(np.square(spread))))
    return Effect(float(difference), float(low), float(high), difference / pooled if pooled else np.nan)
