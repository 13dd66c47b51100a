"""Stages whose source can change while params.yaml stays the same: DVC can't see that, so a re-check runs them again."""

from collections.abc import Collection

from pydantic import BaseModel

from components.params import BucketSource, FilesSource, HubSource, Params
from components.stages import registry


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


def parts(value: object) -> Collection[object]:
    """What a block, a dictionary or a list of params is made of; of anything else nothing."""
    if isinstance(value, BaseModel):
        return [part for _, part in value]  # `dict(value)` calls a block's field that is named `keys`
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
