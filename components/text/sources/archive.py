"""Read zip and tar archives without unpacking them: members are read in memory, nothing is written or run."""

import difflib
import io
import posixpath
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NamedTuple

from components.core.errors import SesameError, one_line
from components.text.sources.file import DAMAGED, SourceFile

Opener = Callable[[], BinaryIO]


class Member(NamedTuple):
    """A file of an archive, under one of its names."""

    file: str
    """The name of the file itself, also if the member is a link to it."""
    open: Opener


Members = dict[str, Member]


def _members(archive: Path | BinaryIO, name: str) -> Members:
    """The files of an archive by their path inside it. The archive stays open as long as one of the openers exists."""
    try:
        try:  # tar first: the tail of an uncompressed tar may look like a zip, never the other way round
            tar = tarfile.open(archive) if isinstance(archive, Path) else tarfile.open(fileobj=archive)  # noqa: SIM115
            files = {info.name: (lambda info=info: tar.extractfile(info)) for info in tar if info.isfile()}
            hard = {info.name: info.linkname for info in tar if info.islnk()}
            symbolic = {info.name: info.linkname for info in tar if info.issym()}
        except tarfile.ReadError:
            opened = zipfile.ZipFile(archive)
            entries = [info for info in opened.infolist() if not info.is_dir()]
            files = {info.filename: (lambda info=info: opened.open(info)) for info in entries if not _is_link(info)}
            hard, symbolic = {}, {info.filename: opened.read(info).decode() for info in entries if _is_link(info)}
        beside = {link: posixpath.join(posixpath.dirname(link), target) for link, target in symbolic.items()}
        return _resolve_links(files, hard | beside)
    except (*DAMAGED, ValueError) as error:  # ValueError: names that are no text, places before the beginning
        raise SesameError(f"{name}: not a readable zip or tar archive ({one_line(error)})") from None


def _is_link(info: zipfile.ZipInfo) -> bool:
    """Whether a member of a zip is a symbolic link, as `zip --symlinks` writes it."""
    return stat.S_ISLNK(info.external_attr >> 16)


def _resolve_links(files: Mapping[str, Opener], links: Mapping[str, str]) -> Members:
    """The files and the links to them, with the content of the file. Links to folders or out of the archive are left out."""
    members = {name: Member(name, opener) for name, opener in files.items()}
    names = {posixpath.normpath(name): name for name in (*files, *links)}
    for name, target in links.items():
        for _ in links:  # links may be chained, but not endlessly
            target = names.get(posixpath.normpath(target), "")
            if target not in links:
                break
            target = links[target]
        if target in files:
            members[name] = Member(target, files[target])
    return members


def _matching(names: list[str], pattern: str, archive: str) -> list[str]:
    matching = sorted(name for name in names if fnmatchcase(name, pattern))
    if not matching:
        near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.3) or sorted(names)[:5]
        raise SesameError(f"{archive}: nothing in it matches {pattern!r}; near names: {', '.join(near) or 'none, it is empty'}")
    return matching


def open_members(archive: Path, patterns: list[str]) -> Iterator[SourceFile]:
    """The members of `archive` that match the globs, in the order of the globs and sorted within one; each file once,
    whatever links lead to it.

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
            if inner:  # an archive in the archive is read into memory, as no file of it could be reopened
                with SourceFile(place, members[name].open).open() as stream:
                    nested = io.BytesIO(stream.read())
                yield from _select(_members(nested, place), place, [inner])
            elif members[name].file not in seen:
                seen.add(members[name].file)
                yield SourceFile(place, members[name].open)
