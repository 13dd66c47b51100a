"""Retrieval of translations from mapped words: the best cosine minus the price of each target.

A few targets, the hubs, are near to many queries, and the price of a target is how near it is to all of them. (CSLS also has a price of
the query, which is the same for all targets and does not change the ranking.) All rows are unit vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from components.embeddings.neighbours import blocks, crowding

INVERSE_TEMPERATURE = 30.0
"""Of the inverted softmax, as in MUSE; Smith et al. fit it to the training pairs."""


def nn(targets: Tensor, sources: Tensor, k: int) -> Tensor | None:
    """Only the cosine."""
    return None


def csls(targets: Tensor, sources: Tensor, k: int) -> Tensor:
    """Cross-domain similarity local scaling (Conneau et al. 2018, section 2.3): 2 cos(x, z) − r_T(x) − r_S(z), here halved.

    r_S is over all of `sources`, the full mapped source vocabulary, not the queries.
    """
    return crowding(targets, sources, k) / 2


def inverted_softmax(targets: Tensor, sources: Tensor, k: int) -> Tensor:
    """The probability of the query given the target (Smith et al. 2017, section 2.3), as a logarithm divided by β:
    cos(x, z) − log Σ_s exp(β cos(s, z)) / β, summed over the full mapped source vocabulary."""
    sums = [scores.mul_(INVERSE_TEMPERATURE).logsumexp(dim=1) for _, scores in blocks(targets, sources)]
    return torch.cat(sums) / INVERSE_TEMPERATURE


RETRIEVALS: dict[str, Callable[[Tensor, Tensor, int], Tensor | None]] = {"nn": nn, "csls": csls, "inverted_softmax": inverted_softmax}
"""(targets (n, d), sources (m, d), number of neighbours) -> the price of each target (n,), or None."""
