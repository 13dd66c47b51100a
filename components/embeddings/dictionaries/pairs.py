"""Lists of word pairs, as the field shares them: those of MUSE and of xling-eval, one's own."""

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
"""What a column is named, where the first line of a list is no pair but says what the columns have."""


def build(settings: params.PairsDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """The pairs of the files: what is listed, what is in the vocabularies, and what is not, counted.

    Raises SesameError for a line that is no pair, a list without any, and where next to nothing fits the vocabularies, the other way
    round or at all.
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
    known = [(word, translation) for word, translation in free if word in here and translation in there]
    left_out = {
        "repeated": len(train) - len(set(train)), "asked_for": len(set(train)) - len(free),
        "not_in_the_vocabularies": len(free) - len(known),
    }  # fmt: skip
    return Dictionary(known, golds, left_out)


def _empty(part: str, settings: params.Pairs) -> None:
    """Says that no pair is there to learn from, which some methods do not need; raises SesameError where none can be asked for."""
    said = f"dictionary.{part}: no pair is in {settings.source.shown}"
    if part == "test":
        raise SesameError(f"{said}, so that nothing can be asked for: give it lines of two words, a word and its translation")
    print(f"{said}: only methods with another `start` (identical, numerals, similarity) have something to begin with", flush=True)


def lowered(asked: bool | None, source: list[str], target: list[str]) -> tuple[bool, bool]:
    """Whether small letters are made of the words of either language: as asked, else where its vocabulary has nothing
    but these."""
    return tuple(not has_capitals(words) if asked is None else asked for words in (source, target))


def by_word(listed: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Each source word with all its translations."""
    golds: dict[str, set[str]] = defaultdict(set)
    for word, translation in listed:
        golds[word].add(translation)
    return dict(golds)


def check(
    part: str, listed: list[tuple[str, str]], otherwise: list[tuple[str, str]], here: set[str], there: set[str]
) -> None:  # fmt: skip
    """Says where more pairs would be known in the other case, as `otherwise` lists them.

    Raises SesameError where a list is of other languages than the vectors, or has its sides the other way round.
    """
    ahead = sum(word in here and translation in there for word, translation in listed)
    known = sum(word in here and translation in there for word, translation in otherwise)
    if known > 1.1 * ahead:
        print(
            f"dictionary.{part}: {ahead:,} of {len(listed):,} pairs are in the two vocabularies, in the other case {known:,}: leave "
            "`lowercase` out, or set it as in the vectors",
            flush=True,
        )
    # what is spelled alike in both languages says nothing of the direction
    apart = [pair for pair in listed if pair[0] != pair[1]]
    onward = sum(word in here and translation in there for word, translation in apart)
    behind = sum(word in there and translation in here for word, translation in apart)
    if behind > 2 * onward:
        raise SesameError(
            f"dictionary.{part}: {onward} of {len(apart)} pairs are a word of the source and one of the target, {behind} the other way "
            "round: set `reverse`, or swap `source` and `target`"
        )
    if listed and not ahead:
        raise SesameError(f"dictionary.{part}: none of its {len(listed)} pairs is in the two vocabularies")


def read(settings: params.Pairs, lowercase: tuple[bool, bool], reverse: bool = False) -> Iterator[tuple[str, str]]:
    """(source word, target word), as listed; lines may have the target first. Raises SesameError for a line that is no pair."""
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
                    print(f"{place}: {' '.join(pair)!r} is taken for a pair; if it is a header, take that line out", flush=True)
                word, translation = map(written, pair[::-1] if reverse else pair, lowercase)
                yield word, translation


def _pairs(place: str, line: str, settings: params.Pairs) -> list[tuple[str, str]]:
    if settings.format == "lines":
        found = fields(line)
        if len(found) != 2 or not all(field.strip() for field in found):
            raise SesameError(f"{place}: two words expected, {len(found)} found")
        return [(found[0].strip(), found[1].strip())]
    row = tables.parsed(place, line)
    try:
        words = [row[key] for key in settings.keys]
    except (TypeError, KeyError):
        raise SesameError(f"{place}: a JSON object with {' and '.join(settings.keys)} expected") from None
    translations = words[1] if isinstance(words[1], list) else [words[1]]
    if not all(isinstance(word, str) for word in (words[0], *translations)):
        raise SesameError(f"{place}: {' and '.join(settings.keys)} must be words")
    return [(words[0], translation) for translation in translations]
