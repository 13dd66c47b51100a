"""Files of multiple choice -> items. To add a set, write a function, its line in `READERS`, and its name in `config.py`."""

import re
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import NamedTuple

from components.core.errors import SesameError
from components.evaluations.files import WithHeader, path_in_archive, required_text
from components.text.sources import tables
from components.text.sources.file import SourceFile

GAP = "[MASK]"


class Candidate(NamedTuple):
    """One way to fill a gap, or one context of a word."""

    text: str
    """The complete text."""
    start: int
    """Position of the first scored character."""
    end: int
    """Position after the last one."""


class Item(NamedTuple):
    """Candidates, one of which is right."""

    group: str
    candidates: list[Candidate]
    answer: int
    """Index of the right one."""


def filled(place: str, text: str, choice: str) -> Candidate:
    """Fill the gap of a text. Raises SesameError where it does not have exactly one."""
    if text.count(GAP) != 1:
        raise SesameError(f"{place}: {text[:60]!r} has {text.count(GAP)} gaps {GAP}; give each text one")
    start = text.index(GAP)
    return Candidate(text.replace(GAP, choice), start, start + len(choice))


def continued(text: str, choice: str) -> Candidate:
    """A choice after a text."""
    return Candidate(f"{text.strip()} {choice}", len(text.strip()) + 1, len(text.strip()) + 1 + len(choice))


def jsonl(files: Iterable[SourceFile]) -> Iterator[Item]:
    """The format of this project, for any items."""
    for place, row in _rows(files, "jsonl"):
        choices, answer = _list(place, row, "choices", "texts"), tables.value(place, row, "answer")
        if not all(isinstance(choice, str) for choice in choices):
            raise SesameError(f"{place}: choices is {choices!r}; give a list of texts")
        if not isinstance(answer, int) or isinstance(answer, bool):
            raise SesameError(f"{place}: answer is {answer!r}; give the number of a choice, from 0")
        text = tables.text(place, row, "text")
        group = tables.text(place, row, "group") if "group" in row else "items"
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
                raise SesameError(f"{place}: {labels.count(answer)} choices have the label {answer!r} of answerKey; label each differently")
            yield _checked(place, Item(_name(file), candidates, labels.index(answer)))


CONSTRAINTS = {"H": "high constraint", "L": "low constraint"}


def cprag(files: Iterable[SourceFile]) -> Iterator[Item]:
    """CPRAG-102: the expected word, one of the same category and one of another, grouped by the constraint of the context."""
    for place, row in _rows(files, "tsv"):
        context = f"{required_text(place, row, 'context_s1')} {required_text(place, row, 'context_s2')}"
        words = [tables.text(place, row, key) for key in ("expected", "within_category", "between_category")]
        constraint = tables.text(place, row, "constraint")
        if constraint not in CONSTRAINTS:
            raise SesameError(f"{place}: constraint is {constraint!r}; give {' or '.join(CONSTRAINTS)}")
        yield _checked(place, Item(CONSTRAINTS[constraint], [continued(context, word) for word in words], 0))


def role(files: Iterable[SourceFile]) -> Iterator[Item]:
    """ROLE-88: two contexts with the roles exchanged; the word is more expected in the one with the higher cloze probability."""
    rows = list(_rows(files, "tsv"))
    if len(rows) % 2:
        raise SesameError(f"{rows[-1][0]}: {len(rows)} rows; an even number is expected, two contexts for each word")
    for (place, one), (_, other) in zip(rows[::2], rows[1::2], strict=True):
        words = [tables.text(place, row, "target") for row in (one, other)]
        if words[0] != words[1]:
            raise SesameError(f"{place}: its target differs from that of the next row; each two rows have the same word")
        contexts = [continued(required_text(place, row, "context"), words[0]) for row in (one, other)]
        cloze = [_number(place, row, "tgt_cloze") for row in (one, other)]
        if cloze[0] == cloze[1]:
            raise SesameError(f"{place}: tgt_cloze is {cloze[0]:g} in both contexts, so that neither is right; leave both rows out")
        yield _checked(place, Item("role reversal", contexts, cloze.index(max(cloze))))


AN = re.compile(r"(?!eu|one\b|uni[cfoqtv]|u[st][aeiou])[aeiou]|heir|honest|honou?r|hour", re.IGNORECASE)
"""Beginnings of words before which the article is *an*, by their sound as far as letters tell it."""


def negation(files: Iterable[SourceFile]) -> Iterator[Item]:
    """NEG-136: words that are true of a thing and false of it, in an affirmed and in a negated sentence."""
    for place, row in _rows(files, "tsv"):
        words = [tables.text(place, row, key) for key in ("target_aff", "target_neg")]
        for answer, (key, group) in enumerate((("context_aff", "affirmed"), ("context_neg", "negated"))):
            context = required_text(place, row, key)
            candidates = [continued(context.replace("(a|an)", "an" if AN.match(word) else "a"), word) for word in words]
            yield _checked(place, Item(group, candidates, answer))


READERS: dict[str, Callable[[Iterable[SourceFile]], Iterator[Item]]] = {
    "jsonl": jsonl, "olmpics": olmpics, "cprag": cprag, "role": role, "negation": negation,
}  # fmt: skip


def _rows(files: Iterable[SourceFile], form: str) -> Iterator[tuple[str, tables.Row]]:
    for file in files:
        yield from tables.FORMATS[form](file, WithHeader())


def _list(place: str, row: tables.Row, column: str, of: str) -> list:
    if not isinstance(value := tables.value(place, row, column), list):
        raise SesameError(f"{place}: {column} is {value!r}; give a list of {of}")
    return value


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
        raise SesameError(f"{place}: answer {item.answer} of {len(item.candidates)} choices; give two or more, and the index of one")
    if len({candidate.text for candidate in item.candidates}) < len(item.candidates):
        raise SesameError(f"{place}: two choices are the same; leave one out")
    if item.group == "all":
        raise SesameError(f"{place}: group is 'all', which stands for all items together; name it otherwise")
    if empty := next((one for one in item.candidates if not one.text[one.start : one.end].strip()), None):
        raise SesameError(f"{place}: a choice of {empty.text[:60]!r} is empty; fill it, or leave it out")
    return item


def _name(file: SourceFile) -> str:
    """A file's name without its suffixes."""
    return path_in_archive(file).name.partition(".")[0].removesuffix("_dev").removesuffix("_train")
