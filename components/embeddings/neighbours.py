"""The nearest of many vectors, exactly, without ever holding the square of all cosines.

Rows are unit vectors (float32), so that a product is a cosine. One pass multiplies a block of rows with all columns and reads off
what is asked of either side: memory stays at two blocks of SCORES floats, half a GiB, whatever the vocabulary.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

SCORES = 2**26
"""Pairs of words compared at a time."""
CHUNK = 32
"""Scores of which the largest is taken first: the k best of a row are in the k chunks with the largest maxima, and a maximum
costs a fraction of what sorting does."""


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (b, n) and their columns, best first; of equal ones among them the lower column, the more frequent word."""
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
    found = [top(scores if price is None else scores.sub_(price), k) for _, scores in blocks(queries, targets)]
    return torch.cat([values for values, _ in found]), torch.cat([places for _, places in found])


def crowding(rows: Tensor, others: Tensor, k: int) -> Tensor:
    """(n,) mean cosine of each of `rows` (n, d) with its k nearest of `others` (m, d)."""
    return nearest(rows, others, k)[0].mean(dim=1)


def both_ways(x: Tensor, z: Tensor, price_x: Tensor | None = None, price_z: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """For each of x (n, d) the row of the best of z (m, d), and for each of z that of the best of x, out of one product of the two.

    A word of the other side has its price taken off, (n,) and (m,): as two more dimensions, since what a word itself costs is the same
    for all of the other side.
    """
    if price_x is not None and price_z is not None:
        x = torch.cat([x, -price_x[:, None], torch.ones(len(x), 1)], dim=1)
        z = torch.cat([z, torch.ones(len(z), 1), -price_z[:, None]], dim=1)
    ahead, score, back = [], torch.full((len(z),), -torch.inf), torch.zeros(len(z), dtype=torch.long)
    for start, scores in blocks(x, z):
        ahead.append(scores.argmax(dim=1))
        values, places = best_down(scores)
        better = values > score
        score, back = torch.where(better, values, score), torch.where(better, places + start, back)
    return torch.cat(ahead), back


def best_down(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(n,), (n,): the largest of each column of `scores` (b, n) and its row, the first of equal ones.

    Down the rows torch finds a maximum fifteen times as fast as its place, which is therefore looked for in one chunk of rows.
    """
    chunks = scores.split(CHUNK)
    values, chosen = torch.stack([chunk.amax(dim=0) for chunk in chunks]).max(dim=0)
    places = torch.empty_like(chosen)
    for number, chunk in enumerate(chunks):
        columns = (chosen == number).nonzero().flatten()
        places[columns] = number * CHUNK + chunk[:, columns].max(dim=0).indices
    return values, places


def crowding_both_ways(x: Tensor, z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(n,), (m,): what `crowding` gives for x among z, and for z among x, out of one product of the two."""
    kx, kz = min(k, len(z)), min(k, len(x))
    own, kept = [], torch.full((len(z), 0), -torch.inf)
    for _, cosines in blocks(x, z):
        own.append(top(cosines, kx)[0].mean(dim=1))
        kept = torch.cat([kept, top(cosines.T.contiguous(), kz)[0]], dim=1)
        kept = kept.topk(min(kz, kept.shape[1]), dim=1).values
    return torch.cat(own), kept.mean(dim=1)


def blocks(rows: Tensor, columns: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The first row and the scores (b, columns) of each block of `rows`. The next block is written over the last."""
    size = max(1, SCORES // len(columns))
    room = torch.empty(min(size, len(rows)), len(columns))
    for start, block in zip(range(0, len(rows), size), rows.split(size), strict=True):
        yield start, torch.mm(block, columns.T, out=room[: len(block)])
