"""Whether one side of a comparison scores higher than another: an interval over seeds and examples, with Holm's correction.

The report, the studies and `sesame compare` share this rule. A difference of two means over runs has two sources of noise:

- the runs (weights, order, dropout): each side's variance over its runs divided by their number, as in Welch's test;
- the test examples: the variance of the difference when blocks of examples are left out in turn, the same blocks for all runs (the
  jackknife; Efron and Tibshirani 1993, chapter 11). Examples that are scored together, as the answers to a question, are left out together.

The sum is tested with Student's t with the degrees of freedom of Welch and Satterthwaite, so that three seeds count as
three. On a study's page the variance over runs is pooled over all variants, since two sides of three seeds estimate it
poorly; but not where the variants' variances differ (Bartlett 1937): one noisy variant would hide the effects of the
others, and its own would look surer than they are. The disagreement of runs on single examples is in both terms, so the
interval is a little too wide, never too narrow. Where a table makes many comparisons, a difference is beyond noise if it
is so after Holm's correction over all of them (Holm 1979).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.stats import bartlett
from scipy.stats import t as student

from components import params, tasks
from components.comparison.detection import LEVEL, detectable_errors, without_variance
from components.comparison.sides import BLOCKS, Side, of_values
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.metrics import CORPUS_LEVEL, MEANS, METRICS, corpus_counts, score_of_counts

UNEQUAL = 0.1
"""Variances are not pooled where Bartlett's test has a lower p. Of simulated pages without any effect, but with one
variant of twenty times the others' noise, .08 have a verdict; .19 where they are pooled always
(`tests/tasks/test_verdicts.py`)."""
Key = TypeVar("Key", bound=Hashable)


class Pooled(NamedTuple):
    """The variance of runs, pooled over several sides."""

    variance: float
    """Of one run; NaN where no side has two runs."""
    degrees: int
    """Degrees of freedom."""


def pool(sides: Iterable[Side]) -> Pooled | None:
    """Pool the variance of all sides with random runs, but of those with an undefined score. None where the variances
    differ: then each comparison has those of its own two sides."""
    runs = [side.scores for side in sides if side.drawn and np.isfinite(side.scores).all()]
    repeated = [scores for scores in runs if len(scores) > 1]
    with np.errstate(divide="ignore", invalid="ignore"):  # equal runs have a variance of 0; NaN where all have
        if len(repeated) > 1 and bartlett(*repeated).pvalue < UNEQUAL:
            return None
    degrees = sum(len(scores) - 1 for scores in runs)
    return Pooled(float(sum(scores.var() * len(scores) for scores in runs) / degrees) if degrees else nan, degrees)


def of_losses(losses: Sequence[float]) -> Side:
    """A side of the losses of some runs on one text. The text is the same for all, so its sampling is ignored."""
    scores = np.array(losses, float)
    return Side(scores, np.repeat(scores[None], 2, 0))


@dataclass(frozen=True)
class Difference:
    """One side's mean minus the other's."""

    a: float
    b: float
    low: float
    """Of the 95 % interval. With one run per side it is over the examples only, and there is no verdict."""
    high: float
    p: float
    """Of Student's t, two-sided; NaN where undefined."""
    runs: tuple[int, int]
    of_runs: float
    """Variance from the runs; NaN with one run."""
    of_examples: float
    """Variance from the examples."""
    degrees: float = nan
    """Degrees of freedom of Student's t."""
    pooled: bool = False
    """Whether `of_runs` is from the variance of more sides than these two."""

    @property
    def difference(self) -> float:
        return self.a - self.b

    @property
    def detectable(self) -> float:
        """The smallest true difference that this comparison alone would detect with a power of 80 %; NaN for one run."""
        error = sqrt(self.of_runs + self.of_examples)
        return error * detectable_errors(self.degrees)

    @property
    def deviations(self) -> float:
        """The difference in standard deviations over the runs of both sides; NaN for one run."""
        spread = sqrt(self.of_runs / sum(1 / n for n in self.runs))
        return self.difference / spread if spread else nan

    @property
    def shown(self) -> str:
        """`+0.049 [+0.010, +0.088]`; without an interval where all examples are one group."""
        if isnan(self.difference):
            return "undefined"
        if isnan(self.low):
            return f"{self.difference:+.3f} (no interval)"
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def sides(
    all_params: params.Params, name: str, split: str, metric: str, sources: Mapping[Key, Sequence[tuple[Path, str]]]
) -> tuple[int, dict[Key, Side]]:
    """Read sides from `predictions.jsonl`; `sources` has (folder, init) of the runs of each side. Returns the number of examples that
    all runs have predicted, on which they are compared, and the sides by `metric`.

    Raises SesameError where the split has no labels, a folder has no predictions, or the runs have no example in common.
    """
    task, runs, drawn = all_params.tasks[name], {}, {}
    if not task.splits[split].labelled:
        raise SesameError(f"the split {split} of {name} has no labels: it is for submission only")
    for key, folders in sources.items():
        read = [seeds for folder, init in folders for seeds in tasks.predictions(folder, split, init).items()]
        runs[key], drawn[key] = [by_id for _, by_id in read], all(seed is not None for seed, _ in read)
    examples = tasks.read(Path("data/tasks", name), split)
    common = [example for example in examples if all(example.id in by_id for by_ids in runs.values() for by_id in by_ids)]
    if not common:
        names = sorted({str(folder) for folders in sources.values() for folder, _ in folders})
        raise SesameError(f"{', '.join(names)}: no example of {name} {split} in common")
    scored = {
        key: side(task, metric, common, [[by_id[example.id] for example in common] for by_id in by_ids], drawn[key])
        for key, by_ids in runs.items()
    }
    return len(common), scored


def side(task: params.Task, metric: str, examples: Sequence[Example], runs: Sequence[Sequence[object]], drawn: bool = True) -> Side:
    """Score each run (one prediction per example), on all examples and with each block left out."""
    blocks, groups = blocks_of(examples), len(tasks.cluster_indices(examples))
    if value := MEANS[task.kind].get(metric):
        values = [[value(task, example, prediction) for prediction, example in zip(run, examples, strict=True)] for run in runs]
        return of_values(np.array(values), blocks, drawn, groups=groups)
    if task.kind == "text" and metric in CORPUS_LEVEL:
        counts = np.array([corpus_counts(task, metric, examples, run) for run in runs])  # (runs, examples, counts)
        total = counts.sum(1)
        without = [[score_of_counts(task, metric, run) for run in total - counts[:, block].sum(1)] for block in blocks]
        scores = [score_of_counts(task, metric, run) for run in total]
        return Side(np.array(scores), np.array(without).reshape(len(blocks), len(runs)), drawn, groups)
    metric_function = METRICS[task.kind][metric]

    def score(run: Sequence[object], kept: np.ndarray, undefined: float) -> float:
        value = metric_function(task, [examples[i] for i in kept], [run[i] for i in kept])
        return undefined if value is None else value

    everything = np.arange(len(examples))
    scores = [score(run, everything, nan) for run in runs]
    # a correlation with what is constant without the only example of a rare class: it tells nothing, so it counts as 0
    without = [[score(run, np.setdiff1d(everything, block), 0.0) for run in runs] for block in blocks]
    return Side(np.array(scores), np.array(without).reshape(len(blocks), len(runs)), drawn, groups)


def blocks_of(examples: Sequence[Example]) -> list[np.ndarray]:
    """Indices of the examples that are left out together: complete clusters, up to BLOCKS blocks, the same for the same examples."""
    groups = tasks.cluster_indices(examples)
    if len(groups) < 2:
        return []
    order = np.random.default_rng(0).permutation(len(groups))
    return [np.concatenate([groups[i] for i in block]) for block in np.array_split(order, min(BLOCKS, len(groups)))]


def jackknife(without: np.ndarray) -> float:
    """The variance of a score over its examples, given the scores with each block left out, (blocks,); NaN without blocks."""
    blocks = len(without)
    return float((blocks - 1) / blocks * np.square(without - without.mean()).sum()) if blocks else nan


def difference(a: Side, b: Side, noise: Pooled | None = None) -> Difference:
    """`a` minus `b`; the variance over runs is `noise`, or without it that of each side.

    NaN where a score is undefined, or all examples are in one group.
    """
    blocks, middle = len(a.without), a.mean - b.mean
    left = a.without.mean(1) - b.without.mean(1)
    of_examples = jackknife(left)
    if noise:
        of_runs = noise.variance * sum(1 / side.runs for side in (a, b) if side.drawn)
        terms = [(of_examples, blocks - 1)] + ([(of_runs, noise.degrees)] if noise.degrees else [])
    else:
        of_runs = a.variance + b.variance
        terms = [(of_examples, blocks - 1)] + [(side.variance, side.runs - 1) for side in (a, b) if side.drawn and side.runs > 1]
    variance = sum(term for term, _ in terms)
    rounding = 1e-9 * max(1.0, abs(a.mean), abs(b.mean))
    if not variance <= rounding**2:  # NaN, too
        degrees = freedom(terms)
        margin, p = student.ppf(1 - LEVEL / 2, degrees) * sqrt(variance), 2 * student.sf(abs(middle) / sqrt(variance), degrees)
    else:
        degrees, (margin, p) = nan, without_variance(middle, min(a.groups, b.groups))
    return Difference(
        a.mean,
        b.mean,
        middle - margin,
        middle + margin,
        nan if isnan(of_runs) else float(p),
        (a.runs, b.runs),
        of_runs,
        of_examples,
        degrees,
        noise is not None,
    )


def freedom(terms: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of variances, each with its degrees (Welch 1947, Satterthwaite 1946)."""
    return sum(term for term, _ in terms) ** 2 / sum(term**2 / degrees for term, degrees in terms if degrees)


def verdicts(differences: Sequence[Difference]) -> list[str]:
    """For all comparisons of a table: `higher` or `lower` where a difference is beyond noise after Holm's correction, else `not beyond
    noise`; `one run` and `undefined` where there is no test."""
    words = ["undefined" if isnan(one.difference) or isnan(one.of_examples) else "one run" if isnan(one.p) else "" for one in differences]
    tested = [one for one, word in zip(differences, words, strict=True) if not word]
    corrected = iter(beyond_noise([(one.difference, one.p) for one in tested]))
    return [word or next(corrected) for word in words]


def beyond_noise(tests: Sequence[tuple[float, float]]) -> list[str]:
    """Of differences with their p-values: `higher`, `lower` or `not beyond noise`, after Holm's correction over all of them."""
    corrected = holm([p for _, p in tests])
    return [
        "not beyond noise" if p >= LEVEL else "higher" if size > 0 else "lower" for (size, _), p in zip(tests, corrected, strict=True)
    ]


def holm(values: Sequence[float]) -> list[float]:
    """p-values after Holm's correction (1979): the k-th smallest of n times n - k + 1, never decreasing."""
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, i in enumerate(np.argsort(values, kind="stable")):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        adjusted[i] = highest
    return adjusted


def false_discovery_rates(values: np.ndarray, null: np.ndarray) -> np.ndarray:
    """For each of `values` (n,) the false discovery rate among all that are as large or larger (Benjamini and Hochberg 1995).

    The p-value is the share of `null` (m,), values without an effect, that is as large.
    """
    p = (1 + len(null) - np.searchsorted(np.sort(null), values)) / (1 + len(null))
    order = np.argsort(p)
    adjusted = np.minimum.accumulate((p[order] * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    return np.minimum(1, adjusted)[np.argsort(order)]
