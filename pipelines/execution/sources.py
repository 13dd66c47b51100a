"""Stages whose source can change while params.yaml stays the same: DVC can't see that, so a re-check runs them again."""

from collections.abc import Collection, Iterator
from pathlib import Path

from pydantic import BaseModel

from components.core.storage import metrics_path
from components.params import BucketSource, FilesSource, HubSource, Params
from components.stages import registry
from components.text.sources.files import matches


def unfixed(params: Params) -> set[str]:
    """Names of the stages that fetch local files, those of a bucket, or a data set of the hub without a revision."""
    return {
        f"{stage.name}@{name}" for stage in registry.stages().values() if stage.fetches
        for name, block in getattr(params, stage.section).items() if _unfixed(block)
    }  # fmt: skip


def _unfixed(value: object) -> bool:
    if isinstance(value, FilesSource | BucketSource):
        return True
    if isinstance(value, HubSource):
        return value.revision is None
    return any(map(_unfixed, parts(value)))


def edited(params: Params, stages: Collection[str]) -> list[str]:
    """A line for each of these stages that has read a local file which was written since."""
    said = []
    for stage in (each for each in registry.stages().values() if each.fetches):
        for name, block in getattr(params, stage.section).items():
            read = metrics_path(stage.name, name)
            if f"{stage.name}@{name}" not in stages or not read.exists():
                continue
            newer = [path for path in _local(block) if Path(path).stat().st_mtime > read.stat().st_mtime]
            if newer:
                files = f"{newer[0]} was" if len(newer) == 1 else f"{len(newer)} files, as {newer[0]}, were"
                said.append(f"{files} written after {stage.name}@{name} had read it: `sesame run --recheck` reads it again")
    return said


def _local(value: object) -> Iterator[str]:
    """The local files that a block of params names."""
    if isinstance(value, FilesSource):
        yield from (path for pattern in value.paths for path in matches(pattern) if Path(path).is_file())
    else:
        for part in parts(value):
            yield from _local(part)


def parts(value: object) -> Collection[object]:
    """What a block, a dictionary or a list of params is made of; of anything else nothing."""
    if isinstance(value, BaseModel):
        return [part for _, part in value]  # `dict(value)` calls a block's field that is named `keys`
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
