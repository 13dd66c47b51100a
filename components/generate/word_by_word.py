"""A translation word by word, the baseline of all others: IBM's first model (Brown et al. 1993), without its empty word.

All links of all pairs are held, 16 bytes each: a million sentences of 20 words take 6 GB.
"""

import re
from collections.abc import Iterable

import numpy as np

ROUNDS = 5
WORDS = re.compile(r"\w+|[^\w\s]")


class WordByWord:
    """Puts in the place of each word the one that it goes with most, in the order of the source; a word never seen stays."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        """Learned from sentences and their translations by expectation maximisation, from equal shares."""
        ids: tuple[dict[str, int], dict[str, int]] = ({}, {})
        links, slots, slot = [], [], 0
        for pair in pairs:
            source, target = ([own.setdefault(word, len(own)) for word in WORDS.findall(text)] for own, text in zip(ids, pair, strict=True))
            if source and target:
                grid = np.stack(np.meshgrid(source, target, indexing="ij"), 2).reshape(-1, 2)
                links.append(grid)
                slots.append(slot + np.tile(np.arange(len(target)), len(source)))  # each target word came of one of the source
                slot += len(target)
        both, slots = np.concatenate(links), np.concatenate(slots)
        keys, link = np.unique(both[:, 0].astype(np.int64) * len(ids[1]) + both[:, 1], return_inverse=True)
        source = keys // len(ids[1])
        shares = np.ones(len(keys))
        for _ in range(ROUNDS):
            weights = shares[link]
            weights /= np.bincount(slots, weights)[slots]
            counts = np.bincount(link, weights)
            shares = counts / np.bincount(source, counts)[source]
        names = list(ids[1])
        best = np.lexsort((shares, source))  # the largest share of each source word comes last
        last = np.append(source[best][1:] != source[best][:-1], True)
        chosen = dict(zip(source[best][last].tolist(), (keys[best][last] % len(names)).tolist(), strict=True))
        self.of = {word: names[chosen[i]] for word, i in ids[0].items() if i in chosen}

    def translate(self, text: str) -> str:
        """Punctuation without the space before it."""
        words = [self.of.get(word, word) for word in WORDS.findall(text)]
        return re.sub(r" ([.,;:!?)])", r"\1", " ".join(words))
