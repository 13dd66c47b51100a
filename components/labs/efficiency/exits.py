"""When a model with classifiers on its layers may stop reading (Schwartz et al. 2020)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from components.comparison import calibration


@dataclass(frozen=True)
class Leaving:
    """A rule of when an answer is likely enough."""

    temperatures: list[float]
    """That the logits of each exit are divided by, fitted on dev."""
    threshold: float
    """1: all layers are read."""

    def enough(self, exit: int, logits: Tensor) -> bool:
        """Of a batch (batch, labels): it is left as a whole."""
        likely = (logits / self.temperatures[exit]).softmax(1).amax(1)
        return self.threshold < 1 and bool((likely >= self.threshold).all())

    def left(self, logits: np.ndarray) -> np.ndarray:
        """Where each example is left, (examples,), by the logits of all exits (examples, exits, labels)."""
        likely = np.stack([calibration.probabilities(logits[:, exit], own) for exit, own in enumerate(self.temperatures)], 1).max(2)
        sure = likely >= self.threshold if self.threshold < 1 else np.zeros(likely.shape, dtype=bool)
        sure[:, -1] = True
        return sure.argmax(1)
