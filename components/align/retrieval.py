"""From mapped words to their nearest words in the other space. All rows are unit vectors."""

import numpy as np

BLOCK = 1024
"""Rows compared at a time: bounds memory to BLOCK x vocabulary floats."""


def neighbourhood(rows: np.ndarray, others: np.ndarray, k: int) -> np.ndarray:
    """(n,) mean cosine of each of `rows` (n, d) with its k nearest of `others` (m, d): how crowded it is there."""
    k = min(k, len(others))
    means = [np.partition(rows[i : i + BLOCK] @ others.T, -k, axis=1)[:, -k:].mean(axis=1) for i in range(0, len(rows), BLOCK)]
    return np.concatenate(means)


def nn(queries: np.ndarray, targets: np.ndarray, sources: np.ndarray, k: int) -> np.ndarray:
    """Cosine, (q, n). A few targets, the hubs, are nearest to many queries."""
    return queries @ targets.T


def csls(queries: np.ndarray, targets: np.ndarray, sources: np.ndarray, k: int) -> np.ndarray:
    """Cross-domain similarity local scaling (Conneau et al. 2018, section 2.3): 2 cos(x, y) − r_T(x) − r_S(y), (q, n).

    r_S is taken over all of `sources`, the whole mapped source vocabulary, not over the queries.
    """
    return 2 * queries @ targets.T - neighbourhood(queries, targets, k)[:, None] - neighbourhood(targets, sources, k)[None, :]


RETRIEVALS = {"nn": nn, "csls": csls}
"""queries (q, d), targets (n, d), sources (m, d), k -> scores (q, n)."""


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """(q, k) columns of the k best scores of each row, best first; ties go to the lower column, the more frequent word."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]
