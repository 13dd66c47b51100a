"""Local files."""

import glob
from collections.abc import Iterator
from pathlib import Path

from components import params
from components.errors import SesameError
from components.sources.file import SourceFile


def open_files(source: params.FilesSource) -> Iterator[SourceFile]:
    """The files at the paths and globs (`**` goes into folders), in the order of the paths and sorted within one; each once."""
    found: dict[str, None] = {}  # ordered, each once
    for pattern in source.paths:
        here = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not here:
            raise SesameError(f"files: nothing at {pattern!r} (looked in {Path.cwd()})")
        found.update(dict.fromkeys(here))
    return (SourceFile(path, lambda path=path: open(path, "rb")) for path in found)  # noqa: SIM115
