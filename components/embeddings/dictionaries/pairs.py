"""Lists of word pairs, such as those of MUSE and xling-eval."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from components import params
from components.core.errors import SesameError
from components.embeddings.dictionaries import Dictionary
from components.embeddings.space import has_capitals, written
from components.text import sources
from components.text.sources import tables
from components.text.sources.text import fields, lines

HEADER = re.compile(r"(source|target|src|trg|tgt|word|translation|english|german|french|spanish|italian|l[12])([ _]?word)?", re.IGNORECASE)
"""Names of columns in the first line of a list."""


def build(settings: params.PairsDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """The pairs of the files, filtered by the vocabularies; the others are counted.

    Raises SesameError for a line that is not a pair, a list without pairs, and where the vocabularies have almost none of the pairs, or
    more of them in the other direction.
    """
    lowercase = lowered(settings.lowercase, source, target)
    train, test = (list(read(part, lowercase, settings.reverse)) for part in (settings.train, settings.test))
    here, there = set(source), set(target)
    for part, listed in (("train", train), ("test", test)):
        if not listed:
            _empty(part, getattr(settings, part))
        other = (not lowercase[0], not lowercase[1])
        check(part, listed, list(read(getattr(settings, part), other, settings.reverse)), here, there)
    golds = by_word(test)
    free = [pair for pair in dict.fromkeys(train) if pair[0] not in golds]
    if train and not free:
        asked = f"all of its {len(train)} pairs are of words that dictionary.test asks for, from which nothing is learned"
        print(f"dictionary.train: {asked}: {WITHOUT_SEEDS}", flush=True)
    known = [(word, translation) for word, translation in free if word in here and translation in there]
    left_out = {
        "repeated": len(train) - len(set(train)), "asked_for": len(set(train)) - len(free),
        "not_in_the_vocabularies": len(free) - len(known),
    }  # fmt: skip
    return Dictionary(known, golds, left_out)


def _empty(part: str, settings: params.Pairs) -> None:
    """Prints that there are no pairs to learn from, which some methods do not need; raises SesameError where there are none to test."""
    problem = f"dictionary.{part}: no pair is in {settings.source.shown}"
    if part == "test":
        raise SesameError(f"{problem}, so that nothing can be tested: give it lines of two words, a word and its translation")
    print(f"{problem}: {WITHOUT_SEEDS}", flush=True)


WITHOUT_SEEDS = "only methods with another `start` (identical, numerals, similarity) have seed pairs"


def lowered(lowercase: bool | None, source: list[str], target: list[str]) -> tuple[bool, bool]:
    """Whether the words of each language are lower-cased: as set, else where its vocabulary has no capitals."""
    return tuple(not has_capitals(words) if lowercase is None else lowercase for words in (source, target))


def by_word(listed: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Source word -> all its translations."""
    golds: dict[str, set[str]] = defaultdict(set)
    for word, translation in listed:
        golds[word].add(translation)
    return dict(golds)


def check(
    part: str, listed: list[tuple[str, str]], otherwise: list[tuple[str, str]], here: set[str], there: set[str]
) -> None:  # fmt: skip
    """Prints a warning where more pairs would be known in the other case, as `otherwise` lists them.

    Raises SesameError where a list is for other languages than the vectors, or for the other direction.
    """
    count = sum(word in here and translation in there for word, translation in listed)
    known = sum(word in here and translation in there for word, translation in otherwise)
    if known > 1.1 * count:
        print(
            f"dictionary.{part}: {count:,} of {len(listed):,} pairs are in the two vocabularies, "
            f"in the other case {known:,}: leave `lowercase` out, or set it as in the vectors",
            flush=True,
        )
    # words with the same spelling in both languages have no direction
    apart = [pair for pair in listed if pair[0] != pair[1]]
    forward = sum(word in here and translation in there for word, translation in apart)
    backward = sum(word in there and translation in here for word, translation in apart)
    if backward > 2 * forward:
        raise SesameError(
            f"dictionary.{part}: {forward} of {len(apart)} pairs are a word of the source and one of the target, {backward} the other way "
            "round: set `reverse`, or swap `source` and `target`"
        )
    if listed and not count:
        raise SesameError(f"dictionary.{part}: none of its {len(listed)} pairs is in the two vocabularies")


def read(settings: params.Pairs, lowercase: tuple[bool, bool], reverse: bool = False) -> Iterator[tuple[str, str]]:
    """(source word, target word), as listed; lines may have the target first. Raises SesameError for a line that is not a pair."""
    count = 0
    for file in sources.open_files(settings.source):
        for number, line in lines(file):
            if not line.strip():
                continue
            if count == settings.max_pairs:
                return
            count += 1
            place = f"{file.name}, line {number}"
            for pair in _pairs(place, line, settings):
                if count == 1 and pair[0] != pair[1] and all(map(HEADER.fullmatch, pair)):
                    print(f"{place}: {' '.join(pair)!r} is read as a pair; if it is a header, remove that line", flush=True)
                word, translation = map(written, pair[::-1] if reverse else pair, lowercase)
                yield word, translation


def _pairs(place: str, line: str, settings: params.Pairs) -> list[tuple[str, str]]:
    if settings.format == "lines":
        words = fields(line)
        if len(words) != 2 or not all(field.strip() for field in words):
            raise SesameError(f"{place}: two words expected, {len(words)} found")
        return [(words[0].strip(), words[1].strip())]
    row = tables.parsed(place, line)
    try:
        words = [row[key] for key in settings.keys]
    except (TypeError, KeyError):
        raise SesameError(f"{place}: a JSON object with {' and '.join(settings.keys)} expected") from None
    translations = words[1] if isinstance(words[1], list) else [words[1]]
    if not all(isinstance(word, str) for word in (words[0], *translations)):
        raise SesameError(f"{place}: {' and '.join(settings.keys)} must be words")
    return [(words[0], translation) for translation in translations]
