"""What the readers of published sets share."""

from pathlib import PurePosixPath
from typing import NamedTuple

from components.core.errors import SesameError
from components.text.sources import tables
from components.text.sources.file import SourceFile


class WithHeader(NamedTuple):
    """The settings with which `components.text.sources.tables` reads a table with a header."""

    header: bool = True
    fields: int | None = None


def required_text(place: str, row: tables.Row, column: str) -> str:
    """The text of a column without white space at its ends. Raises SesameError where it is empty."""
    if not (text := tables.text(place, row, column).strip()):
        raise SesameError(f"{place}: column {column!r} is empty; fill it, or leave the row out")
    return text


def path_in_archive(file: SourceFile) -> PurePosixPath:
    """Without `.gz`."""
    return PurePosixPath(file.name.rpartition(": ")[2].removesuffix(".gz"))
