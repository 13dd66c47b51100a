"""Local files."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.text.sources.file import SourceFile


def matches(pattern: str) -> list[str]:
    """What is at a path or glob, `~` being the user's folder. A path that is there is no glob: `text[1].txt` would be `text1.txt`, another
    file."""
    pattern = os.path.expanduser(pattern)
    if Path(pattern).is_file():
        return [pattern]
    parts = pattern.split("/")
    if "**" not in parts:
        return glob.glob(pattern)
    above, below = "/".join(parts[: parts.index("**")]), "/".join(parts[parts.index("**") + 1 :] or "*")
    if not above and not pattern.startswith("/"):
        return [path.removeprefix("./") for path in matches(f"./{pattern}")]
    bases = glob.glob(above + "/")
    return [path for base in bases for folder in _folders(base) for path in matches(os.path.join(glob.escape(folder), below))]


def _folders(base: str) -> Iterator[str]:
    """A folder and those below it, through links, each once: `glob` goes round and round two links to folders above."""
    seen = set()
    for folder, below, _ in os.walk(base, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))  # as `glob` leaves hidden ones out
        yield folder


def open_files(source: params.FilesSource) -> Iterator[SourceFile]:
    """The files at the paths and globs (`**` goes into folders), in the order of the paths and sorted within one; each once.

    Raises SesameError for a path or glob without a file.
    """
    paths: dict[str, str] = {}  # where a file really is -> how it was found
    for pattern in source.paths:
        matching = sorted(path for path in matches(pattern) if Path(path).is_file())
        if not matching and Path(os.path.expanduser(pattern)).is_dir():
            raise SesameError(f"files: {pattern!r} is a folder; name its files, as {os.path.join(pattern, '*')!r}")
        if not matching:
            raise SesameError(f"files: nothing at {pattern!r} (looked in {Path.cwd()})")
        for path in matching:
            paths.setdefault(os.path.realpath(path), path)  # two patterns, or a link to a file, may find one file twice
    return (SourceFile(path, lambda path=path: open(path, "rb")) for path in paths.values())  # noqa: SIM115
