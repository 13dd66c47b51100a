"""Two spaces in two dimensions, before and after the alignment: only an illustration, since two of hundreds of dimensions are shown."""

from collections.abc import Iterator

import numpy as np

from components.embeddings import evaluate
from components.embeddings.space import Space

SHOWN = 100
"""Test words, each with a translation."""
NEAR = 4
"""Neighbours of a word that are drawn with its trajectory, for its first and its last period."""


def rows(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray], source: list[str], target: list[str],
    test: dict[str, set[str]], queries: list[str],
) -> Iterator[dict]:  # fmt: skip
    """For each test word and its most frequent translation the word, its side, the number of the pair and its positions.

    `before` and `after` are the vectors of both sides, (n, d) and (m, d). Before, each side has its principal axes, since
    the two have none in common; after, both share them.
    """
    here, there = ({word: row for row, word in enumerate(words)} for words in (source, target))
    pairs = [(here[word], min(there[gold] for gold in test[word] if gold in there)) for word in queries[:SHOWN]]
    if not pairs:
        return
    left, right = np.array(pairs).T
    apart = np.concatenate([_two_axes(before[0][left]), _two_axes(before[1][right])])
    together = _two_axes(np.concatenate([after[0][left], after[1][right]]))
    positions = np.concatenate([side / max(np.abs(side).max(), 1e-12) for side in (apart, together)], axis=1).round(4).tolist()
    sides = [("source", source[row]) for row in left] + [("target", target[row]) for row in right]
    for i, ((side, word), (a, b, c, d)) in enumerate(zip(sides, positions, strict=True)):
        yield {"word": word, "side": side, "pair": i % len(pairs), "before_x": a, "before_y": b, "after_x": c, "after_y": d}


def trajectories(
    words: list[str], periods: list[str], spaces: dict[str, Space], aligned: dict[str, np.ndarray], index: dict[str, dict[str, int]]
) -> list[dict]:  # fmt: skip
    """The position of each of the `words` in each period, and the last position of each of its neighbours in the first
    and the last period: where a word is no longer used, that in the newest period which has it.

    The axes are the two principal axes of these points (Hamilton et al. 2016, figure 1, with t-SNE). `of` is the word whose neighbour a
    word is; `period` is empty for neighbours.
    """
    last = periods[-1]
    points = [(word, word, period, aligned[period][index[period][word]]) for word in words for period in periods]
    for word in words:
        near = [evaluate.nearest_words(aligned[p], spaces[p].words, [index[p][word]], NEAR)[0].split() for p in (periods[0], last)]
        for other in dict.fromkeys(sum(near, [])):
            newest = next(period for period in reversed(periods) if other in index[period])
            points.append((other, word, "", aligned[newest][index[newest][other]]))
    positions = _two_axes(np.stack([vector for *_, vector in points])) if points else np.zeros((0, 2))
    return [
        {"word": word, "of": of, "period": period, "x": round(float(x), 4), "y": round(float(y), 4)}
        for (word, of, period, _), (x, y) in zip(points, positions, strict=True)
    ]


def _two_axes(vectors: np.ndarray) -> np.ndarray:
    """The vectors (n, d) on their two principal axes, (n, 2); the largest entry of an axis is positive."""
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, axes.shape[1]))])[:2]  # a single vector, or a single dimension, has fewer than two
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    return centred @ axes.T
