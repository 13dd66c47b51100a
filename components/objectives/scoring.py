"""Loss and right answers of a set of targets, and what they add up to."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from components.models.contract import LanguageModel

IGNORED = -100
"""In the place of a label: nothing is predicted there."""
ROWS = 128
"""Logits over the vocabulary that a CPU makes at a time: 4 MiB for 8192 pieces."""


def score(logits: Tensor, labels: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """logits (n, classes), labels (n,) -> the sum of the losses in nats, and the number of right answers.

    While training the second is 0: an argmax over the vocabulary costs a seventh of a small model's step.
    """
    loss = cross_entropy(logits.float(), labels, reduction="sum")
    return loss, labels.new_zeros(()) if training else (logits.argmax(1) == labels).sum()


def score_tokens(model: LanguageModel, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """hidden (n, width), labels (n,), IGNORED where nothing is predicted -> as `score` of the model's logits.

    A CPU makes them a piece at a time: what fits its cache is not fetched again for the softmax and for each step back through it, which
    halves the time of a vocabulary of 8192.
    """
    rows = ROWS if hidden.device.type == "cpu" and not torch.compiler.is_compiling() else len(hidden)
    pieces = zip(hidden.split(rows), labels.split(rows), strict=True)
    losses, right = zip(*(score(model.logits(own), wanted, model.training) for own, wanted in pieces), strict=True)
    return torch.stack(losses).sum(), torch.stack(right).sum()


@dataclass
class Sums:
    """Adds up counts and losses over rows, micro-batches and ranks; every mean is taken once, at the end."""

    values: dict[str, float]

    def figures(self, main: str) -> dict[str, float]:
        """loss, perplexity, bits_per_byte and accuracy of the main part; loss and accuracy of the others as `<part>_loss`."""
        figures = {}
        for part in sorted({key.split(".")[0] for key in self.values if "." in key}):
            if not (count := self.values[f"{part}.count"]):
                continue  # nothing was asked
            loss, accuracy = self.values[f"{part}.loss"] / count, self.values[f"{part}.correct"] / count
            if part == main:
                bits = self.values[f"{part}.loss"] / np.log(2)
                figures |= {"loss": loss, "perplexity": float(np.exp(min(loss, 50)))}
                figures |= {"bits_per_byte": bits / self.values["bytes"], "accuracy": accuracy}
            else:
                figures |= {f"{part}_loss": loss, f"{part}_accuracy": accuracy}
        return {key: float(value) for key, value in figures.items()}
