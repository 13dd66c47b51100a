"""How well a mapping finds translations, and which words moved."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from components.align.retrieval import BLOCK, nn, top
from components.align.vectors import Space

RANKS = (1, 5, 10)


def index(space: Space) -> dict[str, int]:
    """Word -> row."""
    return {word: row for row, word in enumerate(space.words)}


def covered(test: dict[str, set[str]], source: Space, target: Space) -> list[str]:
    """The test words that can be asked for: in the source vocabulary, with a translation in the target's.

    Precision is over these; their share of all test words is the *coverage* and stands beside it.
    """
    here, there = set(source.words), set(target.words)
    return [word for word, gold in test.items() if word in here and gold & there]


def precision(best: np.ndarray, queries: list[str], test: dict[str, set[str]], words: list[str]) -> dict[str, float]:
    """P@1, P@5, P@10 as shares: a query is a hit when any of its translations is among the k best.

    `best` (queries, >= 10): rows of the target vocabulary, best first.
    """
    hits = np.array([[words[row] in test[query] for row in rows] for query, rows in zip(queries, best, strict=True)], dtype=bool)
    return {f"p{k}": float(hits[:, :k].any(axis=1).mean()) for k in RANKS}


def chance(queries: list[str], test: dict[str, set[str]], words: list[str]) -> float:
    """P@1 of a guess at random: the mean share of the target vocabulary that would count."""
    there = set(words)
    return float(np.mean([len(test[query] & there) for query in queries]) / len(words))


def moved(source: Space, target: Space, mapped: np.ndarray, fixed: np.ndarray, min_count: int) -> list[dict]:
    """Every word of both spaces with `min_count` occurrences in each, the one that moved most first.

    `mapped` (source words, d) and `fixed` (target words, d) are unit vectors in one space. `distance` is 1 − cosine;
    the neighbours are the five nearest words of the word's own space.
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
    before, after = _neighbours(mapped, source.words, a), _neighbours(fixed, target.words, b)
    return [
        {
            "word": source.words[a[i]], "distance": round(float(distance[i]), 4),
            "source_count": int(source.counts[a[i]]), "target_count": int(target.counts[b[i]]),
            "source_neighbours": before[i], "target_neighbours": after[i],
        }
        for i in np.argsort(-distance, kind="stable")
    ]  # fmt: skip


def _neighbours(vectors: np.ndarray, words: list[str], rows: np.ndarray, k: int = 5) -> list[str]:
    neighbours = []
    for i in range(0, len(rows), BLOCK):
        best = top(nn(vectors[rows[i : i + BLOCK]], vectors, vectors, k), k + 1)  # the word itself is among them
        neighbours += [" ".join([words[n] for n in near if n != row][:k]) for row, near in zip(rows[i : i + BLOCK], best, strict=True)]
    return neighbours


def write_csv(path: Path, rows: Iterable[dict]) -> None:
    """Rows with the same keys as a CSV file with a header."""
    rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
