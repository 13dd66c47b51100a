"""The structural probe: a projection in which squared distances between words are those in their tree (Hewitt and Manning 2019)."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.core.keyed import generator
from components.evaluations.treebanks import PUNCTUATION, Sentence

RANK, EPOCHS, BATCH, RATE = 64, 10, 20, 1e-3
SMALLEST = 1e-6
"""An edge of length 0 is none to the library."""


def tree_distances(sentence: Sentence) -> np.ndarray:
    """(words, words): edges between two words."""
    above = [[word, *sentence._above(word)] for word in range(len(sentence.words))]
    distances = np.zeros((len(above), len(above)), np.float32)
    for i, one in enumerate(above):
        for j in range(i):
            shared = set(one) & set(above[j])
            distances[i, j] = distances[j, i] = len(one) + len(above[j]) - 2 * len(shared)
    return distances


def fit(vectors: Sequence[Tensor], sentences: Sequence[Sentence], seed: int) -> Tensor:
    """The projection (width, rank) of least absolute difference between squared and tree distances, of vectors (words, width)."""
    width = vectors[0].shape[1]
    draws = torch.Generator().manual_seed(seed)
    projection = ((torch.rand(width, min(RANK, width), generator=draws) - 0.5) * 0.1).requires_grad_()
    distances = [torch.from_numpy(tree_distances(sentence)) for sentence in sentences]
    optimizer = torch.optim.Adam([projection], RATE)
    for epoch in range(EPOCHS):
        order = generator(seed, epoch).permutation(len(vectors))
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            x = pad_sequence([vectors[i] for i in some], batch_first=True)
            wanted = x.new_full((len(some), x.shape[1], x.shape[1]), -1)
            for row, i in enumerate(some):
                wanted[row, : len(distances[i]), : len(distances[i])] = distances[i]
            off, real = (squared_distances(x, projection) - wanted).abs(), wanted >= 0
            loss = ((off * real).sum((1, 2)) / real.sum((1, 2))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return projection.detach()


def squared_distances(x: Tensor, projection: Tensor) -> Tensor:
    """(batch, words, width), (width, rank) -> (batch, words, words)."""
    projected = x @ projection
    return (projected[:, :, None] - projected[:, None]).square().sum(3)


def right_edges(distances: np.ndarray, sentence: Sentence) -> np.ndarray:
    """Of each word whether the edge to its head is in the smallest tree over the words that are no punctuation; NaN for the root, for
    punctuation, and for what depends on it."""
    kept = [i for i, tag in enumerate(sentence.tags) if tag != PUNCTUATION]
    values = np.full(len(sentence.words), np.nan)
    if len(kept) < 2:
        return values
    tree = minimum_spanning_tree(np.maximum(np.triu(distances[np.ix_(kept, kept)], 1), np.triu(np.full((len(kept),) * 2, SMALLEST), 1)))
    edges = {frozenset((kept[i], kept[j])) for i, j in zip(*tree.nonzero(), strict=True)}
    for word in kept:
        head = sentence.heads[word] - 1
        if head in kept:
            values[word] = frozenset((word, head)) in edges
    return values
