"""Dropout that costs little on a CPU."""

import torch
from torch import Tensor, nn


def dropout(x: Tensor, probability: float) -> Tensor:
    """x with each element zeroed with that probability, the others scaled up (Srivastava et al. 2014), x's shape.

    On a CPU torch draws a random number of 64 bits for each element, an eighth of a small model's step. Here one serves for four, so
    that a probability is rounded to the next of 65,536 steps.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return nn.functional.dropout(x, probability)
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    drawn = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    kept = drawn >= round(probability * 2**16) - 2**15
    return x * (kept.to(x.dtype) / (1 - probability))


class Dropout(nn.Module):
    """`dropout` while training."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.probability) if self.training and self.probability else x
