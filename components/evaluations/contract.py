"""The result of evaluating one model, and checks that all kinds of evaluation share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from components.comparison import sides
from components.core.errors import SesameError
from components.core.keyed import generator

MIN_ITEMS = 2
"""Items, or clusters of items, needed to estimate an error."""
ITEM_COUNTS = ("pairs", "items", "sentences", "test_sentences")
"""Names of the number of items in the figures of `prepare`."""


@dataclass(frozen=True)
class Answers:
    """The answers of one model to all items of an evaluation."""

    protocol: str
    """The scoring rule. Bits per byte are compared only between models with the same one."""
    values: np.ndarray
    """(items,): the score of each, as 1 for a right answer, 0 for a wrong one, .5 for a tie; NaN where the item could
    not be scored. The overall score is their weighted mean."""
    groups: np.ndarray
    """(items,) of str: groups with figures of their own, as phenomena."""
    weights: np.ndarray
    """(items,): weights in the overall score; their mean is 1."""
    items: pd.DataFrame
    """The table to write, one row per item."""
    figures: dict[str, Any]
    """More figures: `references`, scores of baselines, and counts. With several pre-trainings those of the first."""
    measure: str = "accuracy"
    """The unit of the values."""
    clusters: np.ndarray | None = None
    """(items,): items that depend on each other have the same number, as the words of a sentence; None: all are
    independent."""
    layers: Sequence[Mapping[str, float]] = ()
    """Figures of every layer, the embedding first, for evaluations of single layers."""
    strata: np.ndarray | None = None
    """(items,): sets of items that count the same, however many of them are read: the paradigms of published pairs. `weights` are then
    of the items that this model reads."""
    averaged: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the model. With several pre-trainings their mean is reported."""
    layer: int | None = None
    """The layer that the answers are of, which was selected without the items; None: no single one."""


def rule(answers: Sequence[Answers]) -> str:
    """The scoring rule of answers by several pre-trainings, each of which may answer from another layer."""
    protocol, layers = answers[0].protocol, [each.layer for each in answers]
    if layers[0] is None:
        return protocol
    if len(set(layers)) == 1:
        return f"{protocol}, layer {layers[0]}"
    return f"{protocol}, layers {', '.join(map(str, layers))} of the pre-trainings"


def side(values: np.ndarray, weights: np.ndarray, drawn: bool = True, clusters: np.ndarray | None = None) -> sides.Side:
    """One side of a comparison: the answers of several runs to the same items.

    Args:
        values: (runs, items)
        weights: (items,)
        drawn: Whether the runs are a sample of all possible runs.
        clusters: (items,): items with the same number are left out together.
    """
    numbers = np.arange(len(weights)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    count = numbers.max() + 1
    blocks = []
    if count > 1:  # the variance of a single item or cluster is unknown
        blocks = np.array_split(generator(0).permutation(count), min(sides.BLOCKS, count))
        if clusters is not None:
            blocks = [np.flatnonzero(np.isin(numbers, block)) for block in blocks]
    return sides.of_values(values, blocks, drawn, weights, int(count))


def group_weights(groups: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Weights (items,) with mean 1, by which all groups count the same. Items that were not read, NaN in `values`
    (items,), don't count for their group."""
    names = pd.Series(groups)
    counts = names.map(names[np.isfinite(values)].value_counts()).fillna(1).to_numpy(float)
    return (1 / counts) / (1 / counts).mean()


def weights_among(weights: np.ndarray, strata: Sequence[str] | None, known: np.ndarray) -> np.ndarray:
    """Weights of the items that all of several models read, `known` (items,): each stratum counts the same among these, too."""
    return weights[known] if strata is None else group_weights(np.asarray(strata)[known], np.ones(known.sum()))


def check_size(figures: dict) -> dict:
    """The figures of a prepared evaluation. Raises SesameError where it has too few items for any model."""
    key = next((key for key in ITEM_COUNTS if key in figures), None)
    if key is None:
        raise SesameError(f"`prepare` returned no number of items; it returns one of {', '.join(ITEM_COUNTS)} among its figures")
    if figures[key] < MIN_ITEMS:
        count = f"{key.replace('_', ' ')}: {figures[key]}"
        raise SesameError(f"{count}, and the error of a score needs {MIN_ITEMS} or more; give more of them")
    return figures


def check_answers(answers: Answers, name: str) -> Answers:
    """The answers of the model `name`. Raises SesameError where it could read too few items."""
    clusters = np.arange(len(answers.values)) if answers.clusters is None else np.asarray(answers.clusters)
    scored = len(np.unique(clusters[np.isfinite(answers.values)]))
    if scored < MIN_ITEMS:
        items = "items" if answers.clusters is None else "sentences"
        raise SesameError(
            f"{name} can read {scored} of {len(np.unique(clusters))} {items}, and the error of a score needs {MIN_ITEMS} or more; "
            "give more of them, or shorter ones"
        )
    return answers
