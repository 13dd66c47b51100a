"""Sources of data: a package index, an address, local files, the Hugging Face hub.

`open_files(source)` gives the files of a source, one by one; `tables.rows(source, table)` gives the rows of
its tables, and `text.lines(file)` the lines of one file. A source only provides bytes; readers
interpret them. Nothing fetched is ever installed or executed.

One more kind of source is one new file `<kind>.py` with `open_files(source) -> Iterator[SourceFile]` (or, where there
are rows and no files, `open_rows(source) -> Iterator[(place, row)]`), and its block in
`components/params/sources.py`, a member of `Source` there.
"""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from components import params
from components.core.errors import SesameError
from components.text.sources.file import SourceFile


def _load(kind: str) -> ModuleType:
    return import_module(f"components.text.sources.{kind}")


def brings_rows(kind: str) -> bool:
    """Whether sources of this kind bring rows; else they bring files."""
    return hasattr(_load(kind), "open_rows")


def open_rows(source: params.Source) -> Iterator[tuple[str, dict]]:
    """`(place, row)` of a source that brings rows. Raises SesameError when it can't be read."""
    return _load(source.kind).open_rows(source)


def open_files(source: params.Source | params.HubModelSource) -> Iterator[SourceFile]:
    """The files of a source in a fixed order: fetched, verified, looked up in their archive, not yet opened.

    Raises SesameError when something can't be fetched, has the wrong hash, or is not there.
    """
    if brings_rows(source.kind):
        raise SesameError(
            f"a {source.kind} source ({source.shown}) has rows and no files: read it with `reader: {{format: parquet, column: ...}}`"
        )
    return _load(source.kind).open_files(source)
