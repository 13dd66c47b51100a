"""Calibration of a classifier's probabilities, and temperature scaling."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from components import params
from components.tasks import Example

BINS = 15
"""Of equal width, as in Guo et al. 2017."""
IMPOSSIBLE = -1e9
"""The logit of a label without training examples, in a model that knows only those that it has seen."""


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities of the labels, (examples, labels)."""
    return softmax(logits / temperature, axis=1)


def label_indices(task: params.Task, examples: Sequence[Example]) -> np.ndarray:
    """The index of each example's label, (examples,)."""
    return np.array([task.labels.index(example.label) for example in examples])


def reliability(likely: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each bin of the highest probability (including its upper end): the count, the mean probability and the accuracy, (bins, 3).
    `likely` (examples, labels) has probabilities."""
    confidence, right = likely.max(1), likely.argmax(1) == labels
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    sums = np.stack([np.bincount(bins, value, minlength=BINS) for value in (confidence, right)], 1)
    return np.column_stack([counts, sums / np.maximum(counts, 1)[:, None]])


def expected_calibration_error(likely: np.ndarray, labels: np.ndarray) -> float:
    """The distance between probability and accuracy, averaged over the bins weighted by their counts (Guo et al. 2017, equation 3)."""
    counts, confidence, right = reliability(likely, labels).T
    return float(np.sum(counts * np.abs(confidence - right)) / len(labels))


def brier_score(likely: np.ndarray, labels: np.ndarray) -> float:
    """The squared distance to the one-hot label, summed over the labels and averaged: 0 to 2 (Brier 1950)."""
    return float(np.mean(np.sum((likely - np.eye(likely.shape[1])[labels]) ** 2, 1)))


def evaluate(likely: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {"expected_calibration_error": expected_calibration_error(likely, labels), "brier_score": brier_score(likely, labels)}


def fitted_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the highest likelihood of the labels; it changes no prediction (Guo et al. 2017, section 4.2).

    Between .05 and 20: where all predictions are right, or carry no information, the likelihood has no maximum. An example
    whose label is IMPOSSIBLE is so at any temperature, and says nothing of it; with such examples alone it is 1.
    """
    possible = logits[np.arange(len(labels)), labels] > IMPOSSIBLE
    logits, labels = logits[possible], labels[possible]
    if not len(labels):
        return 1.0

    def cross_entropy(log_temperature: float) -> float:
        return -float(np.mean(log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(labels)), labels]))

    return float(np.exp(minimize_scalar(cross_entropy, bounds=(np.log(0.05), np.log(20)), method="bounded").x))


def split_probabilities(logits: Mapping[str, np.ndarray], dev_labels: np.ndarray, scaled: bool) -> tuple[dict[str, np.ndarray], float]:
    """Probabilities of each split, and the temperature: 1, or if `scaled` the one fitted to the labels of dev.

    On dev each half is scaled with the temperature fitted to the other half, so that no probability depends on its own label.
    """
    if not scaled:
        return {split: probabilities(values) for split, values in logits.items()}, 1.0
    temperature, dev = fitted_temperature(logits["dev"], dev_labels), np.zeros_like(logits["dev"])
    for half in (slice(0, None, 2), slice(1, None, 2)):
        other = slice(1 - half.start, None, 2)
        dev[half] = probabilities(logits["dev"][half], fitted_temperature(logits["dev"][other], dev_labels[other]))
    return {split: probabilities(values, temperature) for split, values in logits.items()} | {"dev": dev}, temperature
