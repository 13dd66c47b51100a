"""Weights that are zero and stay so: of models whose smallest weights were set to zero (unstructured pruning).

The matrices stay as they are, so that nothing is faster or smaller by it without kernels and formats for sparse ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from components.models.contract import LanguageModel


def matrices(model: LanguageModel) -> list[nn.Parameter]:
    """Those of the layers, each once: what is pruned, and neither the embeddings nor what stands above the layers (Gordon et al. 2020)."""
    every = [parameter for layer in model.stacked() for parameter in layer.parameters() if parameter.ndim > 1]
    return list(dict.fromkeys(every))


def sparsity(model: LanguageModel) -> float:
    """The share of zeros in them."""
    every = matrices(model)
    return sum(int((matrix == 0).sum()) for matrix in every) / sum(matrix.numel() for matrix in every)


def is_sparse(lineage: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a step that made a model has set weights to zero, so that they are to stay so."""
    return any("sparsity" in step for step in lineage)


def keep_zeros(model: LanguageModel) -> None:
    """Have weights of the layers that are zero now be zero after any training: no gradient reaches them, so that moments and weight
    decay of an optimizer that begins here leave them where they are.

    To be called before anything is frozen or copied (a copy has no such hooks), of models that `is_sparse`: others may begin at zeros.
    """
    for matrix in matrices(model):
        if (kept := matrix.detach() != 0).all():
            continue
        matrix.register_hook(lambda gradient, kept=kept: _masked(gradient, kept))


def _masked(gradient: Tensor, kept: Tensor) -> Tensor:
    return gradient.masked_fill(~kept.to(gradient.device), 0)  # not times 0, which leaves what is not a number
