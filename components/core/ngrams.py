"""What counting alone makes of a stream of ids."""

from math import ceil, log2

import numpy as np


class KneserNey:
    """Counts of the n-grams of a stream, and the probabilities that they give.

    Interpolated Kneser-Ney smoothing with three discounts an order (Chen and Goodman 1999, section 4.1.6). Ids are
    below `vocab_size`; those of `order` tokens must go into 63 bits.
    """

    def __init__(self, stream: np.ndarray, vocab_size: int, order: int):
        self.vocab_size, self.order, self.bits, self.tokens = vocab_size, order, ceil(log2(vocab_size)), len(stream)
        grams, counts = np.unique(self._grams(stream, order)[order - 1 :], return_counts=True)
        self.levels = [self._level(grams, counts)]
        for size in range(order - 1, 0, -1):  # a shorter one counts as often as it has different tokens before it
            grams, counts = np.unique(grams & ((1 << size * self.bits) - 1), return_counts=True)
            self.levels.append(self._level(grams, counts))
        self.levels.reverse()

    def _grams(self, stream: np.ndarray, size: int) -> np.ndarray:
        """At each place the last `size` tokens in one number, the newest in the lowest bits; (n,), right from place
        size - 1 on."""
        grams = np.zeros(len(stream), np.int64)
        for back in range(size):
            grams[back:] |= stream[: len(stream) - back] << (back * self.bits)
        return grams

    def _level(self, grams: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
        """What is needed of the n-grams of one length, sorted: those, what is left of their counts after the discount,
        their contexts, and of each context the sum of counts and the share that its discounts free for shorter ones."""
        n1, n2, n3, n4 = ((counts == times).sum() for times in (1, 2, 3, 4))
        y = n1 / max(1, n1 + 2 * n2)
        discounts = np.array([0, 1 - 2 * y * n2 / max(1, n1), 2 - 3 * y * n3 / max(1, n2), 3 - 4 * y * n4 / max(1, n3)])
        # on little text a class may be empty; half a count is then the usual choice
        discounts[1:] = np.where((discounts[1:] > 0) & (discounts[1:] < [1, 2, 3]), discounts[1:], 0.5)
        taken = discounts[np.minimum(counts, 3)]
        contexts, first = np.unique(grams >> self.bits, return_index=True)
        totals = np.add.reduceat(counts.astype(float), first)
        freed = np.add.reduceat(taken, first) / totals
        return {"grams": grams, "left": counts - taken, "contexts": contexts, "totals": totals, "freed": freed}

    def probabilities(self, stream: np.ndarray) -> np.ndarray:
        """Of each token of a stream after those before it, (n,)."""
        likely = np.full(len(stream), 1 / self.vocab_size)
        for size, level in enumerate(self.levels, start=1):
            places = np.arange(size - 1, len(stream))  # the first ones have fewer tokens before them
            grams = self._grams(stream, size)[places]
            context, known = _find(level["contexts"], grams >> self.bits)
            own, there = _find(level["grams"], grams)
            likely[places[known]] *= level["freed"][context[known]]
            likely[places[there]] += level["left"][own[there]] / level["totals"][context[there]]
        return likely


def _find(values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of `wanted` stands in sorted `values`, and whether it does."""
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return places, values[places] == wanted
