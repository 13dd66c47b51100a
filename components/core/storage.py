"""Files that stages write and read: whole or not at all, and a line for whatever is wrong with one."""

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from components.core.errors import SesameError, one_line

STATE = Path(".sesame")
"""Git-ignored working state: downloads, checkpoints, servers' files. Safe to delete when nothing runs."""


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` to write a file or a folder to; renamed to `path` at the end, removed on failure.

    What stands at `path` is replaced, but never a folder by a file. A path that a user names goes through `unused` first.
    Raises SesameError where nothing can be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with writing(path):
            _remove(temporary)
            temporary.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if path.is_dir():
                if not temporary.is_dir():
                    raise SesameError(f"{path} is a folder; name a file")
                _remove(path)
            temporary.replace(path)
    finally:
        _remove(temporary)


def unused(path: Path) -> Path:
    """A place for a command's output that a user has named. Raises SesameError where something stands: no command removes what another
    one wrote."""
    if path.is_dir() and (path.is_symlink() or any(path.iterdir())):
        raise SesameError(f"{path} is not empty; name a new folder")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise SesameError(f"{path} is there already; name a new file, or remove it first")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes one line that names `path` of a full disk, whatever a library made of it, and of a place where nothing can be written."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:  # of which two cases are taken, and the others go on
        if isinstance(error, OSError) and error.errno in DENIED:
            raise SesameError(f"{error.filename or path}: {error.strerror}; nothing can be written there") from None
        there = next(folder for folder in (path.parent, *path.parent.parents) if folder.is_dir()).resolve()
        total, _, free = shutil.disk_usage(there)
        if not total:  # /proc and its like
            raise SesameError(f"{path}: nothing can be written in {there}") from None
        if free < ROOM or "No space left on device" in str(error):
            raise SesameError(f"{path}: the disk of {there} is full ({free / 2**20:.0f} MiB free); free some space and run again") from None
        raise


DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)

ROOM = 2**16
"""Bytes; with less the disk is why a write failed, even where a library does not say so."""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():  # a disk that is only read refuses to remove what is not there, too
        path.unlink()


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused: an undefined figure is null."""
    with output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes one line of whatever is wrong with a file that another stage wrote: it names the file and the stage to run again."""
    try:
        yield
    except FileNotFoundError:
        command = " ".join(["sesame run", *writer(path)])
        raise SesameError(f"{path}: no such file; run the stage that writes it first (`{command}`)") from None
    except MALFORMED as error:
        said = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        cure = [(f"run `sesame run --force {stage}` to write it again") for stage in writer(path)] or [
            "run the stage that writes it with --force"
        ]
        raise SesameError(f"{path} can't be read ({said}); {cure[0]}") from None


MALFORMED = (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, RuntimeError, SafetensorError)
"""What parsers and libraries make of a file that is cut off, empty, or of another form."""

WRITERS: dict[str, tuple[str, ...]] = {}
"""Folder of data/ -> the stages that write to it, by the names below it. `components.stages.registry` fills it, which knows all stages."""


def writer(path: Path) -> list[str]:
    """The stage that wrote a file under data/; none where that is not known."""
    if not WRITERS:  # a command that has run no stage
        import_module("components.stages.registry")
    above, _, inside = str(path.with_suffix("")).rpartition("data/")
    folder, *names = inside.split("/")
    stages = [stage.format(*names, "", "") for stage in WRITERS.get(folder, ())]
    ran = [stage for stage in stages if (Path(above) / metrics_path(*stage.split("@"))).exists()]
    return (ran or stages) if len(ran or stages) == 1 else []


def read_json(path: Path) -> Any:
    """Read a JSON file that another stage wrote. Raises SesameError that names the file."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> Iterator[dict]:
    """The JSON objects, one a line, of a file that another stage wrote. Raises SesameError that names the file."""
    with reading(path), path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: {error.msg}") from None
            yield row


METRICS = Path("data/report/metrics.json")
"""Stage -> its metrics, of all that params.yaml declares: what the report has of them, and git keeps."""


def metrics_path(stage: str, name: str, of_studies: bool = False) -> Path:
    """Where the metrics of a stage are: a small JSON file that MLflow logs and the report reads.

    `of_studies`: the studies' file declares it. The report depends on data/metrics as a whole, so studies write elsewhere.
    """
    return Path("data/study_metrics" if of_studies else "data/metrics", stage, f"{name}.json")


def committed_metrics() -> dict[str, dict]:
    """Stage -> its metrics as the last report has them, which git keeps; empty where they can't be read."""
    with suppress(SesameError, AttributeError):
        return {name: measured for name, measured in read_json(METRICS).items() if isinstance(measured, dict)}
    return {}


def last_metrics(stage: str, name: str, of_studies: bool = False, committed: dict[str, dict] | None = None) -> dict:
    """The metrics of a stage's last run: its file, else what git has; empty where neither can be read. Who asks for
    many stages reads `committed_metrics` once.

    For estimates alone: a damaged file must not keep the stage that writes it from running.
    """
    with suppress(SesameError):
        return read_json(metrics_path(stage, name, of_studies))
    return (committed_metrics() if committed is None else committed).get(f"{stage}@{name}", {})
