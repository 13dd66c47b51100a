"""Local files."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from components import params
from components.errors import SesameError
from components.sources.file import SourceFile


def open_files(source: params.FilesSource) -> Iterator[SourceFile]:
    """The files at the paths and globs (`**` goes into folders), in the order of the paths and sorted within one; each once.

    Raises SesameError for a path or glob without a file.
    """
    found: dict[str, str] = {}
    for pattern in source.paths:
        here = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not here:
            raise SesameError(f"files: nothing at {pattern!r} (looked in {Path.cwd()})")
        for path in here:
            found.setdefault(os.path.realpath(path), path)  # a link to a folder above gives the same file forty times over
    return (SourceFile(path, lambda path=path: open(path, "rb")) for path in found.values())  # noqa: SIM115
