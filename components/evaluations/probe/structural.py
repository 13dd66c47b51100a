"""The structural probe: a projection in which squared distances between words are their distances in the tree (Hewitt and
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

RANK, STEPS, BATCH_SIZE, LEARNING_RATE = 64, 1000, 20, 3e-3
MIN_DISTANCE = 1e-6
"""The library ignores edges of length 0."""


@dataclass(frozen=True)
class Projection:
    """A linear map of standardised vectors to the space of the tree's distances."""

    standard: Standard
    weights: Tensor
    """(width, rank)"""

    def squared_distances(self, x: Tensor) -> Tensor:
        """(..., words, width) -> (..., words, words)."""
        projected = self.standard(x) @ self.weights
        inner = projected @ projected.mT  # not the differences, a matrix of vectors
        norms = inner.diagonal(dim1=-2, dim2=-1)
        return norms[..., :, None] + norms[..., None, :] - 2 * inner


def fit(vectors: Sequence[Tensor], sentences: Sequence[Sentence], seed: int) -> Projection:
    """Minimise the absolute difference between squared distances and tree distances, given each sentence's vectors
    (words, width)."""
    stacked = torch.cat([*vectors])
    weights = torch.rand(stacked.shape[1], min(RANK, stacked.shape[1]), generator=torch.Generator().manual_seed(seed))
    weights = (0.1 * (weights - 0.5)).requires_grad_()
    projection = Projection(Standard.of(stacked), weights)
    distances = [torch.from_numpy(sentence.distances) for sentence in sentences]
    optimizer = torch.optim.Adam([weights], LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for some in islice(_batches(len(vectors), seed), STEPS):
        x = pad_sequence([vectors[i] for i in some], batch_first=True)
        targets = x.new_full((len(some), x.shape[1], x.shape[1]), -1)
        for row, i in enumerate(some):
            targets[row, : len(distances[i]), : len(distances[i])] = distances[i]
        error, real = (projection.squared_distances(x) - targets).abs(), targets >= 0
        loss = ((error * real).sum((1, 2)) / real.sum((1, 2))).mean()  # a long sentence counts as much as a short one
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return Projection(projection.standard, weights.detach())


def _batches(size: int, seed: int) -> Iterator[np.ndarray]:
    """Batches of random indices below size, epoch after epoch."""
    for epoch in count():
        order = generator(seed, epoch).permutation(size)
        yield from np.split(order, range(BATCH_SIZE, size, BATCH_SIZE))


def right_edges(distances: np.ndarray, sentence: Sentence) -> np.ndarray:
    """For each word whether the edge to its head is in the minimum spanning tree of the words without punctuation; NaN for
    the root, for punctuation, and for its dependents."""
    words = [i for i, tag in enumerate(sentence.tags) if tag != PUNCTUATION]
    values = np.full(len(sentence.words), np.nan)
    if len(words) < 2:
        return values
    smallest = np.triu(np.full((len(words),) * 2, MIN_DISTANCE), 1)
    tree = minimum_spanning_tree(np.maximum(np.triu(distances[np.ix_(words, words)], 1), smallest))
    edges = {frozenset((words[i], words[j])) for i, j in zip(*tree.nonzero(), strict=True)}
    for word in words:
        head = sentence.heads[word] - 1
        if head in words:
            values[word] = frozenset((word, head)) in edges
    return values
