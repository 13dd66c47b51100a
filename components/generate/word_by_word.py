"""Translation word by word, the simplest baseline: IBM model 1 (Brown et al. 1993), without its empty word."""

import re
from collections.abc import Iterable

import numpy as np

from components.core.words import HAN, OTHERS, WORD, characters_apart
from components.embeddings.word_translation import most_probable

ROUNDS = 5
WORDS = re.compile(rf"{WORD}|[^\w\s]")
APART = re.compile(rf"(?<=[{HAN}{OTHERS}]) (?=[{HAN}{OTHERS}])")


def words_of(text: str) -> list[str]:
    """Words and punctuation; in scripts without blanks between words each character is a word."""
    return WORDS.findall(characters_apart(text))


class WordByWord:
    """Replaces each word by its most probable translation, in the order of the source; unknown words stay."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        """Trained on sentences and their translations by expectation maximisation, from uniform probabilities."""
        ids: tuple[dict[str, int], dict[str, int]] = ({}, {})
        links, slots, slot = [], [], 0
        for pair in pairs:
            source, target = (
                [index.setdefault(word, len(index)) for word in words_of(text)] for index, text in zip(ids, pair, strict=True)
            )
            if source and target:
                grid = np.stack(np.meshgrid(source, target, indexing="ij"), 2).reshape(-1, 2)
                links.append(grid)
                slots.append(slot + np.tile(np.arange(len(target)), len(source)))  # each target word has one source word
                slot += len(target)
        source, target = np.concatenate(links).T
        names = list(ids[1])
        best = most_probable(source, target, np.concatenate(slots), ROUNDS)
        self.of = {word: names[best[i]] for word, i in ids[0].items() if i in best}

    def translate(self, text: str) -> str:
        """Punctuation without the space before it, and no spaces in scripts without them."""
        words = [self.of.get(word, word) for word in words_of(text)]
        return APART.sub("", re.sub(r" ([.,;:!?)])", r"\1", " ".join(words)))
