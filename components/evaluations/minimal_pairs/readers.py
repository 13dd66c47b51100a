"""Files of pairs -> pairs: published sets, and tables.

A reader takes the files that a source of `params.yaml` opens (`components.text.sources.open_files`). To add a set, write
a function and its line in `READERS`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from components.core.errors import SesameError
from components.evaluations.files import WithHeader, path_in_archive, required_text
from components.evaluations.minimal_pairs.config import PairColumns
from components.evaluations.minimal_pairs.pairs import Pair
from components.text.sources import tables
from components.text.sources.file import SourceFile
from components.text.sources.text import lines

COLUMNS = PairColumns(paradigm="uid", phenomenon="phenomenon")
"""Of this project's copies of published sets."""
BLIMP = PairColumns(good="sentence_good", bad="sentence_bad", paradigm="UID", phenomenon="linguistics_term")
FORMATS = ("jsonl", "tsv", "csv")


def table(files: Iterable[SourceFile], columns: PairColumns) -> Iterator[Pair]:
    """Pairs of JSONL, TSV and CSV files, by their suffixes, the last two with a header; also as `.gz`.

    A pair's id is its paradigm and its number. Raises SesameError with file and line for a missing column, a field that is
    empty or not a text, another kind of file, and a malformed one.
    """
    numbers: Counter[str] = Counter()
    for file in files:
        if (kind := _suffix(file)) not in FORMATS:
            raise SesameError(f"{file.name}: a suffix .{', .'.join(FORMATS)} (or with .gz) is expected")
        for place, row in tables.FORMATS[kind](file, WithHeader()):
            good, bad = (required_text(place, row, column) for column in (columns.good, columns.bad))
            paradigm = required_text(place, row, columns.paradigm) if columns.paradigm else path_in_archive(file).stem
            phenomenon = tables.text(place, row, columns.phenomenon).strip() if columns.phenomenon else ""
            yield Pair(f"{paradigm}-{numbers[paradigm]}", paradigm, phenomenon or paradigm, good, bad)
            numbers[paradigm] += 1


def blimp(files: Iterable[SourceFile]) -> Iterator[Pair]:
    """BLiMP (Warstadt et al. 2020): its 67 files of JSONL, or one table of all of them with `uid`, `phenomenon`, `good`
    and `bad`."""
    return _published(files)


def babylm(files: Iterable[SourceFile]) -> Iterator[Pair]:
    """BLiMP filtered by BabyLM's vocabulary, and BabyLM's supplement (Warstadt et al. 2023): JSONL like BLiMP's, or one such
    table, in which a line break of a dialogue is written `\\n`."""
    for pair in _published(files):
        yield pair._replace(good=pair.good.replace("\\n", "\n"), bad=pair.bad.replace("\\n", "\n"))


def zorro(files: Iterable[SourceFile]) -> Iterator[Pair]:
    """Zorro (Huebner et al. 2021): one text file per paradigm, with each wrong sentence on the line before the right one;
    or one table of all of them. Blanks before punctuation are removed."""
    for file in files:
        for pair in _alternating(file) if _suffix(file) == "txt" else _published([file]):
            yield pair._replace(good=detokenised(pair.good), bad=detokenised(pair.bad))


READERS: dict[str, Callable[[Iterable[SourceFile]], Iterator[Pair]]] = {
    "blimp": blimp,
    "babylm": babylm,
    "zorro": zorro,
}
"""By name; `table` needs the names of the columns."""


def detokenised(text: str) -> str:
    """Remove blanks before a full stop, a comma and similar."""
    return re.sub(r"\s+([.,;:?!])", r"\1", text)


def _published(files: Iterable[SourceFile]) -> Iterator[Pair]:
    """Tables have our columns, JSONL has BLiMP's: a file without a paradigm is named after its file, as in the
    supplement. Pairs of equal sentences, of which BLiMP has seven, are left out."""
    for file in files:
        columns = COLUMNS
        if _suffix(file) == "jsonl":
            _, row = next(tables.FORMATS["jsonl"](file, WithHeader()), ("", {}))
            absent = [name for name in ("paradigm", "phenomenon") if getattr(BLIMP, name) not in row]
            columns = BLIMP.model_copy(update=dict.fromkeys(absent))
        yield from (pair for pair in table([file], columns) if pair.good != pair.bad)


def _alternating(file: SourceFile) -> Iterator[Pair]:
    """Lines that alternate between wrong and right. Raises SesameError where the last one has no partner."""
    name, wrong, number = path_in_archive(file).stem, None, 0
    for number, line in lines(file):
        if wrong is None:
            wrong = line
        else:
            yield Pair(f"{name}-{number // 2 - 1}", name, name.partition("-")[0], line, wrong)
            wrong = None
    if wrong is not None:
        raise SesameError(f"{file.name}: {number} lines; an even number is expected, a wrong sentence before each right one")


def _suffix(file: SourceFile) -> str:
    return path_in_archive(file).suffix.lstrip(".")
