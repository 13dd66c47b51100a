"""Whether a classifier's probabilities can be believed, and how they are mended."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from components import params
from components.tasks import Example

BINS = 15
"""Of equal width, as in Guo et al. 2017."""


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Of each label, (examples, labels)."""
    return softmax(logits / temperature, axis=1)


def gold(task: params.Task, examples: Sequence[Example]) -> np.ndarray:
    """The place of each example's label among the task's, (examples,)."""
    return np.array([task.labels.index(example.label) for example in examples])


def reliability(likely: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each bin of the likeliest label's probability (its upper end belongs to it): how many, their mean probability and the share that
    is right; (bins, 3). Likely is (examples, labels)."""
    confidence, right = likely.max(1), likely.argmax(1) == labels
    places = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    sums = np.stack([np.bincount(places, value, minlength=BINS) for value in (confidence, right)], 1)
    return np.column_stack([counts, sums / np.maximum(counts, 1)[:, None]])


def expected_calibration_error(likely: np.ndarray, labels: np.ndarray) -> float:
    """How far probability and share of right answers are apart, over the bins weighed by their counts (Guo et al. 2017, equation 3)."""
    counts, confidence, right = reliability(likely, labels).T
    return float(np.sum(counts * np.abs(confidence - right)) / len(labels))


def brier_score(likely: np.ndarray, labels: np.ndarray) -> float:
    """The squared distance from certainty of the right label, summed over the labels and averaged: 0 to 2 (Brier 1950)."""
    return float(np.mean(np.sum((likely - np.eye(likely.shape[1])[labels]) ** 2, 1)))


def evaluate(likely: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Both figures."""
    return {"expected_calibration_error": expected_calibration_error(likely, labels), "brier_score": brier_score(likely, labels)}


def fitted_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """What logits are divided by so that the labels are likeliest; no prediction changes by it (Guo et al. 2017, section 4.2).

    Between .05 and 20: where all are right, or a model says nothing, likelihood has no maximum.
    """

    def surprise(log_temperature: float) -> float:
        return -float(np.mean(log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(labels)), labels]))

    return float(np.exp(minimize_scalar(surprise, bounds=(np.log(0.05), np.log(20)), method="bounded").x))


def of_splits(logits: Mapping[str, np.ndarray], dev_labels: np.ndarray, scaled: bool) -> tuple[dict[str, np.ndarray], float]:
    """Probabilities of each split, and the temperature: 1, or if `scaled` what fits the labels of dev.

    On dev itself each half is divided by what fits the other, so that no probability has seen its own label.
    """
    if not scaled:
        return {split: probabilities(own) for split, own in logits.items()}, 1.0
    temperature, likely = fitted_temperature(logits["dev"], dev_labels), np.zeros_like(logits["dev"])
    for half in (slice(0, None, 2), slice(1, None, 2)):
        other = slice(1 - half.start, None, 2)
        likely[half] = probabilities(logits["dev"][half], fitted_temperature(logits["dev"][other], dev_labels[other]))
    return {split: probabilities(own, temperature) for split, own in logits.items()} | {"dev": likely}, temperature
