"""Masked tokens (Devlin et al. 2019, section 3.1 and appendix A)."""

from typing import Protocol

import numpy as np

from components.keyed import uniform
from components.objectives.scoring import IGNORED
from components.tokenizer import MASK, SPECIALS

MASKED, REPLACED, NEW_TOKEN = 1, 2, 3  # what a keyed number decides


class Shares(Protocol):
    """How much is masked, and by what; the rest of the targets stay as they are."""

    mlm_probability: float
    mask_share: float
    random_share: float


def mask(
    ids: np.ndarray, config: Shares, ordinary: np.ndarray, key: tuple[int, int], examples: np.ndarray, starts_word: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """ids (batch, length) -> masked ids and labels, IGNORED where nothing is predicted.

    Exactly round(mlm_probability * n), at least one, of a row's n ordinary tokens are targets; of these mask_share become
    `[MASK]`, random_share an ordinary token, and the rest stay. With `starts_word` (vocab_size,) whole words are targets, in a
    random order, those passed over that would be too much (at least the shortest is one); the shares are still of tokens.
    A pure function of (seed, epoch) = key and the example.
    """
    example, position = examples[:, None], np.arange(ids.shape[1])[None, :]
    real = ids >= len(SPECIALS)
    count = np.maximum(1, np.round(config.mlm_probability * real.sum(1))).astype(int)[:, None]
    if starts_word is None:
        rank = np.where(real, uniform(*key, example, position, MASKED), 2.0).argsort(1, kind="stable").argsort(1, kind="stable")
        target = real & (rank < count)
    else:
        opens = real & (starts_word[ids] | ~np.pad(real, ((0, 0), (1, 0)))[:, :-1])  # what follows a special opens a word, too
        word = np.where(real, opens.cumsum(1), 0)  # (batch, length), from 1
        order = np.where(opens, uniform(*key, example, position, MASKED), 2.0).argsort(1, kind="stable")
        target = np.zeros_like(real)
        for row, limit in enumerate(count[:, 0]):
            sizes, taken = np.bincount(word[row]), 0
            for first in order[row, : opens[row].sum()]:
                size = sizes[word[row, first]]
                if taken + size <= limit:  # a word that is too long is passed over, as in Devlin's
                    target[row, first : first + size], taken = True, taken + size
            if not taken:
                shortest = sizes[1:].argmin() + 1
                target[row] = word[row] == shortest
    decision = uniform(*key, example, position, REPLACED)
    drawn = ordinary[(uniform(*key, example, position, NEW_TOKEN) * len(ordinary)).astype(int)]
    masked = np.where(target & (decision < config.mask_share), MASK, ids)
    masked = np.where(target & (decision >= config.mask_share) & (decision < config.mask_share + config.random_share), drawn, masked)
    return masked, np.where(target, ids, IGNORED)
