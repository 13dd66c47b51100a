"""Masked tokens (Devlin et al. 2019, section 3.1 and appendix A)."""

from typing import Protocol

import numpy as np

from components.core.keyed import uniform
from components.text.tokenizer import MASK

MASKED, REPLACED, NEW_TOKEN = 1, 2, 3  # keys of random numbers


class MaskShares(Protocol):
    """The share of targets, and the shares of them that are masked or replaced; the rest stay unchanged."""

    mlm_probability: float
    mask_share: float
    random_share: float


def target_counts(sizes: np.ndarray, probability: float) -> np.ndarray:
    """sizes (sequences,) -> the number of targets of each sequence, at least 1."""
    return np.minimum(sizes, np.maximum(1, np.round(probability * sizes).astype(int)))


def mask(
    tokens: np.ndarray, sizes: np.ndarray, config: MaskShares, ordinary: np.ndarray, key: tuple[int, ...], examples: np.ndarray,
    opens_word: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """tokens (n,), the ordinary ones of all sequences; sizes (sequences,) -> the input tokens, and the positions of the targets.

    Exactly round(mlm_probability * size), at least one, of a sequence's tokens are targets; of these mask_share become `[MASK]`,
    random_share an ordinary token, and the rest stay unchanged. With `opens_word` (n,), True at the start of a word, whole words
    are targets, in a random order, without those that would be too many tokens (but at least the shortest word); the shares are
    still of tokens. A pure function of the key, as (seed, epoch), and the example of each sequence, examples (sequences,).
    """
    firsts, sequence = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    counts = target_counts(sizes, config.mlm_probability)
    if opens_word is None:
        numbers = uniform(*key, examples, np.arange(counts.max())[:, None], MASKED)  # (most targets of a sequence, sequences)
        chosen = random_subsets(sizes, counts, numbers)
        targets = np.sort((firsts + chosen)[chosen >= 0])
    else:
        targets = np.flatnonzero(_word_targets(opens_word, sequence, counts, key, examples))
    return corrupt(tokens, sizes, targets, targets, config, ordinary, key, examples), targets


def corrupt(
    tokens: np.ndarray, sizes: np.ndarray, targets: np.ndarray, units: np.ndarray, config: MaskShares, ordinary: np.ndarray,
    key: tuple[int, ...], examples: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """tokens (n,) -> the input tokens: each target becomes `[MASK]`, an ordinary token, or stays unchanged.

    Targets with the same `units` (targets,), a position in `tokens`, are treated alike.
    """
    firsts, sequences = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    sequence, original = sequences[targets], tokens[targets]
    decision = uniform(*key, examples[sequence], units - firsts[sequence], REPLACED)
    drawn = ordinary[(uniform(*key, examples[sequence], targets - firsts[sequence], NEW_TOKEN) * len(ordinary)).astype(int)]
    inputs = tokens.copy()
    replaced = np.where(decision < config.mask_share + config.random_share, drawn, original)
    inputs[targets] = np.where(decision < config.mask_share, MASK, replaced)
    return inputs


def random_subsets(sizes: np.ndarray, counts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return for each sequence `counts` different integers below its size, all subsets equally likely.

    `numbers` (most, sequences) in [0, 1) -> (most, sequences), -1 where a sequence has fewer. Floyd's algorithm (Bentley and
    Floyd 1987), which needs one number per element and no sorting.
    """
    chosen = np.full(numbers.shape, -1)
    for i in range(len(numbers)):
        largest = sizes - counts + i
        drawn = (numbers[i] * (largest + 1)).astype(int)
        drawn = np.where((chosen[:i] == drawn).any(0), largest, drawn)
        chosen[i] = np.where(i < counts, drawn, -1)
    return chosen


def _word_targets(
    opens_word: np.ndarray, sequence: np.ndarray, counts: np.ndarray, key: tuple[int, ...], examples: np.ndarray
) -> np.ndarray:
    """Return whether each token belongs to a selected word, (n,)."""
    word = np.cumsum(opens_word) - 1
    size, sequence = np.bincount(word), sequence[opens_word]  # of each word
    words = np.bincount(sequence, minlength=len(counts))
    rank = np.arange(len(size)) - np.repeat(np.cumsum(words) - words, words)
    order = np.argsort(sequence + uniform(*key, examples[sequence], rank, MASKED))  # random within each sequence
    by_rank = np.zeros((words.max(), len(counts)), int)  # sizes of the words in their random order
    by_rank[rank, sequence] = size[order]
    taken, totals = np.zeros(by_rank.shape, bool), np.zeros_like(counts)
    for i, sizes in enumerate(by_rank):
        taken[i] = (sizes > 0) & (totals + sizes <= counts)  # a word that is too long is skipped, as in Devlin's code
        totals += np.where(taken[i], sizes, 0)
    [none] = np.nonzero(totals == 0)
    taken[np.where(by_rank[:, none] > 0, by_rank[:, none], by_rank.max() + 1).argmin(0), none] = True  # the shortest
    selected = np.zeros(len(size), bool)
    selected[order] = taken[rank, sequence]
    return selected[word]
