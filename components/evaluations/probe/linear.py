"""Linear classifiers of vectors, for probes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from components.core.keyed import generator
from components.evaluations.probe.standard import Standard

STEPS = 100
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Shares of the examples after which the online code retrains its classifier (Voita and Titov 2020, section
2.2.2)."""
PENALTIES = (1000.0, 30.0, 1.0)
"""Tried for each classifier of the online code."""


@dataclass(frozen=True)
class Linear:
    """A softmax classifier of standardised vectors."""

    standard: Standard
    weights: Tensor
    """(width + 1, classes): the last row is the bias."""

    def logits(self, x: Tensor) -> Tensor:
        """(n, width) -> (n, classes)."""
        return self.standard(x) @ self.weights[:-1] + self.weights[-1]

    def bits(self, x: Tensor, y: Tensor) -> float:
        """The sum of -log2 p of the labels y (n,)."""
        return float(cross_entropy(self.logits(x), y, reduction="sum")) / float(np.log(2))


def fit(x: Tensor, y: Tensor, classes: int, penalty: float = 1.0) -> Linear:
    """Minimise the cross-entropy plus `penalty` times half the squared weights over n, as scikit-learn with C = 1 / penalty: x (n, width),
    y (n,).

    The loss is convex and starts from zero, so nothing is random.
    """
    standard = Standard.of(x)
    z = standard(x)
    weights = torch.zeros(x.shape[1] + 1, classes, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, tolerance_change=1e-7, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(z @ weights[:-1] + weights[-1], y) + penalty * weights[:-1].square().sum() / (2 * len(x))
        value.backward()
        return value

    optimizer.step(loss)
    return Linear(standard, weights.detach())


def compression(x: Tensor, y: Tensor, classes: int) -> float:
    """How many times shorter the online code of the labels is than a uniform one.

    Each block of examples is coded with a classifier of all blocks before it, the first one uniformly. Labels that are easy
    to predict have a short code (Voita and Titov 2020). Each classifier has the penalty that codes the last tenth of its examples best, in
    place of the paper's early stopping: without that, wide vectors have a long code because few examples are overfitted.
    """
    ends = sorted({max(1, round(len(x) * share)) for share in PORTIONS})
    bits, penalty = ends[0] * float(np.log2(classes)), PENALTIES[0]
    for first, last in zip(ends, ends[1:], strict=False):
        known, tenth = slice(first - max(1, first // 10)), slice(first - max(1, first // 10), first)
        if known.stop:
            codes = {each: fit(x[known], y[known], classes, each).bits(x[tenth], y[tenth]) for each in PENALTIES}
            penalty = min(codes, key=codes.get)
        bits += fit(x[:first], y[:first], classes, penalty).bits(x[first:last], y[first:last])
    return len(x) * float(np.log2(classes)) / bits


def compression_by_frequency(y: Tensor, classes: int) -> float:
    """That of a code which only counts the labels so far, and one of each to begin with: what is known without any vector."""
    counts, bits = np.ones(classes), 0.0
    for label in y.tolist():
        bits -= float(np.log2(counts[label] / counts.sum()))
        counts[label] += 1
    return len(y) * float(np.log2(classes)) / bits


def control_labels(words: Sequence[str], labels: np.ndarray, seed: int) -> np.ndarray:
    """A label for each word type, drawn with the frequencies of `labels` (n,): a probe can only memorise them, which
    says nothing about the model (Hewitt and Liang 2019)."""
    kinds = sorted(set(words))
    drawn = dict(zip(kinds, generator(seed).choice(labels, size=len(kinds)).tolist(), strict=True))
    return np.array([drawn[word] for word in words])
