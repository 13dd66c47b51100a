"""Files of multiple choice -> items. One more set is one function and its line in `READERS`, and its name in
`config.py`."""

from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from pathlib import PurePosixPath
from typing import NamedTuple

from components.core.errors import SesameError
from components.text.sources import tables
from components.text.sources.file import SourceFile

GAP = "[MASK]"


class Candidate(NamedTuple):
    """One way to fill a gap, or one context of a word."""

    text: str
    """The whole."""
    start: int
    """The first character of what is judged."""
    end: int
    """The one behind its last."""


class Item(NamedTuple):
    """Candidates of which one is right."""

    group: str
    candidates: list[Candidate]
    answer: int
    """The number of the right one."""


class _Table:
    """What `tables` asks of a table with a header."""

    header, fields = True, None


def filled(place: str, text: str, choice: str) -> Candidate:
    """Raises SesameError where a text has no gap, or two."""
    if text.count(GAP) != 1:
        raise SesameError(f"{place}: {text[:60]!r} has {text.count(GAP)} times {GAP}; give each text one gap")
    start = text.index(GAP)
    return Candidate(text.replace(GAP, choice), start, start + len(choice))


def ended(text: str, choice: str) -> Candidate:
    """A choice behind a text."""
    return Candidate(f"{text.strip()} {choice}", len(text.strip()) + 1, len(text.strip()) + 1 + len(choice))


def jsonl(files: Iterable[SourceFile]) -> Iterator[Item]:
    """Anyone's own."""
    for place, row in _rows(files, "jsonl"):
        choices, answer = _list(place, row, "choices", "texts"), tables.value(place, row, "answer")
        if not all(isinstance(choice, str) for choice in choices):
            raise SesameError(f"{place}: choices is {choices!r}; give a list of texts")
        if not isinstance(answer, int) or isinstance(answer, bool):
            raise SesameError(f"{place}: answer is {answer!r}; give the number of a choice, from 0")
        text = tables.text(place, row, "text")
        group = tables.text(place, row, "group") if "group" in row else "all"
        yield _checked(place, Item(group, [filled(place, text, choice) for choice in choices], answer))


def olmpics(files: Iterable[SourceFile]) -> Iterator[Item]:
    """Talmor et al. 2020: each file is a task."""
    for file in files:
        for place, row in _rows([file], "jsonl"):
            question, answer = tables.value(place, row, "question"), tables.text(place, row, "answerKey")
            choices, stem = _list(place, question, "choices", "objects"), tables.text(place, question, "stem")
            labels = [tables.text(place, choice, "label") for choice in choices]
            candidates = [filled(place, stem, tables.text(place, choice, "text")) for choice in choices]
            if labels.count(answer) != 1:
                raise SesameError(f"{place}: {labels.count(answer)} choices have the label {answer!r} of answerKey; label each by its own")
            yield _checked(place, Item(_stem(file), candidates, labels.index(answer)))


CONSTRAINT = {"H": "high constraint", "L": "low constraint"}


def cprag(files: Iterable[SourceFile]) -> Iterator[Item]:
    """CPRAG-102: the expected word against one of its category and one of another, by how constraining the context is."""
    for place, row in _rows(files, "tsv"):
        context = f"{_context(place, row, 'context_s1')} {_context(place, row, 'context_s2')}"
        words = [tables.text(place, row, key) for key in ("expected", "within_category", "between_category")]
        group = CONSTRAINT.get(constraint := tables.text(place, row, "constraint"))
        if group is None:
            raise SesameError(f"{place}: constraint is {constraint!r}; give {' or '.join(CONSTRAINT)}")
        yield _checked(place, Item(group, [ended(context, word) for word in words], 0))


def role(files: Iterable[SourceFile]) -> Iterator[Item]:
    """ROLE-88: two contexts with the roles exchanged; the word is more expected in the one that people say it in."""
    rows = list(_rows(files, "tsv"))
    if len(rows) % 2:
        raise SesameError(f"{rows[-1][0]}: {len(rows)} rows; an even number of them expected, two contexts of each word")
    for (place, one), (_, other) in zip(rows[::2], rows[1::2], strict=True):
        contexts = [ended(_context(place, row, "context"), tables.text(place, one, "target")) for row in (one, other)]
        if tables.text(place, one, "target") != tables.text(place, other, "target"):
            raise SesameError(f"{place}: its target is not that of the next row; two rows that follow each other have one word")
        cloze = [_number(place, row, "tgt_cloze") for row in (one, other)]
        yield _checked(place, Item("role reversal", contexts, cloze.index(max(cloze))))


def negation(files: Iterable[SourceFile]) -> Iterator[Item]:
    """NEG-136: what is true of a thing, and what is true where it is denied."""
    for place, row in _rows(files, "tsv"):
        words = [tables.text(place, row, key) for key in ("target_aff", "target_neg")]
        for answer, (key, group) in enumerate((("context_aff", "affirmed"), ("context_neg", "negated"))):
            context = _context(place, row, key)
            candidates = [ended(context.replace("(a|an)", "an" if word.startswith((*"aeiou",)) else "a"), word) for word in words]
            yield _checked(place, Item(group, candidates, answer))


READERS: dict[str, Callable[[Iterable[SourceFile]], Iterator[Item]]] = {
    "jsonl": jsonl, "olmpics": olmpics, "cprag": cprag, "role": role, "negation": negation,
}  # fmt: skip


def _rows(files: Iterable[SourceFile], form: str) -> Iterator[tuple[str, tables.Row]]:
    for file in files:
        yield from tables.FORMATS[form](file, _Table())


def _list(place: str, row: tables.Row, column: str, of: str) -> list:
    if not isinstance(found := tables.value(place, row, column), list):
        raise SesameError(f"{place}: {column} is {found!r}; give a list of {of}")
    return found


def _context(place: str, row: tables.Row, column: str) -> str:
    if not (text := tables.text(place, row, column)).strip():
        raise SesameError(f"{place}: {column} is empty; fill it, or leave the row out")
    return text


def _number(place: str, row: tables.Row, column: str) -> float:
    text = tables.text(place, row, column)
    try:
        if isfinite(number := float(text)):
            return number
    except ValueError:
        pass
    raise SesameError(f"{place}: {column} is {text!r}; give a number")


def _checked(place: str, item: Item) -> Item:
    if len(item.candidates) < 2 or not 0 <= item.answer < len(item.candidates):
        raise SesameError(f"{place}: answer {item.answer} of {len(item.candidates)} choices; give two or more, and the number of one")
    if len({own.text for own in item.candidates}) < len(item.candidates):
        raise SesameError(f"{place}: two choices are the same; leave one out")
    if empty := next((own for own in item.candidates if not own.text[own.start : own.end].strip()), None):
        raise SesameError(f"{place}: a choice of {empty.text[:60]!r} is empty; fill it, or leave it out")
    return item


def _stem(file: SourceFile) -> str:
    """A file's name without its endings."""
    return PurePosixPath(file.name.rpartition(": ")[2]).name.partition(".")[0].removesuffix("_dev").removesuffix("_train")
