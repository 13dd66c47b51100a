"""Scores of pairs -> accuracy and margin, with their errors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.minimal_pairs.pairs import Pair

TIE = 1e-4
"""In nats. Two sums that differ less are equal: float32 sums differ as much in another batch or order."""


class Figures(NamedTuple):
    """Results on a set of pairs."""

    accuracy: float
    """The share of pairs whose right sentence is more probable; a tie counts one half."""
    margin: float
    """Mean of the right sentence's log-probability minus the wrong one's, in nats. Not comparable across objectives
    or tokenizers."""
    pairs: int
    """Number of scored pairs."""
    unequal: float
    """The share of pairs whose sentences differ in their number of tokens."""
    accuracy_error: float
    """Standard errors, from resampling."""
    margin_error: float


class Accuracies(NamedTuple):
    """Results on all pairs of a set."""

    paradigms: dict[str, Figures]
    """Errors from resampled pairs."""
    phenomena: dict[str, Figures]
    """Errors from resampled paradigms, and pairs within each."""
    overall: Figures
    """Like a phenomenon of all paradigms."""
    left_out: int
    """Number of pairs that were not scored."""


def accuracies(
    pairs: Sequence[Pair], good: np.ndarray, bad: np.ndarray, pieces: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0, samples: int = 1000, by_pair: bool = False,
) -> Accuracies:  # fmt: skip
    """Compute the accuracies from the log-probabilities of the right and the wrong sentences, (n,), NaN on either side where a
    pair was not scored; `pieces` of both, (n,), where known.

    Phenomena and the overall figures are means in which each paradigm counts the same, as in published sets; with `by_pair` each
    pair counts the same, for generated sets, which have many pairs of one paradigm and few of another.

    Errors are standard deviations over `samples` drawn with replacement: paradigms first and then pairs within each, since
    the pairs of a template are not independent (a hierarchical bootstrap). A single paradigm has the error of its pairs;
    with `by_pair` only pairs are drawn.
    Raises SesameError where nothing was scored, or counts differ.
    """
    if not len(pairs) == len(good) == len(bad):
        raise SesameError(f"{len(pairs)} pairs, {len(good)} scores of right, {len(bad)} of wrong sentences: equal numbers expected")
    margins = good.astype(np.float64) - bad.astype(np.float64)
    scored = np.isfinite(margins)
    if not scored.any():
        raise SesameError(f"none of {len(pairs):,} pairs was scored: all are too long, or do not fit the protocol; use another one")
    right = is_right(margins)
    differ = np.zeros(len(pairs)) if pieces is None else (pieces[0] != pieces[1]).astype(float)
    names = np.array([pair.paradigm for pair in pairs])
    phenomenon = {pair.paradigm: pair.phenomenon for pair in pairs}
    rng = generator(seed)
    resampled, paradigms = {}, {}
    for name in dict.fromkeys(names[scored].tolist()):
        members = np.flatnonzero(scored & (names == name))
        values = np.stack([right[members], margins[members]])  # (2, pairs)
        resampled[name] = np.stack([values[:, rng.integers(len(members), size=len(members))].mean(1) for _ in range(samples)])
        errors = resampled[name].std(0, ddof=1)
        paradigms[name] = Figures(*map(float, values.mean(1)), len(members), float(differ[members].mean()), *map(float, errors))
    by_phenomenon: dict[str, list[str]] = {}
    for name in paradigms:
        by_phenomenon.setdefault(phenomenon[name], []).append(name)
    phenomena = {name: _mean(members, paradigms, resampled, rng, by_pair) for name, members in by_phenomenon.items()}
    overall = _mean([*paradigms], paradigms, resampled, rng, by_pair)
    return Accuracies(paradigms, phenomena, overall, int((~scored).sum()))


def is_right(margins: np.ndarray) -> np.ndarray:
    """1 where the right sentence is more probable, .5 where both are equally probable."""
    return np.where(np.abs(margins) <= TIE, 0.5, margins > 0)


def _mean(
    names: list[str], paradigms: dict[str, Figures], resampled: dict[str, np.ndarray], rng: np.random.Generator, by_pair: bool
    ) -> Figures:  # fmt: skip
    """The mean over paradigms."""
    figures = [paradigms[name] for name in names]
    counts = np.array([one.pairs for one in figures])
    weights = counts / counts.sum() if by_pair else np.full(len(figures), 1 / len(figures))
    draws = np.stack([resampled[name] for name in names])  # (paradigms, samples, 2)
    if by_pair:
        means = np.einsum("p,psf->sf", weights, draws)
    else:
        samples = draws.shape[1]
        chosen = rng.integers(len(names), size=(samples, len(names)))
        means = draws[chosen, rng.integers(samples, size=chosen.shape)].mean(1)
    accuracy, margin = (float(weights @ [getattr(one, field) for one in figures]) for field in ("accuracy", "margin"))
    unequal = float(counts @ [one.unequal for one in figures] / counts.sum())
    return Figures(accuracy, margin, int(counts.sum()), unequal, *map(float, means.std(0, ddof=1)))
