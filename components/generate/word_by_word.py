"""Translation word by word, the simplest baseline: IBM model 1 (Brown et al. 1993), without its empty word."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from components.core.words import HAN, OTHERS, UNSPACED, WORD
from components.embeddings.word_translation import most_probable

ROUNDS = 5
WORDS = re.compile(rf"{WORD}|[^\w\s]")
APART = re.compile(rf"(?<=[{HAN}{OTHERS}]) (?=[{HAN}{OTHERS}])")
CHARACTER, RUN = re.compile(UNSPACED), re.compile(f"(?:{UNSPACED})+")
BESIDE = re.compile(rf"{UNSPACED}\s+{UNSPACED}")
"""A blank that divides words of a script without blanks, in text that is cut into words."""


class WordByWord:
    """Replaces each word by its most probable translation, in the order of the source; unknown words stay."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        """Trained on sentences and their translations by expectation maximisation, from uniform probabilities."""
        pairs = list(pairs)
        runs = Counter(run for pair in pairs for text in pair if BESIDE.search(text) for run in RUN.findall(text))
        self.known = {run for run, count in runs.items() if count > 1}  # once alone it may be a clause
        self.longest = max(map(len, self.known), default=1)
        ids: tuple[dict[str, int], dict[str, int]] = ({}, {})
        links, slots, slot = [], [], 0
        for pair in pairs:
            source, target = (
                [index.setdefault(word, len(index)) for word in self.words_of(text)] for index, text in zip(ids, pair, strict=True)
            )
            if source and target:
                grid = np.stack(np.meshgrid(source, target, indexing="ij"), 2).reshape(-1, 2)
                links.append(grid)
                slots.append(slot + np.tile(np.arange(len(target)), len(source)))  # each target word has one source word
                slot += len(target)
        if not links:  # no pair has words on both sides
            self.of = {}
            return
        source, target = np.concatenate(links).T
        names = list(ids[1])
        best = most_probable(source, target, np.concatenate(slots), ROUNDS)
        self.of = {word: names[best[i]] for word, i in ids[0].items() if i in best}

    def translate(self, text: str) -> str:
        """Punctuation without the space before it, and no spaces in scripts without them."""
        words = [self.of.get(word, word) for word in self.words_of(text)]
        return APART.sub("", re.sub(r" ([.,;:!?)])", r"\1", " ".join(words)))

    def words_of(self, text: str) -> list[str]:
        """Words and punctuation. In scripts without blanks between words, the longest words that the training text has between blanks;
        where it has none, each character is a word."""
        return WORDS.findall(RUN.sub(lambda run: f" {' '.join(self._longest_first(run[0]))} ", text))

    def _longest_first(self, run: str) -> list[str]:
        characters, words = CHARACTER.findall(run), []
        while characters:
            sizes = range(min(len(characters), self.longest), 0, -1)
            size = next((size for size in sizes if "".join(characters[:size]) in self.known), 1)
            words.append("".join(characters[:size]))
            del characters[:size]
        return words
