"""Scores of a mapping's translations, the similarity of two spaces, and words that moved."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import median_filter
from scipy.stats import binomtest, skew, ttest_1samp
from torch import Tensor

from components.comparison.detection import without_variance
from components.embeddings.neighbours import blocks, nearest
from components.embeddings.space import Space

RANKS = (1, 5, 10)
AS_FREQUENT = 101
"""Words of similar frequency whose median is subtracted."""


def index(space: Space) -> dict[str, int]:
    """Word -> row."""
    return {word: row for row, word in enumerate(space.words)}


def covered(test: dict[str, set[str]], source: Space, target: Space) -> list[str]:
    """The test words that are queries: in the source vocabulary, with a translation in the target's.

    Precision is over these; their share of all test words is the *coverage*.
    """
    here, there = set(source.words), set(target.words)
    return [word for word, gold in test.items() if word in here and gold & there]


def hits(best: np.ndarray, queries: list[str], test: dict[str, set[str]], words: list[str]) -> np.ndarray:
    """Whether each of the words found (queries, k), rows of the target vocabulary, best first, is a translation."""
    return np.array([[words[row] in test[query] for row in rows] for query, rows in zip(queries, best, strict=True)], dtype=bool)


def precision(flags: np.ndarray) -> dict[str, float]:
    """P@1, P@5, P@10 as shares: a query is a hit when any of its translations is among the k best. `flags` is
    that of `hits`."""
    return {f"p{k}": float(flags[:, :k].any(axis=1).mean()) for k in RANKS}


def intervals(first: np.ndarray, reference: np.ndarray, unseen: np.ndarray) -> dict[str, float | int | None]:
    """For P@1: its 95 % interval (Wilson), its difference from the reference with a paired interval, and P@1 of unseen queries.

    All (queries,): whether the best word is a hit, the same for the reference, and whether no translation was a target in training:
    the map pulls queries towards those, so that they are found more easily.
    """
    size, less = len(first), first.astype(float) - reference
    wilson = binomtest(int(first.sum()), size).proportion_ci(method="wilson")
    if np.ptp(less):
        low, high = ttest_1samp(less, 0).confidence_interval()
    else:  # equal differences have a variance of 0, and yet say little of other queries; the reference is no sample
        margin = 0.0 if first is reference else without_variance(less[0], size)[0]
        low, high = less[0] - margin, less[0] + margin
    low, high = max(-1.0, low), min(1.0, high)  # of two shares
    return {
        "p1_low": wilson.low, "p1_high": wilson.high, "less_first": float(less.mean()), "less_low": float(low), "less_high": float(high),
        "p1_unseen": float(first[unseen].mean()) if unseen.any() else None, "queries_unseen": int(unseen.sum()),
    }  # fmt: skip


def chance(queries: list[str], test: dict[str, set[str]], words: list[str]) -> float:
    """P@1 of a random guess: the mean share of the target vocabulary that is right."""
    there = set(words)
    return float(np.mean([len(test[query] & there) for query in queries]) / len(words))


def mean_reciprocal_rank(queries: Tensor, targets: Tensor, price: Tensor | None, golds: list[list[int]]) -> float:
    """The mean of 1 / rank of each query's (q, d) best translation among all targets (n, d) (xling-eval's MAP). Of equal targets the
    more frequent word comes first, as in `neighbours.top`, so that identical vectors find nothing."""
    inverse = []
    for start, cosines in blocks(queries, targets):
        scores = cosines if price is None else cosines.sub_(price)
        for row, gold in zip(scores, golds[start : start + len(scores)], strict=True):
            best = row[gold].max()
            position = min(i for i in gold if row[i] == best)
            inverse.append(1 / (1 + int((row > best).sum() + (row[:position] == best).sum())))
    return float(np.mean(inverse))


def hubness(best: np.ndarray, targets: int) -> dict[str, float]:
    """The skewness of how often each target is among the k best (q, k) of all queries (Radovanović et al. 2010), and the
    share of the queries that found the most frequent one."""
    times = np.bincount(best.ravel(), minlength=targets)
    return {"hub_skew": float(skew(times)) if np.ptp(times) else 0.0, "top_hub": float(times.max() / len(best))}


def found_often(best: np.ndarray) -> list[dict]:
    """How many targets are among the k best (q, k) of how many queries."""
    times, targets = np.unique(np.bincount(best.ravel()), return_counts=True)
    return [{"times": int(a), "targets": int(b)} for a, b in zip(times, targets, strict=True) if a]


def unlikeness(x: np.ndarray, z: np.ndarray, words: int = 1000, k: int = 10) -> float:
    """The distance of two normalised spaces (n, d), (m, d) before any map; 0 for the same shape.

    Søgaard et al. 2018, section 3: the squared differences of the largest eigenvalues of the Laplacians of the two nearest-neighbour
    graphs over the `words` most frequent of each, as many as make up 90 % of the sum on the side that needs fewer. An edge joins two words
    if one is among the k nearest of the other.
    """
    words = min(words, len(x), len(z))
    spectra = [np.linalg.eigvalsh(laplacian(side[:words], k))[::-1] for side in (x, z)]
    most = min(int(np.searchsorted(np.cumsum(values) / max(values.sum(), 1e-12), 0.9)) + 1 for values in spectra)
    return float(((spectra[0][:most] - spectra[1][:most]) ** 2).sum())


def laplacian(rows: np.ndarray, k: int) -> np.ndarray:
    """Degrees minus adjacency (n, n) of the graph that joins each of the unit `rows` (n, d) with its k nearest."""
    vectors = torch.from_numpy(rows.astype(np.float32))
    near = nearest(vectors, vectors, k + 1)[1].numpy()
    joined = np.zeros((len(rows), len(rows)))
    for row, others in enumerate(near):  # a word equal to another may not be its own first neighbour
        joined[row, [other for other in others if other != row][:k]] = 1
    joined = np.maximum(joined, joined.T)
    return np.diag(joined.sum(axis=1)) - joined


def moved(source: Space, target: Space, mapped: np.ndarray, fixed: np.ndarray, min_count: int) -> list[dict]:
    """Every word with `min_count` occurrences in both spaces, in descending order of its distance.

    `mapped` (source words, d) and `fixed` (target words, d) are unit vectors in one space. `distance` is 1 − cosine;
    the neighbours are the five nearest words in the word's space.
    """
    rows = index(target)
    shared = [
        (row, rows[word])
        for row, word in enumerate(source.words)
        if word in rows and min(source.counts[row], target.counts[rows[word]]) >= min_count
    ]
    if not shared:
        return []
    a, b = np.array(shared).T
    distance = 1 - np.einsum("nd,nd->n", mapped[a], fixed[b])
    before, after = nearest_words(mapped, source.words, a), nearest_words(fixed, target.words, b)
    return [
        {
            "word": source.words[a[i]], "distance": round(float(distance[i]), 4),
            "source_count": int(source.counts[a[i]]), "target_count": int(target.counts[b[i]]),
            "source_neighbours": before[i], "target_neighbours": after[i],
        }
        for i in np.argsort(-distance, kind="stable")
    ]  # fmt: skip


def nearest_words(vectors: np.ndarray, words: list[str], rows: Sequence[int] | np.ndarray, k: int = 5) -> list[str]:
    """The k nearest words of each of the `rows` in a space (n, d) of unit vectors, without the word itself, separated by blanks."""
    space = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    best = nearest(space[torch.as_tensor(rows)], space, k + 1)[1].numpy()  # the word itself is among them
    return [" ".join([words[n] for n in near if n != row][:k]) for row, near in zip(rows, best, strict=True)]


def beyond_frequency(distance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Each distance minus that of words of similar frequency, (n,): rare words are far from themselves in any two texts.

    That is the median of the AS_FREQUENT words nearest in `counts` (n,). A smooth fit, as isotonic regression or a
    polynomial, would follow an isolated word at either end and leave it no distance.
    """
    order = np.argsort(counts, kind="stable")
    usual = np.empty(len(distance))
    usual[order] = median_filter(distance[order], AS_FREQUENT, mode="reflect")
    return distance - usual


def write_csv(path: Path, rows: Iterable[dict]) -> None:
    """Rows with the same keys as a CSV file with a header."""
    rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
