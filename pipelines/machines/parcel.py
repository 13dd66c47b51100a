"""What travels between the flow and a worker of its pool: a stage with all that it is made of, and what came of it. Text, packed small.

Data does not travel so: it goes over DVC's remote.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Self

from components.core.errors import SesameError

Files = Mapping[str, str]
"""Path from the project's folder -> content, in base64."""


def read(paths: Iterable[str | Path]) -> Files:
    """These files, and those under these folders; what is not there is left out."""
    files = [file for path in map(Path, paths) for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]
    return {file.as_posix(): base64.b64encode(file.read_bytes()).decode() for file in files}


def content(text: str) -> bytes:
    """Of a file."""
    return base64.b64decode(text)


class _Packed:
    """As one word of text: what Prefect keeps of a run is limited to half a mebibyte."""

    def packed(self) -> str:
        return base64.b64encode(gzip.compress(json.dumps(asdict(self)).encode(), mtime=0)).decode()

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """Raises SesameError for what another version has packed."""
        content = json.loads(gzip.decompress(base64.b64decode(text)))
        if content.keys() != {attribute.name for attribute in fields(cls)}:
            raise SesameError(
                "the flow and the worker run different versions of Sesame: `git pull` where it is "
                "older, and restart that one"
            )
        return cls(**content)


@dataclass(frozen=True)
class Order(_Packed):
    """A stage to be run."""

    commit: str
    patch: str
    """The flow's uncommitted changes of files that git has, as `git diff` says them."""
    address: str
    """What DVC knows the stage by."""
    name: str
    upstream: list[str]
    """Addresses of the stages whose outputs it reads."""
    resolved: Files
    """Its settings and its code, which git does not have."""
    entries: dict[str, dict[str, str]]
    """Lock file -> stage -> the lines of its entry: of the stage and of those."""
    force: bool
    timeout: float | None
    env: dict[str, str]


@dataclass(frozen=True)
class Answer(_Packed):
    """How it ended, and what of it git keeps."""

    returncode: int
    seconds: float
    skipped: bool = False
    problem: str = ""
    stopped: bool = False
    permanent: bool = False
    entry: str = ""
    """The lines of its entry in the lock file."""
    files: Files = field(default_factory=dict)
    """Its outputs that DVC's cache does not have."""
