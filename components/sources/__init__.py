"""Where data comes from: a package index, an address, local files, the Hugging Face hub.

`open_files(source)` gives the files of a source, one by one; `tables.rows(source, table)` gives the rows of
its tables, and `text.lines(file)` the lines of one file. A source only brings bytes: what they mean is the
reader's business. Nothing fetched is ever installed or executed.

One more kind of source is one new file with `open_files(source) -> Iterator[SourceFile]` (or, where there are
rows and no files, `open_rows(source) -> Iterator[(place, row)]`), one line below, and its block in
`components/params`.
"""

from collections.abc import Iterator

from components import params
from components.errors import SesameError
from components.sources import files, hub, hub_model, pypi, url
from components.sources.file import SourceFile

FILES = {"pypi": pypi.open_files, "url": url.open_files, "files": files.open_files, "hub_model": hub_model.open_files}
"""Kinds that bring files."""

ROWS = {"hub": hub.open_rows}
"""Kinds that bring rows."""


def open_files(source: params.Source) -> Iterator[SourceFile]:
    """The files of a source in a fixed order: fetched, verified, looked up in their archive, not yet opened.

    Raises SesameError when something can't be fetched, has the wrong hash, or is not there.
    """
    if source.kind in ROWS:
        raise SesameError(f"a {source.kind} source ({source.path}) has rows and no files: read it with `reader: {{format: parquet, column: ...}}`")
    return FILES[source.kind](source)
