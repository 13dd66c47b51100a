"""Whether one side of a comparison scores higher than another: an interval over seeds and examples, Holm's correction over a table.

The one rule of the report, the studies and `sesame compare`. A difference of two means over runs has two sources of noise:

- the runs (weights, order, dropout): each side's variance over its runs divided by their number, as in Welch's test;
- the test examples: the variance of the difference when blocks of examples are left out one after the other, the same for all runs
  (the jackknife; Efron and Tibshirani 1993, chapter 11). Examples that are judged together, as the answers to a question, leave together.

Both are added and taken against Student's t with the degrees of freedom of Welch and Satterthwaite, so that three seeds count as three.
On a study's page the runs' variance is that of all variants together, since two sides of three seeds know little of their own.
What the runs' disagreement on single examples adds is in both, which makes the interval a little too wide, never too narrow. Where
a table makes many comparisons, a difference is beyond noise when it is so after Holm's correction over all of them (Holm 1979).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.stats import t as student

from components import params, tasks
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.metrics import CORPUS_LEVEL, MEANS, METRICS, corpus_counts, score_of_counts

BLOCKS = 100
"""Of examples that are left out in turn; fewer where there are fewer groups."""
LEVEL = 0.05
POWER = 0.8
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Side:
    """The scores of one side's runs. Both sides of a comparison are made of the same examples in the same order."""

    scores: np.ndarray
    """On all examples, (runs,); NaN where undefined, as a correlation with a constant."""
    without: np.ndarray
    """Without each block of examples, (blocks, runs)."""
    drawn: bool = True
    """False where no random numbers are drawn: the one run is all that there is, and has no variance."""

    @property
    def runs(self) -> int:
        return len(self.scores)

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def variance(self) -> float:
        """Of the mean over the runs; NaN for one run that might have come out otherwise."""
        if not self.drawn:
            return 0.0
        return float(self.scores.var(ddof=1) / self.runs) if self.runs > 1 else nan


class Pooled(NamedTuple):
    """What several sides' runs say of their noise together, which is taken for the same."""

    variance: float
    """Of one run; NaN where no side has two."""
    degrees: int
    """Of freedom."""


def pool(sides: Iterable[Side]) -> Pooled:
    """The noise of runs of all sides that draw random numbers."""
    runs = [own.scores for own in sides if own.drawn]
    degrees = sum(len(scores) - 1 for scores in runs)
    return Pooled(float(sum(scores.var() * len(scores) for scores in runs) / degrees) if degrees else nan, degrees)


def of_losses(losses: Sequence[float]) -> Side:
    """A side of the losses of some runs on one text: how that text was drawn is left out, since it is the same for all."""
    scores = np.array(losses, float)
    return Side(scores, np.repeat(scores[None], 2, 0))


@dataclass(frozen=True)
class Difference:
    """One side's mean less the other's."""

    a: float
    b: float
    low: float
    """Of the 95 % interval. With one run a side it is of the examples alone, and there is no verdict."""
    high: float
    p: float
    """Of Student's t, two-sided; NaN where it can't be said."""
    runs: tuple[int, int]
    of_runs: float
    """Variance that comes from the runs; NaN with one run."""
    of_examples: float
    """Variance that comes from the examples."""
    degrees: float = nan
    """Of freedom, of Student's t."""

    @property
    def difference(self) -> float:
        return self.a - self.b

    @property
    def detectable(self) -> float:
        """The smallest true difference that such a comparison by itself would call beyond noise in four cases of five; NaN for one run."""
        error = sqrt(self.of_runs + self.of_examples)
        return float(error * (student.ppf(1 - LEVEL / 2, self.degrees) + student.ppf(POWER, self.degrees)))

    @property
    def deviations(self) -> float:
        """In standard deviations over the runs, of both sides together; NaN for one run."""
        spread = sqrt(self.of_runs / sum(1 / n for n in self.runs))
        return self.difference / spread if spread else nan

    @property
    def shown(self) -> str:
        """`+0.049 [+0.010, +0.088]`."""
        if isnan(self.difference):
            return "undefined"
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def sides(
    all_params: params.Params, name: str, split: str, metric: str, places: Mapping[Key, Sequence[tuple[Path, str]]]
) -> tuple[int, dict[Key, Side]]:
    """Sides by a metric out of `predictions.jsonl`: of each the folders and starts whose runs are its own. Only examples that every
    run has judged can be compared: how many these are comes first.

    Raises SesameError where the split has no labels, a folder no predictions, or all runs no example in common.
    """
    task, runs, drawn = all_params.tasks[name], {}, {}
    if not task.splits[split].labelled:
        raise SesameError(f"the split {split} of {name} has no labels: it is for submission only")
    for key, own in places.items():
        read = [seeds for folder, init in own for seeds in tasks.predictions(folder, split, init).items()]
        runs[key], drawn[key] = [by_id for _, by_id in read], all(seed is not None for seed, _ in read)
    examples = tasks.read(Path("data/tasks", name), split)
    judged = [example for example in examples if all(example.id in by_id for by_ids in runs.values() for by_id in by_ids)]
    if not judged:
        folders = sorted({str(folder) for own in places.values() for folder, _ in own})
        raise SesameError(f"{', '.join(folders)}: no example of {name} {split} in common")
    scored = {
        key: side(task, metric, judged, [[by_id[own.id] for own in judged] for by_id in by_ids], drawn[key])
        for key, by_ids in runs.items()
    }  # fmt: skip
    return len(judged), scored


def side(task: params.Task, metric: str, examples: Sequence[Example], runs: Sequence[Sequence[object]], drawn: bool = True) -> Side:
    """Score each run (a prediction for each example), on all examples and without each of their blocks."""
    blocks = blocks_of(examples)
    if value := MEANS[task.kind].get(metric):
        return of_values(np.array([[value(own, row.label) for own, row in zip(run, examples, strict=True)] for run in runs]), blocks, drawn)
    if task.kind == "text" and metric in CORPUS_LEVEL:
        counts = np.array([corpus_counts(task, metric, examples, run) for run in runs])  # (runs, examples, counts)
        total = counts.sum(1)
        without = [[score_of_counts(task, metric, own) for own in total - counts[:, block].sum(1)] for block in blocks]
        scores = [score_of_counts(task, metric, own) for own in total]
        return Side(np.array(scores), np.array(without).reshape(len(blocks), len(runs)), drawn)
    judge = METRICS[task.kind][metric]

    def score(run: Sequence[object], kept: np.ndarray) -> float:
        figure = judge(task, [examples[i] for i in kept], [run[i] for i in kept])
        return nan if figure is None else figure

    everything = np.arange(len(examples))
    without = [[score(run, np.setdiff1d(everything, block)) for run in runs] for block in blocks]
    return Side(np.array([score(run, everything) for run in runs]), np.array(without).reshape(len(blocks), len(runs)), drawn)


def of_values(values: np.ndarray, blocks: Sequence[np.ndarray], drawn: bool = True) -> Side:
    """A side whose score is the mean over the examples of `values`, (runs, examples)."""
    total, count = values.sum(1), values.shape[1]
    without = [(total - values[:, block].sum(1)) / (count - len(block)) for block in blocks]
    return Side(values.mean(1), np.array(without).reshape(len(blocks), len(values)), drawn)


def blocks_of(examples: Sequence[Example]) -> list[np.ndarray]:
    """Indices of the examples that leave together, whole groups, up to BLOCKS of them and the same ones for the same examples."""
    groups = tasks.group_indices(examples)
    if len(groups) < 2:
        return []
    order = np.random.default_rng(0).permutation(len(groups))
    return [np.concatenate([groups[i] for i in part]) for part in np.array_split(order, min(BLOCKS, len(groups)))]


def jackknife(without: np.ndarray) -> float:
    """The variance of a score over its examples, of the scores without each block, (blocks,); NaN without blocks."""
    blocks = len(without)
    return float((blocks - 1) / blocks * np.square(without - without.mean()).sum()) if blocks else nan


def difference(a: Side, b: Side, noise: Pooled | None = None) -> Difference:
    """`a` less `b`; the variance of runs is each side's own, or that of `noise`. NaN where a score is undefined, or all examples are of
    one group."""
    blocks, middle = len(a.without), a.mean - b.mean
    left = a.without.mean(1) - b.without.mean(1)
    of_examples = jackknife(left)
    if noise:
        of_runs = noise.variance * sum(1 / own.runs for own in (a, b) if own.drawn)
        parts = [(of_examples, blocks - 1)] + ([(of_runs, noise.degrees)] if noise.degrees else [])
    else:
        of_runs = a.variance + b.variance
        parts = [(of_examples, blocks - 1)] + [(own.variance, own.runs - 1) for own in (a, b) if own.drawn and own.runs > 1]
    variance = sum(part for part, _ in parts)
    if variance:
        degrees = freedom(parts)
        reach, p = student.ppf(1 - LEVEL / 2, degrees) * sqrt(variance), 2 * student.sf(abs(middle) / sqrt(variance), degrees)
    else:  # the two sides are equal in all that was tried
        degrees, reach, p = nan, 0.0, float(middle == 0)
    return Difference(
        a.mean, b.mean, middle - reach, middle + reach, nan if isnan(of_runs) else float(p), (a.runs, b.runs), of_runs, of_examples,
        degrees,
    )


def freedom(parts: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own (Welch 1947, Satterthwaite 1946)."""
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / free for part, free in parts if free)


def verdicts(differences: Sequence[Difference]) -> list[str]:
    """Of all comparisons of a table: `higher` or `lower` where that is beyond noise after Holm's correction, else `not beyond noise`;
    `one run` and `undefined` where nothing can be said."""
    said = ["undefined" if isnan(own.difference) or isnan(own.of_examples) else "one run" if isnan(own.p) else "" for own in differences]
    judged = [i for i, word in enumerate(said) if not word]
    for i, p in zip(judged, holm([differences[i].p for i in judged]), strict=True):
        said[i] = "not beyond noise" if p >= LEVEL else "higher" if differences[i].difference > 0 else "lower"
    return said


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for all having been looked at (Holm 1979): the k-th smallest of n times n - k + 1, never falling."""
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, i in enumerate(np.argsort(values, kind="stable")):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        adjusted[i] = highest
    return adjusted


def falsely_discovered(values: np.ndarray, null: np.ndarray) -> np.ndarray:
    """(n,) for each of `values` the share of false ones among all that are as large or larger (Benjamini and Hochberg 1995).

    Its p-value is the share of `null` (m,), what comes about without any cause, that is as large.
    """
    p = (1 + len(null) - np.searchsorted(np.sort(null), values)) / (1 + len(null))
    order = np.argsort(p)
    adjusted = np.minimum.accumulate((p[order] * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    return np.minimum(1, adjusted)[np.argsort(order)]
