"""Two spaces in two dimensions, before and after they are brought together: for the eye alone, since two of hundreds say little."""

from collections.abc import Iterator

import numpy as np

from components.embeddings import evaluate
from components.embeddings.space import Space

SHOWN = 100
"""Test words, each with a translation."""
NEAR = 4
"""Neighbours of a word that are drawn with its trajectory, of its first and of its last period."""


def rows(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray], source: list[str], target: list[str],
    test: dict[str, set[str]], queries: list[str],
) -> Iterator[dict]:  # fmt: skip
    """For each test word and its most frequent translation the word, its side, the number of the pair and its places.

    `before` and `after` are the vectors of both sides, (n, d) and (m, d). Before, each side lies along its own principal axes, since
    the two have none in common; after, along those of both together.
    """
    here, there = ({word: row for row, word in enumerate(words)} for words in (source, target))
    pairs = [(here[word], min(there[gold] for gold in test[word] if gold in there)) for word in queries[:SHOWN]]
    if not pairs:
        return
    left, right = np.array(pairs).T
    apart = np.concatenate([_two_axes(before[0][left]), _two_axes(before[1][right])])
    together = _two_axes(np.concatenate([after[0][left], after[1][right]]))
    places = np.concatenate([side / max(np.abs(side).max(), 1e-12) for side in (apart, together)], axis=1).round(4).tolist()
    sides = [("source", source[row]) for row in left] + [("target", target[row]) for row in right]
    for i, ((side, word), (a, b, c, d)) in enumerate(zip(sides, places, strict=True)):
        yield {"word": word, "side": side, "pair": i % len(pairs), "before_x": a, "before_y": b, "after_x": c, "after_y": d}


def trajectories(
    words: list[str], periods: list[str], spaces: dict[str, Space], placed: dict[str, np.ndarray], index: dict[str, dict[str, int]]
) -> list[dict]:  # fmt: skip
    """Where each of the `words` stands in each period, and words near it in the first and the last, as they stand in the last.

    All in one picture, along the two principal axes of these points (Hamilton et al. 2016, figure 1, by t-SNE). `of` names the word that
    a neighbour belongs to; `period` is empty for neighbours.
    """
    last = periods[-1]
    points = [(word, word, period, placed[period][index[period][word]]) for word in words for period in periods]
    for word in words:
        near = [evaluate.nearest_words(placed[p], spaces[p].words, [index[p][word]], NEAR)[0].split() for p in (periods[0], last)]
        for other in dict.fromkeys(sum(near, [])):
            if other in index[last]:
                points.append((other, word, "", placed[last][index[last][other]]))
    places = _two_axes(np.stack([vector for *_, vector in points])) if points else np.zeros((0, 2))
    return [
        {"word": word, "of": of, "period": period, "x": round(float(x), 4), "y": round(float(y), 4)}
        for (word, of, period, _), (x, y) in zip(points, places, strict=True)
    ]


def _two_axes(vectors: np.ndarray) -> np.ndarray:
    """(n, 2): the vectors (n, d) along their two principal axes, which point where their largest entry is positive."""
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, axes.shape[1]))])[:2]  # of one vector, or of one dimension, there are fewer than two
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    return centred @ axes.T
