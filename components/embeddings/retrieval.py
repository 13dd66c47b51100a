"""From mapped words to their translations: the best cosine, less what each target costs.

A few targets, the hubs, are near to many queries, and a target's price is how near it is to all. (CSLS has a price of the query, too,
which is the same for all targets and changes no ranking.) All rows are unit vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from components.embeddings.neighbours import blocks, crowding

INVERSE_TEMPERATURE = 30.0
"""Of the inverted softmax, as in MUSE; Smith et al. fit it to the training pairs."""


def nn(targets: Tensor, sources: Tensor, k: int) -> Tensor | None:
    """Cosine alone."""
    return None


def csls(targets: Tensor, sources: Tensor, k: int) -> Tensor:
    """Cross-domain similarity local scaling (Conneau et al. 2018, section 2.3): 2 cos(x, z) − r_T(x) − r_S(z), here halved.

    r_S is taken over all of `sources`, the whole mapped source vocabulary, not over the queries.
    """
    return crowding(targets, sources, k) / 2


def inverted_softmax(targets: Tensor, sources: Tensor, k: int) -> Tensor:
    """The probability of the query given the target (Smith et al. 2017, section 2.3), as a logarithm over the temperature:
    cos(x, z) − log Σ_s exp(β cos(s, z)) / β, the sum over the whole mapped source vocabulary."""
    sums = [scores.mul_(INVERSE_TEMPERATURE).logsumexp(dim=1) for _, scores in blocks(targets, sources)]
    return torch.cat(sums) / INVERSE_TEMPERATURE


RETRIEVALS: dict[str, Callable[[Tensor, Tensor, int], Tensor | None]] = {"nn": nn, "csls": csls, "inverted_softmax": inverted_softmax}
"""targets (n, d), sources (m, d), neighbours that count -> what each target costs (n,), or None for nothing."""
