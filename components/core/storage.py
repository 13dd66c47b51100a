"""Files that stages write and read: written completely or not at all, with errors of one line."""

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.core.errors import SesameError

STATE = Path(".sesame")
"""Git-ignored working files: downloads, checkpoints, files of servers. Safe to delete when nothing runs."""


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `path` for a file or a folder; it is renamed to `path` at the end, and removed on failure.

    An existing `path` is replaced, but never a folder by a file. A path that a user names goes through `unused_path` first.
    Raise SesameError if the path is not writable, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with writing(path):
            remove(temporary)
            temporary.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if path.is_dir():
                if not temporary.is_dir():
                    raise SesameError(f"{path} is a folder; name a file")
                remove(path)
            temporary.replace(path)
    finally:
        remove(temporary)


def unused_path(path: Path) -> Path:
    """Check a path for output that a user has named. Raise SesameError if it exists: no command removes files of another one."""
    if path.is_dir() and (path.is_symlink() or any(path.iterdir())):
        raise SesameError(f"{path} is not empty; name a new folder")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise SesameError(f"{path} is there already; name a new file, or remove it first")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of a full disk, whatever a library raises, and of paths that are not writable into SesameErrors that name `path`."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:  # all others are raised again
        if isinstance(error, OSError) and error.errno in DENIED:
            raise SesameError(f"{error.filename or path}: {error.strerror}; nothing can be written there") from None
        parent = next(folder for folder in (path.parent, *path.parent.parents) if folder.is_dir()).resolve()
        total, _, free = shutil.disk_usage(parent)
        if not total:  # /proc and similar file systems
            raise SesameError(f"{path}: nothing can be written in {parent}") from None
        if free < MIN_FREE or "No space left on device" in str(error):
            raise SesameError(
                f"{path}: the disk of {parent} is full ({free / 2**20:.0f} MiB free); free some space and run again"
            ) from None
        raise


DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)

MIN_FREE = 2**16
"""Bytes; with less free space a failed write counts as a full disk, even if a library does not say so."""


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing to do where it is missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():  # a read-only disk raises even for a missing file
        path.unlink()


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, completely or not at all. NaN and infinity are refused: an undefined value is null."""
    with output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def metrics_path(stage: str, name: str, of_studies: bool = False) -> Path:
    """Return the path of a stage's metrics, a small JSON file that MLflow logs and the report reads.

    `of_studies`: the studies' file declares it. The report depends on the complete folder data/metrics, so studies write elsewhere.
    """
    return Path("data/study_metrics" if of_studies else "data/metrics", stage, f"{name}.json")
