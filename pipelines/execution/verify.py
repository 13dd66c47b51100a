"""Check of DVC's cache for damaged objects. DVC itself trusts every object that exists."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dvc.repo import Repo
from rich.progress import Progress

from pipelines import terminal
from pipelines.execution import repository


@dataclass(frozen=True)
class Damaged:
    """An object whose content is not what its name says."""

    path: Path
    uses: tuple[str, ...]
    """What dvc.lock needs it for: `data/corpora/base/train.txt (corpus@base)`."""


def damaged() -> tuple[list[Damaged], int]:
    """The damaged objects of the cache, and how many were read, with a bar meanwhile."""
    with repository.opened() as repo:
        cache, uses = Path(repo.cache.local.path), _uses(repo)
    objects = sorted(path for path in cache.glob("[0-9a-f][0-9a-f]/*") if path.is_file())
    corrupt = []
    with Progress(console=terminal.console, transient=True) as progress:
        bar = progress.add_task("reading DVC's cache", total=sum(path.stat().st_size for path in objects))
        for path in objects:
            size = path.stat().st_size
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "md5").hexdigest()
            name = path.parent.name + path.name
            if digest != name.removesuffix(".dir"):
                corrupt.append(Damaged(path, tuple(uses.get(name, ()))))
            progress.advance(bar, size)
    return corrupt, len(objects)


def _uses(repo: Repo) -> dict[str, list[str]]:
    """Name of an object -> what the outputs of dvc.lock need it for; a folder is an object that lists others."""
    uses: dict[str, list[str]] = {}
    for stage in repo.index.stages:
        for out in stage.outs:
            if not out.use_cache or not out.hash_info:
                continue
            for name, path in _objects(Path(repo.cache.local.path), out.hash_info.value, str(out)):
                uses.setdefault(name, []).append(f"{path} ({stage.addressing})")
    return uses


def _objects(cache: Path, name: str, path: str) -> Iterator[tuple[str, str]]:
    yield name, path
    if name.endswith(".dir"):
        try:
            listed = json.loads((cache / name[:2] / name[2:]).read_text())
        except (OSError, ValueError):  # missing, or damaged itself, which is found all the same
            return
        yield from ((entry["md5"], f"{path}/{entry['relpath']}") for entry in listed)
