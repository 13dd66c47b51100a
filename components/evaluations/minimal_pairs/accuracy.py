"""Scores of pairs -> accuracy and margin, with their errors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.minimal_pairs.pairs import Pair

TIE = 1e-4
"""Nats within which two sums are equal: float32 sums differ by as much in another batch or order."""


class Figures(NamedTuple):
    """Of some pairs."""

    accuracy: float
    """The share in which the right sentence is the likelier one; a tie counts one half."""
    margin: float
    """Mean of the right sentence's log-probability less the wrong one's, in nats. It does not compare across objectives
    or tokenizers."""
    pairs: int
    """That were scored."""
    unequal: float
    """The share of them whose sentences have different numbers of pieces."""
    accuracy_error: float
    """Standard errors: resampled."""
    margin_error: float


class Accuracies(NamedTuple):
    """Of all pairs of a set."""

    paradigms: dict[str, Figures]
    """Their errors come from resampled pairs."""
    phenomena: dict[str, Figures]
    """Their errors come from resampled paradigms, and pairs in each."""
    overall: Figures
    """The same of all paradigms."""
    left_out: int
    """Pairs that were not scored."""


def accuracies(
    pairs: Sequence[Pair], good: np.ndarray, bad: np.ndarray, pieces: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0, samples: int = 1000, by_pair: bool = False,
) -> Accuracies:  # fmt: skip
    """Log-probabilities of the right and the wrong sentences, (n,), NaN on either side where a pair was not scored;
    `pieces` of both, (n,), where they are known.

    Phenomena and all are means in which each paradigm counts the same, as in published sets; `by_pair`, each pair, for
    sets that are made and have many pairs of one paradigm and few of another.

    Errors are standard deviations over `samples` drawn with replacement: paradigms first and then pairs in each, since
    the pairs of a template are no independent ones (a hierarchical bootstrap). One paradigm alone has its pairs' error;
    `by_pair`, paradigms are given, and pairs alone are drawn.
    Raises SesameError where nothing was scored, or counts differ.
    """
    if not len(pairs) == len(good) == len(bad):
        raise SesameError(
            f"{len(pairs)} pairs, {len(good)} scores of right, {len(bad)} of wrong sentences: as many of each expected"
        )
    margins = good.astype(np.float64) - bad.astype(np.float64)
    scored = np.isfinite(margins)
    if not scored.any():
        raise SesameError(
            f"none of {len(pairs):,} pairs was scored: all are too long, or don't fit the protocol; take another one"
        )
    right = is_right(margins)
    differ = np.zeros(len(pairs)) if pieces is None else (pieces[0] != pieces[1]).astype(float)
    names = np.array([pair.paradigm for pair in pairs])
    phenomenon = {pair.paradigm: pair.phenomenon for pair in pairs}
    draws, drawn, paradigms = generator(seed), {}, {}
    for name in dict.fromkeys(names[scored].tolist()):
        own = np.flatnonzero(scored & (names == name))
        values = np.stack([right[own], margins[own]])  # (2, pairs)
        drawn[name] = np.stack([values[:, draws.integers(len(own), size=len(own))].mean(1) for _ in range(samples)])
        errors = drawn[name].std(0, ddof=1)
        paradigms[name] = Figures(*map(float, values.mean(1)), len(own), float(differ[own].mean()), *map(float, errors))
    found: dict[str, list[str]] = {}
    for name in paradigms:
        found.setdefault(phenomenon[name], []).append(name)
    phenomena = {name: _mean(own, paradigms, drawn, draws, by_pair) for name, own in found.items()}
    overall = _mean([*paradigms], paradigms, drawn, draws, by_pair)
    return Accuracies(paradigms, phenomena, overall, int((~scored).sum()))


def is_right(margins: np.ndarray) -> np.ndarray:
    """1 where the right sentence is the likelier one, .5 where both are equally likely."""
    return np.where(np.abs(margins) <= TIE, 0.5, margins > 0)


def _mean(
    names: list[str], paradigms: dict[str, Figures], drawn: dict[str, np.ndarray], draws: np.random.Generator,
    by_pair: bool,
) -> Figures:  # fmt: skip
    """Over paradigms."""
    own = [paradigms[name] for name in names]
    counts = np.array([one.pairs for one in own])
    weights = counts / counts.sum() if by_pair else np.full(len(own), 1 / len(own))
    resampled = np.stack([drawn[name] for name in names])  # (paradigms, samples, 2)
    if by_pair:
        means = np.einsum("p,psf->sf", weights, resampled)
    else:
        samples = resampled.shape[1]
        chosen = draws.integers(len(names), size=(samples, len(names)))
        means = resampled[chosen, draws.integers(samples, size=chosen.shape)].mean(1)
    accuracy, margin = (float(weights @ [getattr(one, field) for one in own]) for field in ("accuracy", "margin"))
    unequal = float(counts @ [one.unequal for one in own] / counts.sum())
    return Figures(accuracy, margin, int(counts.sum()), unequal, *map(float, means.std(0, ddof=1)))
