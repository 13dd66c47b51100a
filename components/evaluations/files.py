"""What the readers of published sets share."""

from pathlib import PurePosixPath
from typing import NamedTuple

from components.text.sources.file import SourceFile


class WithHeader(NamedTuple):
    """The settings with which `components.text.sources.tables` reads a table with a header."""

    header: bool = True
    fields: int | None = None


def path_in_archive(file: SourceFile) -> PurePosixPath:
    """Without `.gz`."""
    return PurePosixPath(file.name.rpartition(": ")[2].removesuffix(".gz"))
