"""Sequences of running text and the orders in which their tokens are predicted."""

import numpy as np

from components.core.keyed import uniform
from components.objectives.examples.batches import Chunk
from components.objectives.examples.streams import StreamBatches
from components.objectives.noise.tokens import random_subsets
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import PAD, SPECIALS, Tokenizer

CHOSEN, RANKED = 1, 2  # keys of random numbers


class PermutedBatches(StreamBatches):
    """Sequences that continue those of the step before, with the tokens that are last in a random order, and that order."""

    def __init__(self, share: float, tokens: Tokenizer, text: Split, batch_size: int, length: int, seed: int):
        super().__init__(tokens, text, batch_size, length, seed)
        self.share, self.seed = share, seed

    def draw(self, first: int, last: int) -> Chunk:
        windows = self.forward_windows(first, last)
        ids = np.where(windows[:, 1:] == PAD, PAD, windows[:, :-1])  # the last token of a stream opens the next one
        ordinary = ids >= len(SPECIALS)
        sizes = ordinary.sum(1)
        targets = np.where(sizes > 0, np.clip(np.round(self.share * sizes).astype(int), 1, None), 0)
        most = targets.max()
        key = (self.seed, np.repeat(np.arange(first, last), self.batch_size), np.tile(np.arange(self.batch_size), last - first))
        # the last tokens of a uniform order: a uniform subset in a uniform order
        chosen = random_subsets(sizes, targets, uniform(*key, np.arange(most)[:, None], CHOSEN)).T  # (sequences, most), -1: none
        numbers = np.where(chosen >= 0, uniform(*key, np.arange(most)[:, None], RANKED).T, 2.0)
        by_rank = np.take_along_axis(chosen, np.argsort(numbers, axis=1), axis=1)
        ordinary_positions = np.argsort(~ordinary, axis=1, kind="stable")  # first to last in each sequence
        none = by_rank < 0
        positions = np.where(none, 0, np.take_along_axis(ordinary_positions, by_rank, axis=1))
        labels = np.where(none, IGNORED, np.take_along_axis(ids, positions, axis=1))
        order = np.zeros((len(ids), ids.shape[1] + 1), np.int64)  # an extra column for positions that are none
        np.put_along_axis(order, np.where(none, ids.shape[1], positions), np.arange(1, most + 1)[None], axis=1)
        order[:, :-1][ids == PAD] = most + 1  # later than all targets, which do not see padding
        counts = {
            "tokens": (ids != PAD).sum(1), "permutation": targets,
            "bytes": np.where(none, 0, self.byte_lengths[labels * ~none]).sum(1),
        }  # fmt: skip
        arrays = {"ids": ids, "order": order[:, :-1], "positions": positions, "labels": labels}
        flat = {name: (array.reshape(-1), np.full(last - first, array.shape[1])) for name, array in arrays.items()}
        return Chunk.from_arrays(first, self.batch_size, flat, counts)
