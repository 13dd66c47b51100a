"""Exact nearest neighbours of many vectors, without the full matrix of cosines in memory.

Rows are unit vectors (float32), so that a dot product is a cosine. One pass multiplies a block of rows with all columns and reduces
it: memory stays at two blocks of SCORES floats, half a GiB, for any vocabulary.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

SCORES = 2**26
"""Pairs of words in a block."""
CHUNK = 32
"""Scores that are reduced to their maximum first: the k best of a row are in the k chunks with the largest maxima, and a maximum
is much cheaper than a sort."""


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (b, n) and their columns, best first; of equal ones the lower column, the more frequent word."""
    rows, columns = scores.shape
    k = min(k, columns)
    if columns <= k * CHUNK * 2:
        values, indices = scores.topk(k, dim=1)
        last = values[:, -1:]
        left_out = (scores == last).sum(1) > (values == last).sum(1)
    else:
        complete = columns // CHUNK * CHUNK
        maxima = scores[:, :complete].unflatten(1, (-1, CHUNK)).amax(dim=2)  # (b, chunks)
        largest, chunks = maxima.topk(k, dim=1)  # (b, k)
        indices = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK)).flatten(1)  # (b, k * CHUNK)
        rest = torch.arange(complete, columns).expand(rows, -1)
        indices = torch.cat([indices, rest], dim=1)
        candidates = scores.gather(1, indices)
        values, best = candidates.topk(k, dim=1)
        indices, last = indices.gather(1, best), values[:, -1:]
        left_out = (candidates == last).sum(1) > (values == last).sum(1)
        left_out |= (maxima >= last).sum(1) > (largest >= last).sum(1)
    # `topk` takes any of those that are equal to the last one: behind the larger ones stand the lowest of them
    if len(tied := left_out.nonzero()[:, 0]):
        row, column = (scores[tied] == last[tied]).nonzero(as_tuple=True)
        larger = (values[tied] > last[tied]).sum(1)
        place = larger[row] + torch.arange(len(row)) - torch.searchsorted(row, row)
        indices[tied[row[place < k]], place[place < k]] = column[place < k]
    indices, order = indices.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


def nearest(queries: Tensor, targets: Tensor, k: int, price: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """For each query (q, d) the k targets (n, d) with the highest cosine minus `price` (n,): scores and rows (q, k), best first."""
    best = [top(scores if price is None else scores.sub_(price), k) for _, scores in blocks(queries, targets)]
    return torch.cat([values for values, _ in best]), torch.cat([indices for _, indices in best])


def crowding(rows: Tensor, others: Tensor, k: int) -> Tensor:
    """The mean cosine of each of `rows` (n, d) with its k nearest `others` (m, d), (n,)."""
    return nearest(rows, others, k)[0].mean(dim=1)


def both_ways(x: Tensor, z: Tensor, price_x: Tensor | None = None, price_z: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """For each of x (n, d) the row of the best of z (m, d), and for each of z that of the best of x, from one product.

    The price of a word on the other side is subtracted, (n,) and (m,), by means of two more dimensions, since the price of the word itself
    is the same for all words of the other side.
    """
    if price_x is not None and price_z is not None:
        x = torch.cat([x, -price_x[:, None], torch.ones(len(x), 1)], dim=1)
        z = torch.cat([z, torch.ones(len(z), 1), -price_z[:, None]], dim=1)
    forward, score, back = [], torch.full((len(z),), -torch.inf), torch.zeros(len(z), dtype=torch.long)
    for start, scores in blocks(x, z):
        forward.append(scores.argmax(dim=1))
        values, indices = best_down(scores)
        better = values > score
        score, back = torch.where(better, values, score), torch.where(better, indices + start, back)
    return torch.cat(forward), back


def best_down(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of each column of `scores` (b, n) and its row, the first of equal ones, (n,) and (n,).

    Over rows torch computes a maximum fifteen times faster than its index, so the index is searched in a single chunk of rows.
    """
    chunks = scores.split(CHUNK)
    values, chosen = torch.stack([chunk.amax(dim=0) for chunk in chunks]).max(dim=0)
    indices = torch.empty_like(chosen)
    for number, chunk in enumerate(chunks):
        columns = (chosen == number).nonzero().flatten()
        indices[columns] = number * CHUNK + chunk[:, columns].max(dim=0).indices
    return values, indices


def blocks(rows: Tensor, columns: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The first row and the scores (b, columns) of each block of `rows`. The next block overwrites the last one."""
    size = max(1, SCORES // len(columns))
    room = torch.empty(min(size, len(rows)), len(columns))
    for start, block in zip(range(0, len(rows), size), rows.split(size), strict=True):
        yield start, torch.mm(block, columns.T, out=room[: len(block)])
