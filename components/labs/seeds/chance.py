"""How much of a score is the draw of its seeds, and what many draws are worth.

A grid has the score of every initialisation in every order of the examples. What it is made of is a two-way analysis of variance
without repetition: what rows and columns do not explain is their interaction, and what no seed controls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

DRAWS = 2000


@dataclass(frozen=True)
class Part:
    """What one of the two kinds of seed brings."""

    share: float
    """Of the sum of squares of the grid."""
    by_chance: float
    """The share that it would have on average without any effect, beside what the other one explains."""
    p: float
    """Of a share as large where, for each seed of the other kind, scores are dealt out again."""


def parts(grid: np.ndarray, seed: int = 1) -> tuple[Part, Part]:
    """Of scores (initialisations, orders): what the initialisation explains, and what the order does; nothing where all are the same."""
    shares = [_share(grid[None], other)[0] for other in (2, 1)]
    freedom, made = (grid.shape[0] - 1, grid.shape[1] - 1), []
    for own, axis in enumerate((1, 2)):  # among the initialisations scores of the same order change places, and the other way round
        dealt = np.random.default_rng(seed).permuted(np.tile(grid, (DRAWS, 1, 1)), axis=axis)
        p = (1 + (_share(dealt, 3 - axis) >= shares[own] - 1e-12).sum()) / (DRAWS + 1)
        by_chance = (1 - shares[1 - own]) * freedom[own] / (freedom[own] + freedom[0] * freedom[1])
        made.append(Part(float(shares[own]), float(by_chance), float(p)))
    return made[0], made[1]


def _share(grids: np.ndarray, other: int) -> np.ndarray:
    """Of each grid (grids, initialisations, orders) the share that means over the axis `other` explain."""
    whole = grids.mean((1, 2), keepdims=True)
    explained = ((grids.mean(other, keepdims=True) - whole) ** 2).sum((1, 2)) * grids.shape[other]
    total = ((grids - whole) ** 2).sum((1, 2))
    return np.divide(explained, total, out=np.zeros_like(total), where=total > 0)


def gain(dev: np.ndarray, judged: np.ndarray, begun: int, seed: int = 1) -> tuple[float, float, float]:
    """Of grids (initialisations, orders): by how much the best on dev of so many is expected above one training on the other split, and the
    95 % interval over initialisations and orders drawn again: the trainings of one initialisation are no independent
    draws."""
    rng = np.random.default_rng(seed)
    draws = [(rng.integers(0, dev.shape[0], dev.shape[0]), rng.integers(0, dev.shape[1], dev.shape[1])) for _ in range(DRAWS)]
    found = [_gain(dev[np.ix_(*own)].ravel(), judged[np.ix_(*own)].ravel(), begun) for own in draws]
    low, high = np.quantile(found, [0.025, 0.975])
    return _gain(dev.ravel(), judged.ravel(), begun), float(low), float(high)


def _gain(dev: np.ndarray, judged: np.ndarray, begun: int) -> float:
    """With weights as in the expected validation performance (Dodge et al. 2019), of the score that goes with it."""
    ranks = np.arange(1, len(dev) + 1) / len(dev)
    weights = ranks**begun - (ranks - 1 / len(dev)) ** begun
    return float(weights @ judged[dev.argsort(kind="stable")] - judged.mean())


@dataclass(frozen=True)
class Picked:
    """The best on dev of some trainings, over many draws of these."""

    begun: int
    epochs: float
    """That they cost together."""
    dev: float
    judged: float
    """Of the same training, on the split that it was not picked by."""


def whole(dev: np.ndarray, judged: np.ndarray, epochs: int, begun: Sequence[int], seed: int = 1) -> list[Picked]:
    """So many of the trainings, each to its end, drawn without putting back."""
    drawn = _drawn(len(dev), seed)
    return [_picked(n, n * epochs, dev, judged, drawn[:, :n]) for n in begun]


def stopped(
    looks: np.ndarray, dev: np.ndarray, judged: np.ndarray, after: int, epochs: int, keep: float, begun: Sequence[int], seed: int = 1
) -> list[Picked]:  # fmt: skip
    """The same, but of those begun the share `keep` alone, the best on dev (`looks`) after some epochs, is trained to its end."""
    drawn, made = _drawn(len(dev), seed), []
    for n in begun:
        kept = ceil(round(keep * n, 9))
        order = np.argsort(-looks[drawn[:, :n]], axis=1, kind="stable")[:, :kept]
        left = np.take_along_axis(drawn[:, :n], order, axis=1)
        made.append(_picked(n, n * after + kept * (epochs - after), dev, judged, left))
    return made


def _drawn(trainings: int, seed: int) -> np.ndarray:
    """Orders of all trainings, (draws, trainings): the first n of each are n of them without putting back."""
    return np.random.default_rng(seed).permuted(np.tile(np.arange(trainings), (DRAWS, 1)), axis=1)


def _picked(begun: int, epochs: float, dev: np.ndarray, judged: np.ndarray, drawn: np.ndarray) -> Picked:
    best = np.take_along_axis(drawn, dev[drawn].argmax(1)[:, None], axis=1)[:, 0]
    return Picked(begun, epochs, float(dev[best].mean()), float(judged[best].mean()))
