"""A minimal pair, files of pairs, and their checks."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from components.core.errors import SesameError
from components.core.keyed import generator
from components.core.storage import output
from components.stages.outputs import read_lines, reading


class Pair(NamedTuple):
    """Two sentences, one of which is wrong."""

    id: str
    """Unique."""
    paradigm: str
    """The name of the pair's template or rule: `is/are`, `adjunct_island`."""
    phenomenon: str
    """The name of a group of paradigms: `subject_verb_agreement`."""
    good: str
    bad: str


def checked(pairs: Iterable[Pair], place: str = "pairs") -> list[Pair]:
    """The pairs. Raises SesameError where there are none, a field is empty or not a text, both sentences are equal, or two
    ids are equal."""
    valid: dict[str, Pair] = {}
    for number, pair in enumerate(pairs, start=1):
        where = f"{place}, pair {number}"
        for field, value in pair._asdict().items():
            if not isinstance(value, str):
                raise SesameError(f"{where}: {field} is {value!r}, where text is wanted")
            if not value.strip():
                raise SesameError(f"{where}: {field} is empty; fill it, or leave the pair out")
        if pair.good.split() == pair.bad.split():  # tokenizers read blanks as one
            raise SesameError(f"{where}: both sentences are {pair.good[:60]!r}; leave the pair out")
        if pair.id in valid:
            raise SesameError(f"{where}: its id {pair.id!r} is that of an earlier pair; rename one")
        valid[pair.id] = pair
    if not valid:
        raise SesameError(f"{place}: no pairs")
    texts = Counter((pair.paradigm, frozenset((pair.good, pair.bad))) for pair in valid.values())
    if again := texts.total() - len(texts):
        print(f"{place}: {again:,} of {len(valid):,} pairs are there before, as they are or exchanged; each counts")
    return list(valid.values())


def drawn(pairs: Sequence[Pair], per_paradigm: int, seed: int) -> list[Pair]:
    """At most so many pairs of each paradigm, in their order."""
    met: Counter[str] = Counter()
    chosen = []
    for i in generator(seed).permutation(len(pairs)).tolist():
        met[pairs[i].paradigm] += 1
        if met[pairs[i].paradigm] <= per_paradigm:
            chosen.append(i)
    return [pairs[i] for i in sorted(chosen)]


def write(path: Path, pairs: Sequence[Pair]) -> None:
    """Write JSON lines atomically. Raises SesameError as `checked` does."""
    lines = [json.dumps(pair._asdict(), ensure_ascii=False) for pair in checked(pairs, str(path))]
    with output(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> list[Pair]:
    """Read the file of `write`. Raises SesameError where it is missing, a line is not JSON or lacks a column, and as
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
