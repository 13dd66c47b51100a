"""N-gram models over a sequence of token ids."""

from math import ceil, log2

import numpy as np


class KneserNey:
    """An n-gram model with interpolated Kneser-Ney smoothing and three discounts per order (Chen and Goodman 1999, section 4.1.6).

    Ids are below `vocab_size`; those of `order` tokens must fit into 63 bits.
    """

    def __init__(self, stream: np.ndarray, vocab_size: int, order: int):
        self.vocab_size, self.order, self.bits, self.tokens = vocab_size, order, ceil(log2(vocab_size)), len(stream)
        grams, counts = np.unique(self._grams(stream, order)[order - 1 :], return_counts=True)
        self.levels = [self._level(grams, counts)]
        for size in range(order - 1, 0, -1):  # a lower order counts the different tokens before an n-gram
            grams, counts = np.unique(grams & ((1 << size * self.bits) - 1), return_counts=True)
            self.levels.append(self._level(grams, counts))
        self.levels.reverse()

    def _grams(self, stream: np.ndarray, size: int) -> np.ndarray:
        """Pack the last `size` tokens at each position into a number, the newest in the lowest bits; (n,), valid from size - 1 on."""
        grams = np.zeros(len(stream), np.int64)
        for back in range(size):
            grams[back:] |= stream[: len(stream) - back] << (back * self.bits)
        return grams

    def _level(self, grams: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Return the sorted n-grams of one order, their discounted counts, their contexts, and for each context the total count and
        the share that its discounts leave for lower orders."""
        n1, n2, n3, n4 = ((counts == times).sum() for times in (1, 2, 3, 4))
        y = n1 / max(1, n1 + 2 * n2)
        discounts = np.array([0, 1 - 2 * y * n2 / max(1, n1), 2 - 3 * y * n3 / max(1, n2), 3 - 4 * y * n4 / max(1, n3)])
        # with little text a class may be empty; the usual discount is then 0.5
        discounts[1:] = np.where((discounts[1:] > 0) & (discounts[1:] < [1, 2, 3]), discounts[1:], 0.5)
        discount = discounts[np.minimum(counts, 3)]
        contexts, first = np.unique(grams >> self.bits, return_index=True)
        totals = np.add.reduceat(counts.astype(float), first)
        backoff = np.add.reduceat(discount, first) / totals
        return {"grams": grams, "discounted": counts - discount, "contexts": contexts, "totals": totals, "backoff": backoff}

    def probabilities(self, stream: np.ndarray) -> np.ndarray:
        """Return the probability of each token of a sequence after those before it, (n,)."""
        probability = np.full(len(stream), 1 / self.vocab_size)
        for size, level in enumerate(self.levels, start=1):
            positions = np.arange(size - 1, len(stream))  # the first tokens have fewer tokens before them
            grams = self._grams(stream, size)[positions]
            context, has_context = _find(level["contexts"], grams >> self.bits)
            gram, has_gram = _find(level["grams"], grams)
            probability[positions[has_context]] *= level["backoff"][context[has_context]]
            probability[positions[has_gram]] += level["discounted"][gram[has_gram]] / level["totals"][context[has_gram]]
        return probability


def _find(values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each of `wanted` in sorted `values`, and whether it is there. A text of few tokens has no long n-gram."""
    if not len(values):
        return np.zeros(len(wanted), int), np.zeros(len(wanted), bool)
    index = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return index, values[index] == wanted
