"""The smallest weights set to zero (Han et al. 2015), of all layers together or of each matrix alone. The matrices stay as large as they
were, and dense kernels as fast: it shows how many weights a model needs, and is a start for lottery tickets. Fine-tuning keeps zeros."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from components import params
from components.core.tracking import Run
from components.derive import smaller
from components.models import sparse, store


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Set weights to zero; zeros that are there already count."""
    block = all_params.derived[name]
    start, architecture = Path("data/models", block.start), smaller.architecture(all_params, name)
    model, tokens = store.load(start)
    matrices = sparse.matrices(model)
    for group in [matrices] if block.by.scope == "global" else [[matrix] for matrix in matrices]:
        to_zero(group, block.by.sparsity)
    step = {"by": "sparsified", "on": block.start, "sparsity": block.by.sparsity, "scope": block.by.scope}
    return smaller.write(folder, model, architecture, tokens, start, step) | {"sparsity": sparse.sparsity(model)}


@torch.no_grad()
def to_zero(matrices: Iterable[nn.Parameter], share: float) -> None:
    """Set the smallest weights of some matrices, compared with each other, to zero: exactly this share."""
    sizes = torch.cat([matrix.abs().flatten() for matrix in matrices])
    kept = torch.ones(len(sizes), dtype=torch.bool)
    kept[sizes.argsort(stable=True)[: round(share * len(sizes))]] = False
    for matrix, own in zip(matrices, kept.split([matrix.numel() for matrix in matrices]), strict=True):
        matrix *= own.view_as(matrix)
