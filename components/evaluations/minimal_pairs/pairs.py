"""A pair, files of pairs, and what is wrong with them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from components.core.errors import SesameError
from components.core.storage import output, read_lines, reading


class Pair(NamedTuple):
    """Two sentences of which one is wrong."""

    id: str
    """Of this pair alone."""
    paradigm: str
    """What the pairs of one template or rule have in common: `is/are`, `adjunct_island`."""
    phenomenon: str
    """What several paradigms are about: `subject_verb_agreement`."""
    good: str
    bad: str


def checked(pairs: Iterable[Pair], place: str = "pairs") -> list[Pair]:
    """The pairs. Raises SesameError where there are none, a field is no text or empty, both sentences are equal, or two
    ids."""
    found: list[Pair] = []
    seen: set[str] = set()
    for number, pair in enumerate(pairs, start=1):
        own = f"{place}, pair {number}"
        for field, value in pair._asdict().items():
            if not isinstance(value, str):
                raise SesameError(f"{own}: {field} is {value!r}, where text is wanted")
            if not value.strip():
                raise SesameError(f"{own}: {field} is empty; fill it, or leave the pair out")
        if pair.good == pair.bad:
            raise SesameError(f"{own}: both sentences are {pair.good[:60]!r}; leave the pair out")
        if pair.id in seen:
            raise SesameError(f"{own}: its id {pair.id!r} is that of an earlier pair; rename one")
        seen.add(pair.id)
        found.append(pair)
    if not found:
        raise SesameError(f"{place}: no pairs")
    return found


def write(path: Path, pairs: Sequence[Pair]) -> None:
    """As JSON lines, whole or not at all. Raises SesameError as `checked` does."""
    lines = [json.dumps(pair._asdict(), ensure_ascii=False) for pair in checked(pairs, str(path))]
    with output(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> list[Pair]:
    """What `write` wrote. Raises SesameError where the file is not there, a line is not JSON or lacks a column, and as
    `checked` does."""
    return checked(_rows(path), str(path))


def _rows(path: Path) -> Iterable[Pair]:
    with reading(path):
        rows = list(read_lines(path))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise SesameError(f"{path}, line {number}: a JSON object expected, {type(row).__name__} found")
        if missing := next((field for field in Pair._fields if field not in row), None):
            raise SesameError(f"{path}, line {number}: no column {missing!r} (there are: {', '.join(row)})")
        yield Pair(*(row[field] for field in Pair._fields))
