"""Word pairs: some to learn a mapping from, others, with other source words, to test it.

To add a kind of dictionary, write a file `<kind>.py` here with `build(settings, source, target, seed)`, and its block in
`components/params/dictionaries.py`.
"""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from components import params
from components.core.errors import SesameError

Settings = params.WordNetDictionary | params.IdenticalDictionary | params.PairsDictionary | params.ParallelDictionary

SPARE = 10
"""The fewest words to learn from."""
NUMERAL = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Dictionary:
    """Train pairs and test words; no source word is in both."""

    train: list[tuple[str, str]]
    """All in both vocabularies."""
    test: dict[str, set[str]]
    """Source word -> all its right translations, in the target vocabulary or not."""
    left_out: dict[str, int]
    """Reason -> the number of listed train pairs that are left out."""


def load(kind: str) -> Callable[[Settings, list[str], list[str], int], Dictionary]:
    """The `build` of a kind of dictionary: its settings, the words of source and target, most frequent first, a seed.

    It raises SesameError when there are not enough words.
    """
    return import_module(f"components.embeddings.dictionaries.{kind}").build


def drawn(
    candidates: list[str], translations: dict[str, Counter], target: list[str], train: int, test: int, seed: int
) -> Dictionary:  # fmt: skip
    """Hold out a seeded sample of `test` words among the `train` + `test` most frequent source words with a translation.

    A word is learned with its best known translations (in `target`, the vocabulary), and tested with all.
    Raises SesameError when there are not enough words.
    """
    pool = candidates[: train + test]
    if len(pool) < test + SPARE:
        raise SesameError(
            f"of {len(candidates)} words of the source vocabulary with a translation, {len(pool)} are taken "
            f"(train {train}, test {test}): {SPARE} must be left to learn from; lower test, or raise max_vocabulary"
        )
    held_out = random.Random(seed).sample(pool, test)
    held, there = set(held_out), set(target)
    pairs = []
    for word in pool:
        known = {translation: times for translation, times in translations[word].items() if translation in there}
        if word not in held and known:
            # only the best known: with few pairs a rare sense would distort the map
            pairs += [(word, translation) for translation in sorted(known) if known[translation] == max(known.values())]
    return Dictionary(pairs, {word: set(translations[word]) for word in held_out}, {})


def spelled_alike(source: list[str], target: list[str]) -> list[tuple[str, str]]:
    """Words with the same spelling in both vocabularies."""
    there = set(target)
    return [(word, word) for word in source if word in there]


def numerals(source: list[str], target: list[str]) -> list[tuple[str, str]]:
    """Numerals in both vocabularies (Artetxe et al. 2017): a dictionary for all languages with these digits."""
    return [pair for pair in spelled_alike(source, target) if NUMERAL.fullmatch(pair[0])]
