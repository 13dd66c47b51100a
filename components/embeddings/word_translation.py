"""Word translations from sentences and their translations: IBM model 1 (Brown et al. 1993, section 4.2)."""

import numpy as np


def most_probable(words: np.ndarray, others: np.ndarray, slots: np.ndarray, rounds: int) -> dict[int, int]:
    """words, others, slots (links,): word `words[i]` is in a sentence whose translation has `others[i]`, and is a possible source of it;
    the links of a slot explain the same word of a translation. Returns for each word the other with the largest p(other | word), by
    expectation maximisation from uniform probabilities. 50 bytes per link.
    """
    if not len(words):
        return {}
    size = int(others.max()) + 1
    pairs, pair_of = np.unique(words.astype(np.int64) * size + others, return_inverse=True)
    word_of, other_of = np.divmod(pairs, size)
    probabilities = np.ones(len(pairs))
    for _ in range(rounds):
        share = probabilities[pair_of]
        share /= np.bincount(slots, share)[slots]
        expected = np.bincount(pair_of, share)
        probabilities = expected / np.bincount(word_of, expected)[word_of]
    order = np.lexsort((-probabilities, word_of))
    first = order[np.r_[True, np.diff(word_of[order]) > 0]]
    return dict(zip(word_of[first].tolist(), other_of[first].tolist(), strict=True))
