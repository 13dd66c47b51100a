"""Unstructured pruning: the smallest weights are set to zero (Han et al. 2015), over all layers or in each matrix. The matrices keep their
size, and dense kernels their speed: this shows how many weights a model needs, and starts lottery tickets. Fine-tuning keeps the zeros."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import smaller
from components.models import sparse, store


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Set weights to zero; existing zeros count."""
    block = all_params.derived[name]
    start, architecture = Path("data/models", block.start), smaller.architecture(all_params, name)
    model, tokens = store.load(start)
    matrices, before = sparse.matrices(model), sparse.sparsity(model)
    for group in [matrices] if block.by.scope == "global" else [[matrix] for matrix in matrices]:
        to_zero(group, block.by.sparsity)
    after = sparse.sparsity(model)
    print(f"{after:.1%} of the weights of the layers' matrices are zero, {before:.1%} were", flush=True)
    if after in (before, 1):
        effect = "all weights are zero; lower it" if after == 1 else f"no more weights are zero than in {block.start}; raise it"
        raise SesameError(f"derived.{name}: with sparsity {block.by.sparsity:g} {effect}")
    step = {"by": "sparsified", "on": block.start, "sparsity": block.by.sparsity, "scope": block.by.scope}
    return smaller.write(folder, model, architecture, tokens, start, step) | {"sparsity": after}


@torch.no_grad()
def to_zero(matrices: Iterable[nn.Parameter], share: float) -> None:
    """Set exactly this share of the weights of some matrices, the smallest of all, to zero."""
    sizes = torch.cat([matrix.abs().flatten() for matrix in matrices])
    kept = torch.ones(len(sizes), dtype=torch.bool)
    kept[sizes.argsort(stable=True)[: round(share * len(sizes))]] = False
    for matrix, mask in zip(matrices, kept.split([matrix.numel() for matrix in matrices]), strict=True):
        matrix *= mask.view_as(matrix)
