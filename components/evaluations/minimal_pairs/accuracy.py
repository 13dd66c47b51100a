"""Which sentence of a pair a model prefers."""

import numpy as np

TIE = 1e-4
"""In nats. Two sums that differ less are equal: float32 sums differ as much in another batch or order."""


def is_right(margins: np.ndarray) -> np.ndarray:
    """1 where the right sentence is more probable, .5 where both are equally probable."""
    return np.where(np.abs(margins) <= TIE, 0.5, margins > 0)
