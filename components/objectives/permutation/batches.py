"""Rows of running text and the orders that they are read in."""

import numpy as np

from components.core.keyed import uniform
from components.objectives.examples.lanes import LaneBatches
from components.objectives.examples.windows import Window
from components.objectives.noise.tokens import subsets
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import PAD, SPECIALS, Tokenizer

CHOSEN, RANKED = 1, 2  # what a keyed number decides


class PermutedBatches(LaneBatches):
    """Rows that go on where those of the step before have ended; which tokens are the last of the order, and in which order."""

    def __init__(self, share: float, tokens: Tokenizer, text: Split, batch_size: int, length: int, seed: int):
        super().__init__(tokens, text, batch_size, length, seed)
        self.share, self.seed = share, seed

    def draw(self, first: int, last: int) -> Window:
        read = self.ahead(first, last)
        ids = np.where(read[:, 1:] == PAD, PAD, read[:, :-1])  # what is behind the end of a lane opens the next one
        ordinary = ids >= len(SPECIALS)
        sizes = ordinary.sum(1)
        asked = np.where(sizes > 0, np.clip(np.round(self.share * sizes).astype(int), 1, None), 0)
        key = (self.seed, np.repeat(np.arange(first, last), self.batch_size), np.tile(np.arange(self.batch_size), last - first))
        # a uniform order cut before its last tokens: a subset of all alike, in an order of all alike
        chosen = subsets(sizes, asked, uniform(*key, np.arange(asked.max())[:, None], CHOSEN)).T  # (rows, most), -1: none
        numbers = np.where(chosen >= 0, uniform(*key, np.arange(asked.max())[:, None], RANKED).T, 2.0)
        by_rank = np.take_along_axis(chosen, np.argsort(numbers, axis=1), axis=1)
        where = np.argsort(~ordinary, axis=1, kind="stable")  # of each row the places of its ordinary tokens, first to last
        none = by_rank < 0
        places = np.where(none, 0, np.take_along_axis(where, by_rank, axis=1))
        labels = np.where(none, IGNORED, np.take_along_axis(ids, places, axis=1))
        order = np.zeros((len(ids), ids.shape[1] + 1), np.int64)  # one place more, for what is none
        np.put_along_axis(order, np.where(none, ids.shape[1], places), np.arange(1, asked.max() + 1)[None], axis=1)
        order[:, :-1][ids == PAD] = asked.max() + 1  # nothing that is predicted sees it
        counts = {
            "tokens": (ids != PAD).sum(1), "permutation": asked,
            "bytes": np.where(none, 0, self.byte_lengths[labels * ~none]).sum(1),
        }  # fmt: skip
        arrays = {"ids": ids, "order": order[:, :-1], "places": places, "labels": labels}
        flat = {name: (own.reshape(-1), np.full(last - first, own.shape[1])) for name, own in arrays.items()}
        return Window.laid_out(first, self.batch_size, flat, counts)
