"""Stages whose source can change while params.yaml stays the same: DVC can't see that, so a re-check runs them again."""

from collections.abc import Collection

from pydantic import BaseModel

from components.params import BucketSource, FilesSource, HubSource, Params

STAGES = {
    "corpora": "corpus",
    "tasks": "task",
    "checkpoints": "checkpoint",
    "published_vectors": "published_vectors",
    "alignments": "align",
    "generations": "generate",
}
"""Section of params.yaml -> the stages that fetch its sources."""


def unfixed(params: Params) -> set[str]:
    """Names of the stages that fetch local files, those of a bucket, or a data set of the hub without a revision."""
    return {f"{stage}@{name}" for section, stage in STAGES.items() for name, block in getattr(params, section).items() if _unfixed(block)}


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
