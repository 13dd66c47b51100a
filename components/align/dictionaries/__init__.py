"""Word pairs: some to learn a mapping from, others, of other source words, to ask for.

One more kind of dictionary is one file here, `<kind>.py`, with `translations(settings, source, target)`, and its block in
`components/params/align.py`. It gives the words of `source` that have a translation, in their order, and for each its
translations with how well they are known.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from components import params
from components.errors import SesameError

Settings = params.WordNetDictionary | params.IdenticalDictionary

SPARE = 10
"""Words that must be left to learn from."""


@dataclass(frozen=True)
class Dictionary:
    """Train pairs and test words; no source word is in both."""

    train: list[tuple[str, str]]
    test: dict[str, set[str]]
    """Source word -> every translation that counts, in the target vocabulary or not."""


def load(kind: str) -> Callable[[Settings, list[str], list[str]], tuple[list[str], dict[str, Counter]]]:
    """The `translations` of a kind of dictionary."""
    return import_module(f"components.align.dictionaries.{kind}").translations


def build(settings: Settings, source: list[str], target: list[str], seed: int) -> Dictionary:
    """Out of the most frequent source words with a translation, a seeded `test` are held out and the others learn.

    A word learns from the translations that share the most synsets with it (in `target`, the vocabulary), and counts as
    found with any. Raises SesameError when there are not enough words.
    """
    candidates, translations = load(settings.kind)(settings, source, target)
    pool = candidates[: settings.train + settings.test]
    if len(pool) < settings.test + SPARE:
        raise SesameError(
            f"{len(pool)} words of the source vocabulary have a translation: too few to hold out {settings.test} and learn from the rest"
        )
    held_out = random.Random(seed).sample(pool, settings.test)
    asked, there = set(held_out), set(target)
    train = []
    for word in pool:
        known = {translation: times for translation, times in translations[word].items() if translation in there}
        if word not in asked and known:
            # Only the best known: a mapping learns from few pairs, and a rare sense among them pulls it away.
            train += [(word, translation) for translation in sorted(known) if known[translation] == max(known.values())]
    return Dictionary(train, {word: set(translations[word]) for word in held_out})
