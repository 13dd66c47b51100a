"""Masked tokens (Devlin et al. 2019, section 3.1 and appendix A)."""

from typing import Protocol

import numpy as np

from components.core.keyed import uniform
from components.text.tokenizer import MASK

MASKED, REPLACED, NEW_TOKEN = 1, 2, 3  # what a keyed number decides


class Shares(Protocol):
    """How much is masked, and by what; the rest of the targets stay as they are."""

    mlm_probability: float
    mask_share: float
    random_share: float


def mask(
    tokens: np.ndarray, sizes: np.ndarray, config: Shares, ordinary: np.ndarray, key: tuple[int, ...], examples: np.ndarray,
    opens: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """tokens (n,), the ordinary ones of rows one after another; sizes (rows,) -> those that the model sees, and the places of the targets.

    Exactly round(mlm_probability * size), at least one, of a row's tokens are targets; of these mask_share become `[MASK]`,
    random_share an ordinary token, and the rest stay. With `opens` (n,), True where a word begins, whole words are targets, in a
    random order, those passed over that would be too much (at least the shortest is one); the shares are still of tokens.
    A pure function of the key, as (seed, epoch), and the row's example: examples (rows,).
    """
    firsts, rows = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    counts = np.minimum(sizes, np.maximum(1, np.round(config.mlm_probability * sizes).astype(int)))
    if opens is None:
        numbers = uniform(*key, examples, np.arange(counts.max())[:, None], MASKED)  # (most targets of a row, rows)
        chosen = subsets(sizes, counts, numbers)
        targets = np.sort((firsts + chosen)[chosen >= 0])
    else:
        targets = np.flatnonzero(_words(opens, rows, counts, key, examples))
    return hidden(tokens, sizes, targets, targets, config, ordinary, key, examples), targets


def hidden(
    tokens: np.ndarray, sizes: np.ndarray, targets: np.ndarray, decided: np.ndarray, config: Shares, ordinary: np.ndarray,
    key: tuple[int, ...], examples: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What the model sees of the tokens (n,): in the place of targets `[MASK]`, an ordinary token or the same one; targets of which
    `decided` (targets,) is one place share what becomes of them."""
    firsts, rows = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    row, own = rows[targets], tokens[targets]
    decision = uniform(*key, examples[row], decided - firsts[row], REPLACED)
    drawn = ordinary[(uniform(*key, examples[row], targets - firsts[row], NEW_TOKEN) * len(ordinary)).astype(int)]
    seen = tokens.copy()
    seen[targets] = np.where(decision < config.mask_share, MASK, np.where(decision < config.mask_share + config.random_share, drawn, own))
    return seen


def subsets(sizes: np.ndarray, counts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Of each row `counts` of the numbers below its size, all subsets alike: (most, rows), -1 where a row has fewer.

    `numbers` (most, rows) in [0, 1). Floyd's algorithm (Bentley and Floyd 1987): a draw for each that is chosen, and nothing is sorted.
    """
    chosen = np.full(numbers.shape, -1)
    for i in range(len(numbers)):
        largest = sizes - counts + i
        drawn = (numbers[i] * (largest + 1)).astype(int)
        drawn = np.where((chosen[:i] == drawn).any(0), largest, drawn)
        chosen[i] = np.where(i < counts, drawn, -1)
    return chosen


def _words(opens: np.ndarray, rows: np.ndarray, counts: np.ndarray, key: tuple[int, ...], examples: np.ndarray) -> np.ndarray:
    """Which tokens are of the words that are chosen, (n,)."""
    word = np.cumsum(opens) - 1
    size, row = np.bincount(word), rows[opens]
    words = np.bincount(row, minlength=len(counts))
    rank = np.arange(len(size)) - np.repeat(np.cumsum(words) - words, words)
    order = np.argsort(row + uniform(*key, examples[row], rank, MASKED))  # within each row
    left = np.zeros((words.max(), len(counts)), int)  # sizes of the words in their random order
    left[rank, row] = size[order]
    taken, sums = np.zeros(left.shape, bool), np.zeros_like(counts)
    for i, sizes in enumerate(left):
        taken[i] = (sizes > 0) & (sums + sizes <= counts)  # a word that is too long is passed over, as in Devlin's
        sums += np.where(taken[i], sizes, 0)
    [none] = np.nonzero(sums == 0)
    taken[np.where(left[:, none] > 0, left[:, none], left.max() + 1).argmin(0), none] = True  # the shortest
    chosen = np.zeros(len(size), bool)
    chosen[order] = taken[rank, row]
    return chosen[word]
