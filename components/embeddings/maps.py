"""Linear maps between two vector spaces, learned from pairs of rows that should coincide.

`fit` runs the steps of Artetxe et al. (2018a): normalise, whiten, map, re-weight, de-whiten, reduce. Linear algebra is in double
precision, spaces are in float32.
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
"""Relative to the largest singular value: smaller directions are not whitened, since the pairs do not determine them."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) scaled to length 1; a zero row stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def centre(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) minus their mean."""
    return vectors - vectors.mean(axis=0)


NORMALISATIONS = {"unit": unit, "centre": centre}


def normalise(vectors: np.ndarray, steps: Iterable[str] = ("unit", "centre", "unit")) -> np.ndarray:
    """Apply the steps to the full vocabulary (n, d) (Artetxe et al. 2018b, section 3.1)."""
    for step in steps:
        vectors = NORMALISATIONS[step](vectors)
    return vectors


def least_squares(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises ‖source W − target‖ over all matrices (Mikolov et al. 2013). Worst with about d pairs."""
    return np.linalg.lstsq(source, target, rcond=None)[0].astype(source.dtype)


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises the same over rotations and reflections (Schönemann 1966; Xing et al. 2015)."""
    return orthogonal_procrustes(source, target)[0].astype(source.dtype)


def rcsls(
    source: np.ndarray, target: np.ndarray, sources: np.ndarray, targets: np.ndarray, k: int, rounds: int = 10, rate: float = 1.0
) -> np.ndarray:
    """W (d, d) that minimises CSLS on the pairs (Joulin et al. 2018, equation 7), by gradient descent from Procrustes.

    `sources` and `targets` are the vocabularies of the neighbours. A step that increases the loss is undone and the rate
    halved; all singular values stay at most 1, in the convex hull of the rotations (section 2.3).
    """
    x, z, xs, zs = (torch.from_numpy(np.asarray(rows, dtype=np.float32)) for rows in (source, target, sources, targets))
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
    """For each of `queries` (n, d) the mean of the `values` (m, d) of its k nearest `others` (m, d), (n, d)."""
    return values[nearest(queries, others, k)[1]].mean(dim=1)


def rcsls_loss(w: Tensor, x: Tensor, z: Tensor, near_x: Tensor, near_z: Tensor) -> float:
    """Joulin et al. 2018, equation 7, for the pairs x, z (n, d), given the means of their neighbours in both languages, (n, d)."""
    mapped = x @ w
    return float((-2 * (mapped * z) + mapped * near_z + (near_x @ w) * z).sum(dim=1).mean())


@dataclass(frozen=True)
class Fitted:
    """Two matrices (d, k) that map the two normalised spaces to the common one."""

    source: np.ndarray
    target: np.ndarray

    def apply(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both spaces, (n, d) and (m, d), in the common one: unit rows (n, k) and (m, k), float32."""
        return unit(x @ self.source).astype(np.float32), unit(z @ self.target).astype(np.float32)


def fit(x: np.ndarray, z: np.ndarray, rows: np.ndarray, method: params.Method) -> Fitted:
    """Learn a map from the pairs `rows` (pairs, 2) of two normalised spaces (n, d), (m, d)."""
    source, target = x[rows[:, 0]].astype(np.float64), z[rows[:, 1]].astype(np.float64)
    same = np.eye(x.shape[1])
    if method.map == "least_squares":
        return Fitted(least_squares(source, target), same)
    if method.map == "rcsls":
        cut = method.neighbours_among
        return Fitted(rcsls(source, target, x[:cut], z[:cut], method.csls_k), same)

    to_x, to_z = (_whitening(rows) if method.whiten else (same, same) for rows in (source, target))
    u, s, vt = np.linalg.svd((source @ to_x[0]).T @ (target @ to_z[0]))
    from_source, from_target = method.reweight
    w_x, w_z = to_x[0] @ u * s**from_source, to_z[0] @ vt.T * s**from_target
    if method.dewhiten:  # restore the variances of each side, in the common coordinates
        w_x, w_z = w_x @ u.T @ to_x[1] @ u, w_z @ vt @ to_z[1] @ vt.T
    kept = max(1, round(len(s) * method.dimensions))  # in descending order of agreement
    return Fitted(w_x[:, :kept], w_z[:, :kept])


def _whitening(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix (d, d) that whitens rows (n, d), and its inverse."""
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    s, vt = s[s > SMALLEST * s[0]], vt[s > SMALLEST * s[0]]
    rest = np.eye(rows.shape[1]) - vt.T @ vt  # directions that the pairs do not determine stay unchanged
    return vt.T / s @ vt + rest, vt.T * s @ vt + rest
