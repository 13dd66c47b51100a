"""What an evaluation makes of one model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from components.comparison import verdicts
from components.core.keyed import generator


@dataclass(frozen=True)
class Answers:
    """Of one model to all items of an evaluation."""

    protocol: str
    """By which rule it was scored."""
    values: np.ndarray
    """(items,): 1 for a right answer, 0 for a wrong one, .5 for a tie; NaN for an item that could not be put to it."""
    groups: np.ndarray
    """(items,) of texts: what the figures are told apart by, as phenomena."""
    weights: np.ndarray
    """(items,): how much each counts in the whole; their mean is 1."""
    items: pd.DataFrame
    """What is kept of each, a row an item."""
    figures: dict[str, Any]
    """Besides the share of right answers."""


def side(values: np.ndarray, weights: np.ndarray, drawn: bool = True) -> verdicts.Side:
    """A side of a comparison, of the answers of some runs to the same items: values (runs, items), weights (items,)."""
    items = len(weights)
    blocks = np.array_split(generator(0).permutation(items), min(verdicts.BLOCKS, items))
    return verdicts.of_values(values * weights / weights.mean(), blocks, drawn)
