"""Losses and numbers of correct predictions, and the metrics computed from their sums."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from components.models.contract import LanguageModel

IGNORED = -100
"""The label of a position where nothing is predicted."""
CPU_TARGETS = 128
"""Targets whose logits a CPU computes at a time: 4 MiB with a vocabulary of 8192."""


def score(logits: Tensor, labels: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """logits (n, classes), labels (n,) -> the sum of the losses in nats, and the number of correct predictions.

    The number is 0 in training: an argmax over the vocabulary takes a seventh of a small model's step.
    """
    loss = cross_entropy(logits.float(), labels, reduction="sum")
    return loss, labels.new_zeros(()) if training else (logits.argmax(1) == labels).sum()


def logit_chunk_size(hidden: Tensor) -> int:
    """Return the number of targets whose logits are computed at a time.

    A CPU takes as many as fit into its cache, which halves the time with a vocabulary of 8192: the softmax and each step of its
    backward pass find the logits there.
    """
    return CPU_TARGETS if hidden.device.type == "cpu" and not torch.compiler.is_compiling() else len(hidden)


def score_tokens(model: LanguageModel, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """hidden (n, width), labels (n,), IGNORED where nothing is predicted -> like `score` of the model's logits."""
    size = logit_chunk_size(hidden)
    chunks = zip(hidden.split(size), labels.split(size), strict=True)
    losses, correct = zip(*(score(model.logits(states), targets, model.training) for states, targets in chunks), strict=True)
    return torch.stack(losses).sum(), torch.stack(correct).sum()


@dataclass
class LossTotals:
    """Sums over sequences, micro-batches and ranks: `<term>.loss`, `<term>.correct`, `<term>.count`, and `bytes`."""

    values: dict[str, float]

    def metrics(self, main: str) -> dict[str, float]:
        """Return loss, perplexity, bits_per_byte and accuracy of the main term, `<term>_loss` and `<term>_accuracy` of others."""
        metrics = {}
        for term in sorted({key.split(".")[0] for key in self.values if "." in key}):
            if not (count := self.values[f"{term}.count"]):
                continue
            loss, accuracy = self.values[f"{term}.loss"] / count, self.values[f"{term}.correct"] / count
            if term == main:
                bits = self.values[f"{term}.loss"] / np.log(2)
                metrics |= {"loss": loss, "perplexity": float(np.exp(min(loss, 50)))}
                metrics |= {"bits_per_byte": bits / self.values["bytes"], "accuracy": accuracy}
            else:
                metrics |= {f"{term}_loss": loss, f"{term}_accuracy": accuracy}
        return {key: float(value) for key, value in metrics.items()}
