"""Texts read from their end."""

import torch
from torch import Tensor


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """x (batch, length, ...) with the first `lengths` (batch,) places of each row in reverse, which makes it itself again when done twice;
    padding keeps its place on the right."""
    positions = torch.arange(x.shape[1], device=x.device)
    places = lengths[:, None] - 1 - positions
    places = torch.where(places < 0, positions, places)
    return x.gather(1, places.view(*places.shape, *[1] * (x.dim() - 2)).expand_as(x))
