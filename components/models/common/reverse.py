"""Reversal of padded sequences."""

import torch
from torch import Tensor


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """x (batch, length, ...), lengths (batch,) -> x with each sequence reversed; padding stays on the right. It is its own inverse."""
    positions = torch.arange(x.shape[1], device=x.device)
    source = lengths[:, None] - 1 - positions
    source = torch.where(source < 0, positions, source)
    return x.gather(1, source.view(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))
