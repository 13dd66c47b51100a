"""What a search is worth at a budget: the expected validation performance with its confidence bands, and where two of them cross.

Of a random search with N results v_1 <= ... <= v_N, the best of n trials is expected to score sum v_i [(i/N)^n - ((i-1)/N)^n]
(Dodge et al. 2019, the V statistic), which holds for any n >= 1, whole or not; the unbiased form of it is
sum_{i>=n} C(i-1, n-1) / C(N, n) v_i. We draw the first: of the estimators it is among those that mislead least about which of
two models is better (Dodge et al. 2021). What n trials cost is n times the mean cost of one.

The band is that of the *median* best of n trials: exact, simultaneous (with the chosen confidence it holds the whole curve) and
free of assumptions (Lourie et al. 2024; Learned-Miller and DeStefano 2008). One of the expected best is to be had in the same
way, but hangs on the highest score there could be: what N trials can't exclude is a rare trial near 1. All of it is `opda`'s.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from opda.nonparametric import EmpiricalDistribution

FEW = 20
"""Fewer trials than this say little."""
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
        """The scores' distribution as the trials have it."""
        return EmpiricalDistribution(self.results, a=0.0, b=1.0)

    @cached_property
    def bounds(self) -> tuple[EmpiricalDistribution, EmpiricalDistribution]:
        """The worst and the best distribution that the confidence allows."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Duplicates detected")  # then the bands hold with at least this confidence
            # `ld_highest_density` is a little tighter, takes 6 times as long and can't do one trial
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
        """The same without bias, for whole numbers up to N: the mean over all subsets of that size."""
        return self.point.u_tuning_curve(np.asarray(trials))

    def median(self, trials) -> np.ndarray:
        """The median best of so many trials."""
        return self.point.quantile_tuning_curve(np.asarray(trials, dtype=float))

    def band(self, trials) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper confidence band of the median best; the upper is 1 where the trials bound it no longer."""
        worst, best = (bound.quantile_tuning_curve(np.asarray(trials, dtype=float)) for bound in self.bounds)
        return worst, best

    def expected_band(self, trials) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper confidence band of the expected best, where no score is above 1."""
        worst, best = (bound.average_tuning_curve(np.asarray(trials, dtype=float)) for bound in self.bounds)
        return worst, best

    @property
    def reach(self) -> int:
        """The most trials whose median best has an upper end; 0 where there is none."""
        return int((self.band(np.arange(1, len(self) + 1))[1] < 1.0).sum())


def worth(score: float | None) -> float:
    """What a trial gives to the curve:
    0 where it failed, and where it does worse than predictions that know nothing (a negative correlation)."""
    return max(0.0, score or 0.0) if score == score else 0.0


def budgets(first: Curve, second: Curve, axis: str) -> np.ndarray:
    """Budgets that both curves speak of: from one trial of each to all trials of the one that ends first. Empty where there are none."""
    costs = first.costs[axis], second.costs[axis]
    start, end = max(costs), min(len(first) * costs[0], len(second) * costs[1])
    if axis == "trials":
        return np.arange(1, round(end) + 1, dtype=float)
    return np.linspace(start, end, 400) if start < end else np.array([])


def stretches(values: np.ndarray, axis: np.ndarray) -> list[tuple[int, float, float]]:
    """(sign, from, to) of each stretch of budgets over which the values keep their sign; rounding errors are none."""
    spans: list[tuple[int, float, float]] = []
    for sign, place in zip(np.sign(values.round(9)).astype(int).tolist(), axis.tolist(), strict=True):
        start = spans.pop()[1] if spans and spans[-1][0] == sign else place
        spans.append((sign, start, place))
    return spans


@dataclass(frozen=True)
class Comparison:
    """Two curves along one axis."""

    axis: str
    ahead: list[tuple[int, float, float]]
    """Stretches: 1 where the first is ahead, -1 the second, 0 neither."""
    beyond: list[tuple[int, float, float]]
    """The same where it is so beyond the bands: the one's lower is above the other's upper."""


def compare(first: Curve, second: Curve, axis: str) -> Comparison:
    """Which of two models is better at which budget."""
    places = budgets(first, second, axis)
    if not len(places):
        return Comparison(axis, [], [])
    ours, theirs = places / first.costs[axis], places / second.costs[axis]
    low, high = first.band(ours)
    other_low, other_high = second.band(theirs)
    beyond = (low > other_high).astype(int) - (other_low > high).astype(int)
    return Comparison(axis, stretches(first.at(ours) - second.at(theirs), places), [part for part in stretches(beyond, places) if part[0]])


def best_so_far(scores: list[float | None]) -> np.ndarray:
    """The best complete result after each trial of one search; NaN until there is one."""
    return np.fmax.accumulate(np.array([np.nan if score is None else score for score in scores], dtype=float))
