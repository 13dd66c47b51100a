"""Masks of the weights to keep, one for each matrix of a model's layers; the other weights are zero, and stay so."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Masks = list[Tensor]
"""For each matrix a tensor of its shape, True where a weight is kept."""


def count(masks: Masks) -> int:
    """The number of weights to keep."""
    return sum(int(mask.sum()) for mask in masks)


def prune(masks: Masks, weights: Sequence[Tensor], share: float) -> Masks:
    """Remove this share of the remaining weights, the smallest after training, over all matrices (Han et al. 2015)."""
    left = count(masks)
    sizes = torch.cat([weight.abs().masked_fill(~mask, torch.inf).flatten() for mask, weight in zip(masks, weights, strict=True)])
    stay = torch.cat([mask.flatten() for mask in masks])
    stay[sizes.argsort(stable=True)[: round(share * left)]] = False
    return _split(stay, masks)


def worst(masks: Masks, weights: Sequence[Tensor]) -> Masks:
    """As many weights as `masks` keeps, of those that it removes, the smallest first (the "bad" subnetworks of Prasanna et al. 2020). Only
    where at most half is kept."""
    good = torch.cat([mask.flatten() for mask in masks])
    sizes = torch.cat([weight.abs().flatten() for weight in weights]).masked_fill(good, torch.inf)
    bad = torch.zeros_like(good)
    bad[sizes.argsort(stable=True)[: int(good.sum())]] = True
    return _split(bad, masks)


def random(masks: Masks, seed: int) -> Masks:
    """As many random weights of each matrix as `masks` keeps there."""
    generator, result = torch.Generator().manual_seed(seed), []
    for mask in masks:
        flat = torch.zeros(mask.numel(), dtype=torch.bool)
        flat[torch.randperm(mask.numel(), generator=generator)[: int(mask.sum())]] = True
        result.append(flat.view_as(mask))
    return result


@torch.no_grad()
def apply(matrices: Sequence[nn.Parameter], masks: Masks) -> None:
    """Set the weights outside the masks to zero."""
    for matrix, mask in zip(matrices, masks, strict=True):
        matrix.masked_fill_(~mask.to(matrix.device), 0)


@torch.no_grad()
def copy(matrices: Sequence[nn.Parameter], others: Sequence[Tensor]) -> None:
    """Copy the weights of other matrices."""
    for matrix, other in zip(matrices, others, strict=True):
        matrix.copy_(other)


def _split(flat: Tensor, like: Masks) -> Masks:
    return [mask.view_as(shape) for mask, shape in zip(flat.split([shape.numel() for shape in like]), like, strict=True)]
