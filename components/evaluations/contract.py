"""What an evaluation makes of one model."""

from collections.abc import Mapping, Sequence
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
    """By which rule it was scored. Models are compared within one."""
    values: np.ndarray
    """(items,): the score of each, as 1 for a right answer, 0 for a wrong one, .5 for a tie; NaN where the item could
    not be put to the model."""
    groups: np.ndarray
    """(items,) of texts: what the figures are told apart by, as phenomena."""
    weights: np.ndarray
    """(items,): how much each counts in the whole; their mean is 1."""
    items: pd.DataFrame
    """What is kept of each, a row an item."""
    figures: dict[str, Any]
    """Besides the score: `error`, its standard error, and `references`, the scores of what is no model."""
    measure: str = "accuracy"
    """What the values are."""
    clusters: np.ndarray | None = None
    """(items,): items that are no independent ones have one number, as the words of a sentence; None: each is by
    itself."""
    layers: Sequence[Mapping[str, float]] = ()
    """Figures of every layer, the embedding first, where an evaluation reads them one by one."""


def side(
    values: np.ndarray, weights: np.ndarray, drawn: bool = True, clusters: np.ndarray | None = None
) -> verdicts.Side:
    """A side of a comparison, of the answers of some runs to the same items.

    Args:
        values: (runs, items)
        weights: (items,)
        drawn: Whether the runs are a sample of those that there could be.
        clusters: (items,): those with one number are left out together.
    """
    numbers = np.arange(len(weights)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    several = np.array_split(generator(0).permutation(numbers.max() + 1), min(verdicts.BLOCKS, numbers.max() + 1))
    blocks = several if clusters is None else [np.flatnonzero(np.isin(numbers, own)) for own in several]
    return verdicts.of_values(values * weights / weights.mean(), blocks, drawn)
