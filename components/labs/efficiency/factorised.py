"""Matrices as products of two thin ones."""

import torch
from torch import nn


def rank(linear: nn.Linear, share: float) -> int:
    """At which two thin matrices have this share of the weights of one; at least 1, and no more than there is."""
    out, into = linear.weight.shape
    return min(max(1, int(share * out * into / (out + into))), out, into)


@torch.no_grad()
def thin(linear: nn.Linear, share: float) -> nn.Sequential:
    """Two layers whose product is nearest to the matrix of one (Eckart and Young 1936), the singular values halved between them."""
    left, values, right = torch.linalg.svd(linear.weight, full_matrices=False)
    kept, out, into = rank(linear, share), *linear.weight.shape
    first, second = nn.Linear(into, kept, bias=False), nn.Linear(kept, out, bias=linear.bias is not None)
    root = values[:kept].sqrt()
    first.weight.copy_(root[:, None] * right[:kept])
    second.weight.copy_(left[:, :kept] * root)
    if linear.bias is not None:
        second.bias.copy_(linear.bias)
    return nn.Sequential(first, second).to(linear.weight.device)


def factorise(module: nn.Module, share: float) -> None:
    """Put thin ones in the place of the matrices of a model's layers, each once, wherever they are shared."""
    parts = dict.fromkeys(part for layer in module.model.stacked() for part in layer.modules())
    for part in parts:
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                part.add_module(name, thin(child, share))
