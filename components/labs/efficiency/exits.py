"""Early exits: when a model with classifiers on its layers can stop (Schwartz et al. 2020)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from components.comparison import calibration


@dataclass(frozen=True)
class ExitRule:
    """Exit at the first classifier with a probability of at least `threshold`."""

    temperatures: list[float]
    """One per exit, fitted on dev."""
    threshold: float
    """1: no early exit."""

    def confident(self, exit: int, logits: Tensor) -> bool:
        """Whether all examples of a batch (batch, labels) can exit."""
        highest = (logits / self.temperatures[exit]).softmax(1).amax(1)
        return self.threshold < 1 and bool((highest >= self.threshold).all())

    def exits(self, logits: np.ndarray) -> np.ndarray:
        """The exit of each example, (examples,), given the logits of all exits (examples, exits, labels)."""
        scaled = [calibration.probabilities(logits[:, exit], temperature) for exit, temperature in enumerate(self.temperatures)]
        highest = np.stack(scaled, 1).max(2)
        can_exit = highest >= self.threshold if self.threshold < 1 else np.zeros(highest.shape, dtype=bool)
        can_exit[:, -1] = True
        return can_exit.argmax(1)
