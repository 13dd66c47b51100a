"""The nearest of many vectors, exactly, without ever holding the square of all cosines.

Rows are unit vectors (float32), so that a product is a cosine. One pass multiplies a block of rows with all columns and reads off
what is asked of either side: memory stays at BLOCK x columns floats, whatever the vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1024
"""Rows compared at a time."""
CHUNK = 32
"""Scores of which the largest is taken first: the k best of a row are in the k chunks with the largest maxima, and a maximum
costs a fraction of what sorting does."""


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (b, n) and their columns, best first; equal ones by column, the more frequent word first."""
    rows, columns = scores.shape
    k = min(k, columns)
    if columns <= k * CHUNK * 2:
        values, places = scores.topk(k, dim=1)
    else:
        whole = columns // CHUNK * CHUNK
        chunks = scores[:, :whole].unflatten(1, (-1, CHUNK)).amax(dim=2).topk(k, dim=1).indices  # (b, k)
        places = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK)).flatten(1)  # (b, k * CHUNK)
        rest = torch.arange(whole, columns).expand(rows, -1)
        places = torch.cat([places, rest], dim=1)
        values, best = scores.gather(1, places).topk(k, dim=1)
        places = places.gather(1, best)
    places, order = places.sort(dim=1)
    values, again = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, again)


def nearest(queries: Tensor, targets: Tensor, k: int, price: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Of each query (q, d) the k best targets (n, d) by cosine less the target's `price` (n,): scores and rows (q, k), best first."""
    found = [top(_scores(block, targets, price), k) for block in queries.split(BLOCK)]
    return torch.cat([values for values, _ in found]), torch.cat([places for _, places in found])


def crowding(rows: Tensor, others: Tensor, k: int) -> Tensor:
    """(n,) mean cosine of each of `rows` (n, d) with its k nearest of `others` (m, d)."""
    return nearest(rows, others, k)[0].mean(dim=1)


@dataclass(frozen=True)
class Best:
    """The best of the other side for each word: `score`, as ranked, and `row`, both (n,)."""

    score: Tensor
    row: Tensor


def both_ways(x: Tensor, z: Tensor, price_x: Tensor | None = None, price_z: Tensor | None = None) -> tuple[Best, Best]:
    """For each of x (n, d) the best of z (m, d), and for each of z the best of x, out of one product of the two.

    A word of the other side has its price taken off, (n,) and (m,).
    """
    forward, score, row = [], torch.full((len(z),), -torch.inf), torch.zeros(len(z), dtype=torch.long)
    for start, block in zip(range(0, len(x), BLOCK), x.split(BLOCK), strict=True):
        cosines = block @ z.T
        forward.append((cosines if price_z is None else cosines - price_z).max(dim=1))
        own = cosines if price_x is None else cosines - price_x[start : start + len(block), None]
        values, places = own.max(dim=0)
        better = values > score
        score, row = torch.where(better, values, score), torch.where(better, places + start, row)
    return Best(torch.cat([best.values for best in forward]), torch.cat([best.indices for best in forward])), Best(score, row)


def crowding_both_ways(x: Tensor, z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(n,), (m,): what `crowding` gives for x among z, and for z among x, out of one product of the two."""
    kx, kz = min(k, len(z)), min(k, len(x))
    own, kept = [], torch.full((len(z), 0), -torch.inf)
    for block in x.split(BLOCK):
        cosines = block @ z.T
        own.append(top(cosines, kx)[0].mean(dim=1))
        kept = torch.cat([kept, top(cosines.T.contiguous(), kz)[0]], dim=1)
        kept = kept.topk(min(kz, kept.shape[1]), dim=1).values
    return torch.cat(own), kept.mean(dim=1)


def _scores(block: Tensor, targets: Tensor, price: Tensor | None) -> Tensor:
    cosines = block @ targets.T
    return cosines if price is None else cosines.sub_(price)
