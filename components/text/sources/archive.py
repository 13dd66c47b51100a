"""Looking into zip and tar archives without unpacking them: members are read in memory, nothing is written or run."""

import difflib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from components.core.errors import SesameError, one_line
from components.text.sources.file import DAMAGED, SourceFile

Members = dict[str, Callable[[], BinaryIO]]


def _members(archive: Path | BinaryIO, name: str) -> Members:
    """The files of an archive by their path inside it. The openers keep the archive open as long as one of them lives."""
    try:
        try:  # tar first: the tail of an uncompressed tar may look like a zip, never the other way round
            tar = tarfile.open(archive) if isinstance(archive, Path) else tarfile.open(fileobj=archive)  # noqa: SIM115
            return {info.name: (lambda info=info: tar.extractfile(info)) for info in tar if info.isfile()}
        except tarfile.ReadError:
            opened = zipfile.ZipFile(archive)
            return {info.filename: (lambda info=info: opened.open(info)) for info in opened.infolist() if not info.is_dir()}
    except (*DAMAGED, ValueError) as error:  # ValueError: names that are no text, places before the beginning
        raise SesameError(f"{name}: not a readable zip or tar archive ({one_line(error)})") from None


def _matching(names: list[str], pattern: str, archive: str) -> list[str]:
    matching = sorted(name for name in names if fnmatchcase(name, pattern))
    if not matching:
        near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.3) or sorted(names)[:5]
        raise SesameError(f"{archive}: nothing in it matches {pattern!r}; near names: {', '.join(near) or 'none, it is empty'}")
    return matching


def open_members(archive: Path, patterns: list[str]) -> Iterator[SourceFile]:
    """The members of `archive` that match the globs, in the order of the globs and sorted within one; each member once.

    `*` also matches `/`. In `outer.tar.gz!inner/*.txt` the part before the `!` names an archive inside the archive.
    Raises SesameError when a glob matches nothing, with the nearest names there are.
    """
    yield from _select(_members(archive, archive.name), archive.name, patterns)


def _select(members: Members, archive: str, patterns: list[str]) -> Iterator[SourceFile]:
    seen = set()
    for pattern in patterns:
        outer, _, inner = pattern.partition("!")
        for name in _matching(list(members), outer, archive):
            place = f"{archive}: {name}"
            if inner:  # an archive in the archive is read into memory: its members stand in no file that could be opened again
                with SourceFile(place, members[name]).open() as stream:
                    nested = io.BytesIO(stream.read())
                yield from _select(_members(nested, place), place, [inner])
            elif name not in seen:
                seen.add(name)
                yield SourceFile(place, members[name])
