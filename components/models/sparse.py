"""Models whose smallest weights were set to zero and stay zero (unstructured pruning).

The matrices stay dense, so that a model becomes faster or smaller only with kernels and formats for sparse matrices.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from components.models.contract import LanguageModel


def matrices(model: LanguageModel) -> list[nn.Parameter]:
    """Return the matrices of the layers, each once: those that are pruned, without embeddings and heads (Gordon et al. 2020)."""
    weights = [parameter for layer in model.stacked() for parameter in layer.parameters() if parameter.ndim > 1]
    return list(dict.fromkeys(weights))


def sparsity(model: LanguageModel) -> float:
    """Return the share of zeros in the matrices of the layers."""
    weights = matrices(model)
    return sum(int((matrix == 0).sum()) for matrix in weights) / sum(matrix.numel() for matrix in weights)


def is_sparse(lineage: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a step in the history of a model has set weights to zero."""
    return any("sparsity" in step for step in lineage)


def keep_zeros(model: LanguageModel) -> None:
    """Keep the zero weights of the layers zero in any training: they get no gradient, so that the moments and the weight decay of an
    optimizer that starts now do not change them.

    Call it before anything is frozen or copied (a copy has no hooks), and only for models that `is_sparse`: others may start at zeros.
    """
    for matrix in matrices(model):
        if (nonzero := matrix.detach() != 0).all():
            continue
        matrix.register_hook(lambda gradient, nonzero=nonzero: _masked(gradient, nonzero))


def _masked(gradient: Tensor, nonzero: Tensor) -> Tensor:
    return gradient.masked_fill(~nonzero.to(gradient.device), 0)  # a product with 0 would keep NaN
