"""What a stage has read of the user's own files. DVC does not see them: `params.yaml` names them, by globs, and outside the checkout."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.core.config import inside
from components.params import FilesSource, Params
from components.stages import registry
from components.text.sources.files import matches

WHOLE, ENDS = 2**28, 2**20
"""A file up to WHOLE bytes is compared whole, a larger one by its size and ENDS bytes of either end: one of 100 GB must not be read
each time to see that it is the same."""


def of_stage(params: Params, stage: str, name: str) -> dict[str, Any] | None:
    """The number of local files that a stage reads, a digest of their names, sizes and dates, and one of their names and contents,
    which stays the same in another clone; None for a stage without local files."""
    if not (paths := _paths(params, stage, name)):
        return None
    return {"files": len(paths), "dates": _digest(paths, _date), "contents": _digest(paths, _contents)}


def changed(params: Params, stage: str, name: str, read: dict[str, Any]) -> bool:
    """Whether the local files of a stage are others than it read: edited, added or gone."""
    paths = _paths(params, stage, name)
    if (len(paths), _digest(paths, _date)) == (read["files"], read["dates"]):
        return False
    return _digest(paths, _contents) != read["contents"]


def _paths(params: Params, stage: str, name: str) -> list[str]:
    """The local files that a stage reads, each once."""
    declared = registry.declared(stage)
    if not declared.fetches:
        return []
    sources = (each for each in inside(getattr(params, declared.section)[name]) if isinstance(each, FilesSource))
    paths = {path for source in sources for pattern in source.paths for path in matches(pattern)}
    return sorted(path for path in paths if Path(path).is_file())


def _digest(paths: list[str], what: Callable[[str], tuple]) -> str:
    return hashlib.sha256(repr([(path, *what(path)) for path in paths]).encode()).hexdigest()[:16]


def _date(path: str) -> tuple[int, ...]:
    """What differs where a file was written or is another one. Unpacked archives and links may give two files one size and date."""
    file = Path(path).stat()
    return file.st_size, file.st_mtime_ns, file.st_ctime_ns, file.st_ino


def _contents(path: str) -> tuple[int, str]:
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        if size <= WHOLE:
            return size, hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(size - ENDS)
        digest.update(file.read(ENDS))
    return size, digest.hexdigest()
