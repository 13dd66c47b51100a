"""How much of a score is due to its seeds, and the expected best of many seeds.

A grid has the score of every initialisation with every order of the examples. It is analysed by a two-way analysis of variance
without repetition: what rows and columns do not explain is their interaction, and uncontrolled noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.stats import t as student_t

DRAWS = 2000


@dataclass(frozen=True)
class Effect:
    """The effect of one of the two kinds of seed."""

    share: float
    """Of the sum of squares of the grid."""
    by_chance: float
    """The expected share without an effect, given what the other kind explains."""
    p: float
    """Of a share as large when scores are permuted for each seed of the other kind."""


def effects(grid: np.ndarray, seed: int = 1) -> tuple[Effect, Effect]:
    """The effects of initialisation and order on scores (initialisations, orders); zero where all scores are equal."""
    shares = [_share(grid[None], other)[0] for other in (2, 1)]
    freedom, results = (grid.shape[0] - 1, grid.shape[1] - 1), []
    for i, axis in enumerate((1, 2)):  # for initialisations, scores of the same order are permuted, and vice versa
        permuted = np.random.default_rng(seed).permuted(np.tile(grid, (DRAWS, 1, 1)), axis=axis)
        p = (1 + (_share(permuted, 3 - axis) >= shares[i] - 1e-12).sum()) / (DRAWS + 1)
        by_chance = (1 - shares[1 - i]) * freedom[i] / (freedom[i] + freedom[0] * freedom[1])
        results.append(Effect(float(shares[i]), float(by_chance), float(p)))
    return results[0], results[1]


def _share(grids: np.ndarray, other: int) -> np.ndarray:
    """The share that means over the axis `other` explain of each grid (grids, initialisations, orders)."""
    mean = grids.mean((1, 2), keepdims=True)
    explained = ((grids.mean(other, keepdims=True) - mean) ** 2).sum((1, 2)) * grids.shape[other]
    total = ((grids - mean) ** 2).sum((1, 2))
    return np.divide(explained, total, out=np.zeros_like(total), where=total > 0)


def gain(dev: np.ndarray, judged: np.ndarray, begun: int) -> tuple[float, float, float]:
    """How much better the best on dev of `begun` trainings is expected to be than a single one on the other split, and the 95 % interval.

    The interval is by the jackknife over initialisations and over orders, since trainings with the same initialisation are not independent.
    (The percentiles of a bootstrap are too low for a best of many: eight that are drawn with replacement are five different ones.) Grids
    are (initialisations, orders).
    """
    variance = 0.0
    for axis, count in enumerate(dev.shape):
        without = [_gain(np.delete(dev, i, axis).ravel(), np.delete(judged, i, axis).ravel(), begun) for i in range(count)]
        variance += (count - 1) / count * float(((without - np.mean(without)) ** 2).sum())
    half, expected = student_t.ppf(0.975, min(dev.shape) - 1) * variance**0.5, _gain(dev.ravel(), judged.ravel(), begun)
    return expected, expected - half, expected + half


def _gain(dev: np.ndarray, judged: np.ndarray, begun: int) -> float:
    """With the weights of the expected validation performance (Dodge et al. 2019), for the score on the other split; among trainings with
    the same score on dev, each is equally likely to be the best."""
    ranks = np.arange(1, len(dev) + 1) / len(dev)
    weights = ranks**begun - (ranks - 1 / len(dev)) ** begun
    _, same = np.unique(dev, return_inverse=True)
    means = np.bincount(same, judged) / np.bincount(same)
    return float(weights @ means[np.sort(same)] - judged.mean())


@dataclass(frozen=True)
class Selected:
    """The best on dev of some trainings, averaged over many draws of them."""

    begun: int
    epochs: float
    """The cost of all trainings together."""
    dev: float
    judged: float
    """The score of the same training on the other split."""


def trained_fully(dev: np.ndarray, judged: np.ndarray, epochs: int, begun: Sequence[int], seed: int = 1) -> list[Selected]:
    """So many trainings to their end, drawn without replacement."""
    drawn = _drawn(len(dev), seed)
    return [_selected(n, n * epochs, dev, judged, drawn[:, :n]) for n in begun]


def stopped_early(
    early: np.ndarray, dev: np.ndarray, judged: np.ndarray, after: int, epochs: int, keep: float, begun: Sequence[int], seed: int = 1
) -> list[Selected]:  # fmt: skip
    """So many trainings, of which only the share `keep` with the best dev scores after some epochs (`early`) is trained to the end."""
    drawn, results = _drawn(len(dev), seed), []
    for n in begun:
        kept = ceil(round(keep * n, 9))
        order = np.argsort(-early[drawn[:, :n]], axis=1, kind="stable")[:, :kept]
        left = np.take_along_axis(drawn[:, :n], order, axis=1)
        results.append(_selected(n, n * after + kept * (epochs - after), dev, judged, left))
    return results


def _drawn(trainings: int, seed: int) -> np.ndarray:
    """Random orders of all trainings, (draws, trainings): the first n of each are a sample without replacement."""
    return np.random.default_rng(seed).permuted(np.tile(np.arange(trainings), (DRAWS, 1)), axis=1)


def _selected(begun: int, epochs: float, dev: np.ndarray, judged: np.ndarray, drawn: np.ndarray) -> Selected:
    best = np.take_along_axis(drawn, dev[drawn].argmax(1)[:, None], axis=1)[:, 0]
    return Selected(begun, epochs, float(dev[best].mean()), float(judged[best].mean()))
