"""Linear maps that bring two vector spaces together, learned from pairs of rows that should coincide.

`fit` runs the steps of a method in the frame of Artetxe et al. (2018a): normalise, whiten, map, re-weight, de-whiten, reduce.
Algebra is in double precision, spaces in float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import orthogonal_procrustes
from torch import Tensor

from components import params
from components.embeddings.neighbours import nearest

SMALLEST = 1e-6
"""Of the largest singular value: directions with less are not whitened, since the pairs say nothing of them."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) scaled to length 1; a zero row stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def centre(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) less their mean."""
    return vectors - vectors.mean(axis=0)


NORMALISATIONS = {"unit": unit, "centre": centre}


def normalise(vectors: np.ndarray, steps: Iterable[str] = ("unit", "centre", "unit")) -> np.ndarray:
    """The whole vocabulary (n, d), a step after another (Artetxe et al. 2018b, section 3.1)."""
    for step in steps:
        vectors = NORMALISATIONS[step](vectors)
    return vectors


def least_squares(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises ‖source W − target‖ over all matrices (Mikolov et al. 2013). At its worst with about d pairs."""
    return np.linalg.lstsq(source, target, rcond=None)[0].astype(source.dtype)


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises the same over rotations and reflections (Schönemann 1966; Xing et al. 2015)."""
    return orthogonal_procrustes(source, target)[0].astype(source.dtype)


def rcsls(
    source: np.ndarray, target: np.ndarray, sources: np.ndarray, targets: np.ndarray, k: int, rounds: int = 10, rate: float = 1.0
) -> np.ndarray:
    """W (d, d) that makes CSLS itself small on the pairs (Joulin et al. 2018, equation 7), by gradient steps from Procrustes.

    `sources` and `targets` are the vocabularies among which the neighbours are. A step that makes the loss larger is taken back and
    the rate halved; all singular values stay at 1 or less, the convex hull of the rotations (section 2.3).
    """
    x, z, xs, zs = (torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in (source, target, sources, targets))
    w = torch.from_numpy(procrustes(source, target)).float()
    last, last_w, gradient = np.inf, w, None
    for _ in range(rounds + 1):
        mapped = x @ w
        near_z, near_x = neighbourhood(mapped, zs, zs, k), neighbourhood(z, xs @ w, xs, k)
        loss = rcsls_loss(w, x, z, near_x, near_z)
        if loss > last:
            rate /= 2
        else:
            gradient = (-2 * x.T @ z + x.T @ near_z + near_x.T @ z) / len(x)
            last, last_w = loss, w
        u, s, vt = torch.linalg.svd(last_w - rate * gradient)
        w = u * s.clamp(max=1) @ vt
    return last_w.numpy()


def neighbourhood(queries: Tensor, others: Tensor, values: Tensor, k: int) -> Tensor:
    """(n, d): for each of `queries` (n, d) the mean of the `values` (m, d) of its k nearest of `others` (m, d)."""
    return values[nearest(queries, others, k)[1]].mean(dim=1)


def rcsls_loss(w: Tensor, x: Tensor, z: Tensor, near_x: Tensor, near_z: Tensor) -> float:
    """Joulin et al. 2018, equation 7, of the pairs x, z (n, d), given the means of their neighbours of either language, (n, d)."""
    mapped = x @ w
    return float((-2 * (mapped * z) + mapped * near_z + (near_x @ w) * z).sum(dim=1).mean())


@dataclass(frozen=True)
class Fitted:
    """Two matrices (d, k): rows of either normalised space, multiplied with its own, are in one space."""

    source: np.ndarray
    target: np.ndarray

    def bring(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both spaces, (n, d) and (m, d), in one: unit rows (n, k) and (m, k), float32."""
        return unit(x @ self.source).astype(np.float32), unit(z @ self.target).astype(np.float32)


def fit(x: np.ndarray, z: np.ndarray, rows: np.ndarray, method: params.Method) -> Fitted:
    """Learn from the pairs `rows` (pairs, 2) of two normalised spaces (n, d), (m, d)."""
    source, target = x[rows[:, 0]].astype(np.float64), z[rows[:, 1]].astype(np.float64)
    same = np.eye(x.shape[1])
    if method.map == "least_squares":
        return Fitted(least_squares(source, target), same)
    if method.map == "rcsls":
        cut = method.neighbours_among
        return Fitted(rcsls(source, target, x[:cut], z[:cut], method.csls_k), same)

    to_x, to_z = (_whitening(part) if method.whiten else (same, same) for part in (source, target))
    u, s, vt = np.linalg.svd((source @ to_x[0]).T @ (target @ to_z[0]))
    from_source, from_target = method.reweight
    w_x, w_z = to_x[0] @ u * s**from_source, to_z[0] @ vt.T * s**from_target
    if method.dewhiten:  # each side gets its own variances back, in the coordinates they now have in common
        w_x, w_z = w_x @ u.T @ to_x[1] @ u, w_z @ vt @ to_z[1] @ vt.T
    kept = max(1, round(len(s) * method.dimensions))  # those that agree best come first
    return Fitted(w_x[:, :kept], w_z[:, :kept])


def _whitening(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(d, d) that makes the dimensions of rows (n, d) uncorrelated and of one variance, and the matrix that undoes it."""
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    s, vt = s[s > SMALLEST * s[0]], vt[s > SMALLEST * s[0]]
    rest = np.eye(rows.shape[1]) - vt.T @ vt  # what the pairs say nothing of stays as it is
    return vt.T / s @ vt + rest, vt.T * s @ vt + rest
