"""Linear maps from one vector space onto another, learned from pairs of rows that should coincide."""

import numpy as np
from scipy.linalg import orthogonal_procrustes


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) scaled to length 1; a zero row stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Unit length, mean-centred, unit length again (Artetxe et al. 2018, section 3.1), all (n, d)."""
    vectors = unit(vectors)
    return unit(vectors - vectors.mean(axis=0))


def least_squares(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises ‖source W − target‖ over all matrices (Mikolov et al. 2013). At its worst with about d pairs."""
    return np.linalg.lstsq(source, target, rcond=None)[0].astype(source.dtype)


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """W (d, d) that minimises the same over rotations and reflections (Schönemann 1966; Xing et al. 2015)."""
    return orthogonal_procrustes(source, target)[0].astype(source.dtype)


MAPPINGS = {"least_squares": least_squares, "procrustes": procrustes}
"""(pairs, d), (pairs, d) -> (d, d); a row x of the source is mapped to x W."""
