"""How much each item counts in the whole."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def by_group(groups: Sequence[str]) -> np.ndarray:
    """(items,): each group counts the same, whatever its size; their mean is 1."""
    names = pd.Series(groups)
    weights = 1 / names.map(names.value_counts()).to_numpy(float)
    return weights / weights.mean()
