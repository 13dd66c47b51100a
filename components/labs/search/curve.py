"""The expected validation performance of a search as a function of its budget, with confidence bands, and where two of them cross.

Of a random search with N results v_1 <= ... <= v_N, the best of n trials has the expected score sum v_i [(i/N)^n - ((i-1)/N)^n]
(Dodge et al. 2019, the V statistic), which is defined for any real n >= 1; the unbiased estimator is
sum_{i>=n} C(i-1, n-1) / C(N, n) v_i. The plots show the first: it is among the estimators that mislead least about which of
two models is better (Dodge et al. 2021). The cost of n trials is n times the mean cost of one.

The band is that of the *median* best of n trials: exact, simultaneous (it contains the full curve with the chosen confidence) and
free of assumptions (Lourie et al. 2024; Learned-Miller and DeStefano 2008). There is also one of the expected best, but it depends
on the highest possible score: N trials cannot exclude a rare trial near 1. All of it comes from `opda`.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from opda.nonparametric import EmpiricalDistribution

FEW = 20
"""Trials below which a warning is shown."""
AXES = ("trials", "hours", "kwh")


@dataclass
class Curve:
    """The results of one random search."""

    results: list[float]
    """Of each trial, from 0 to 1."""
    costs: dict[str, float]
    """Axis -> the mean cost of a trial."""
    confidence: float

    @cached_property
    def point(self) -> EmpiricalDistribution:
        """The empirical distribution of the scores."""
        return EmpiricalDistribution(self.results, a=0.0, b=1.0)

    @cached_property
    def bounds(self) -> tuple[EmpiricalDistribution, EmpiricalDistribution]:
        """The worst and the best distribution within the confidence bands."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Duplicates detected")  # the bands then hold with at least this confidence
            # `ld_highest_density` is slightly tighter, but 6 times slower and fails for a single trial
            best, _, worst = EmpiricalDistribution.confidence_bands(
                self.results, self.confidence, a=0.0, b=1.0, method="ld_equal_tailed", generator=np.random.default_rng(0), n_jobs=1
            )  # fmt: skip
        return worst, best

    def __len__(self) -> int:
        return len(self.results)

    def at(self, trials) -> np.ndarray:
        """The expected best of so many trials."""
        return self.point.average_tuning_curve(np.asarray(trials, dtype=float))

    def unbiased(self, trials) -> np.ndarray:
        """The unbiased estimate, for integers up to N: the mean over all subsets of that size."""
        return self.point.u_tuning_curve(np.asarray(trials))

    def median(self, trials) -> np.ndarray:
        """The median best of so many trials."""
        return self.point.quantile_tuning_curve(np.asarray(trials, dtype=float))

    def band(self, trials) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper confidence band of the median best; the upper one is 1 where the trials do not bound it."""
        worst, best = (bound.quantile_tuning_curve(np.asarray(trials, dtype=float)) for bound in self.bounds)
        return worst, best

    def expected_band(self, trials) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper confidence band of the expected best, given that no score is above 1."""
        worst, best = (bound.average_tuning_curve(np.asarray(trials, dtype=float)) for bound in self.bounds)
        return worst, best

    @property
    def reach(self) -> int:
        """The largest number of trials whose median best has an upper bound; 0 if none has."""
        return int((self.band(np.arange(1, len(self) + 1))[1] < 1.0).sum())


def clipped(score: float | None) -> float:
    """The score for the curve: 0 for a failed trial, and for one worse than a constant prediction (a negative correlation)."""
    return max(0.0, score or 0.0) if score == score else 0.0


def budgets(first: Curve, second: Curve, axis: str) -> np.ndarray:
    """Budgets that both curves cover: from one trial of each to all trials of the cheaper search. Empty where there are none."""
    costs = first.costs[axis], second.costs[axis]
    start, end = max(costs), min(len(first) * costs[0], len(second) * costs[1])
    if axis == "trials":
        return np.arange(1, round(end) + 1, dtype=float)
    return np.linspace(start, end, 400) if start < end else np.array([])


def stretches(values: np.ndarray, axis: np.ndarray) -> list[tuple[int, float, float]]:
    """(sign, from, to) of each range of budgets in which the values keep their sign, up to rounding errors."""
    spans: list[tuple[int, float, float]] = []
    for sign, budget in zip(np.sign(values.round(9)).astype(int).tolist(), axis.tolist(), strict=True):
        start = spans.pop()[1] if spans and spans[-1][0] == sign else budget
        spans.append((sign, start, budget))
    return spans


@dataclass(frozen=True)
class Comparison:
    """Two curves along one axis."""

    axis: str
    ahead: list[tuple[int, float, float]]
    """Ranges of budgets: 1 where the first is ahead, -1 the second, 0 neither."""
    beyond: list[tuple[int, float, float]]
    """The same where the bands do not overlap."""


def compare(first: Curve, second: Curve, axis: str) -> Comparison:
    """Which of two models is better at which budget."""
    shared = budgets(first, second, axis)
    if not len(shared):
        return Comparison(axis, [], [])
    ours, theirs = shared / first.costs[axis], shared / second.costs[axis]
    low, high = first.band(ours)
    other_low, other_high = second.band(theirs)
    beyond = (low > other_high).astype(int) - (other_low > high).astype(int)
    ahead = stretches(first.at(ours) - second.at(theirs), shared)
    return Comparison(axis, ahead, [stretch for stretch in stretches(beyond, shared) if stretch[0]])


def best_so_far(scores: list[float | None]) -> np.ndarray:
    """The best complete result after each trial of a search; NaN before the first."""
    return np.fmax.accumulate(np.array([np.nan if score is None else score for score in scores], dtype=float))
