"""Which weights are kept. A mask has for each matrix of a model's layers where its weights stay; the others are zero, and stay so."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Masks = list[Tensor]
"""Of each matrix, in its shape, True where a weight is kept."""


def kept(masks: Masks) -> int:
    """How many weights."""
    return sum(int(mask.sum()) for mask in masks)


def pruned(masks: Masks, weights: Sequence[Tensor], share: float) -> Masks:
    """Without so many of those that are left, the smallest by their trained weights, of all matrices together (Han et al. 2015)."""
    left = kept(masks)
    sizes = torch.cat([weight.abs().masked_fill(~mask, torch.inf).flatten() for mask, weight in zip(masks, weights, strict=True)])
    stay = torch.cat([mask.flatten() for mask in masks])
    stay[sizes.argsort(stable=True)[: round(share * left)]] = False
    return _cut(stay, masks)


def worst(masks: Masks, weights: Sequence[Tensor]) -> Masks:
    """As many as `masks` keeps, of those that it does not keep, the smallest first (the "bad" subnetworks of Prasanna et al. 2020). To be
    asked for where no more than half is kept."""
    good = torch.cat([mask.flatten() for mask in masks])
    sizes = torch.cat([weight.abs().flatten() for weight in weights]).masked_fill(good, torch.inf)
    bad = torch.zeros_like(good)
    bad[sizes.argsort(stable=True)[: int(good.sum())]] = True
    return _cut(bad, masks)


def drawn(masks: Masks, seed: int) -> Masks:
    """As many in each matrix as `masks` keeps there, anywhere."""
    generator, made = torch.Generator().manual_seed(seed), []
    for mask in masks:
        own = torch.zeros(mask.numel(), dtype=torch.bool)
        own[torch.randperm(mask.numel(), generator=generator)[: int(mask.sum())]] = True
        made.append(own.view_as(mask))
    return made


@torch.no_grad()
def put_on(matrices: Sequence[nn.Parameter], masks: Masks) -> None:
    """Set the weights that are not kept to zero."""
    for matrix, mask in zip(matrices, masks, strict=True):
        matrix.masked_fill_(~mask.to(matrix.device), 0)


@torch.no_grad()
def copy(matrices: Sequence[nn.Parameter], others: Sequence[Tensor]) -> None:
    """Give matrices the weights of others."""
    for matrix, other in zip(matrices, others, strict=True):
        matrix.copy_(other)


def _cut(flat: Tensor, like: Masks) -> Masks:
    return [own.view_as(mask) for own, mask in zip(flat.split([mask.numel() for mask in like]), like, strict=True)]
