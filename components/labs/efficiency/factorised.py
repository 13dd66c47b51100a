"""Low-rank factorisation: matrices as products of two thin ones."""

import torch
from torch import nn


def rank(linear: nn.Linear, share: float) -> int:
    """The rank at which two thin matrices have this share of a matrix's weights; at least 1."""
    out, into = linear.weight.shape
    return min(max(1, int(share * out * into / (out + into))), out, into)


@torch.no_grad()
def thin(linear: nn.Linear, share: float) -> nn.Sequential:
    """Two layers with the best low-rank approximation of a matrix (Eckart and Young 1936), the singular values split between them."""
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
    """Replace the matrices of a model's layers by thin ones, each once, even if layers share them."""
    modules = dict.fromkeys(submodule for layer in module.model.stacked() for submodule in layer.modules())
    for parent in modules:
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                parent.add_module(name, thin(child, share))
