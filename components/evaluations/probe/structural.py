"""The structural probe: a projection in which squared distances between words are those in their tree (Hewitt and
Manning 2019)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.core.keyed import generator
from components.evaluations.probe.standard import Standard
from components.evaluations.treebanks import PUNCTUATION, Sentence

RANK, STEPS, BATCH, RATE = 64, 1000, 20, 3e-3
SMALLEST = 1e-6
"""An edge of length 0 is none to the library."""


@dataclass(frozen=True)
class Projection:
    """Of standardised vectors, into the space whose squared distances are read."""

    standard: Standard
    weights: Tensor
    """(width, rank)"""

    def squared_distances(self, x: Tensor) -> Tensor:
        """(..., words, width) -> (..., words, words)."""
        projected = self.standard(x) @ self.weights
        return (projected[..., :, None, :] - projected[..., None, :, :]).square().sum(-1)


def fit(vectors: Sequence[Tensor], sentences: Sequence[Sentence], seed: int) -> Projection:
    """The projection of least absolute difference between squared and tree distances, of each sentence's vectors
    (words, width)."""
    every = torch.cat([*vectors])
    weights = torch.rand(every.shape[1], min(RANK, every.shape[1]), generator=torch.Generator().manual_seed(seed))
    weights = (0.1 * (weights - 0.5)).requires_grad_()
    projection = Projection(Standard.of(every), weights)
    distances = [torch.from_numpy(sentence.distances) for sentence in sentences]
    optimizer = torch.optim.Adam([weights], RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for some in islice(_batches(len(vectors), seed), STEPS):
        x = pad_sequence([vectors[i] for i in some], batch_first=True)
        wanted = x.new_full((len(some), x.shape[1], x.shape[1]), -1)
        for row, i in enumerate(some):
            wanted[row, : len(distances[i]), : len(distances[i])] = distances[i]
        off, real = (projection.squared_distances(x) - wanted).abs(), wanted >= 0
        loss = ((off * real).sum((1, 2)) / real.sum((1, 2))).mean()  # a long sentence counts as much as a short one
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
    return Projection(projection.standard, weights.detach())


def _batches(size: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers below size, batch by batch, epoch after epoch."""
    for epoch in count():
        order = generator(seed, epoch).permutation(size)
        yield from np.split(order, range(BATCH, size, BATCH))


def right_edges(distances: np.ndarray, sentence: Sentence) -> np.ndarray:
    """Of each word whether the edge to its head is in the smallest tree over the words that are no punctuation; NaN for
    the root, for punctuation, and for what depends on it."""
    kept = [i for i, tag in enumerate(sentence.tags) if tag != PUNCTUATION]
    values = np.full(len(sentence.words), np.nan)
    if len(kept) < 2:
        return values
    tree = minimum_spanning_tree(
        np.maximum(np.triu(distances[np.ix_(kept, kept)], 1), np.triu(np.full((len(kept),) * 2, SMALLEST), 1))
    )
    edges = {frozenset((kept[i], kept[j])) for i, j in zip(*tree.nonzero(), strict=True)}
    for word in kept:
        head = sentence.heads[word] - 1
        if head in kept:
            values[word] = frozenset((word, head)) in edges
    return values
