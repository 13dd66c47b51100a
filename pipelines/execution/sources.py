"""Stages whose source can change while params.yaml stays the same: DVC can't see that, so a re-check runs them again."""

from collections.abc import Mapping, Sequence

from components.core.config import inside
from components.core.storage import metrics_path
from components.params import BucketSource, FilesSource, HubSource, Params
from components.stages import local_files, registry
from components.stages.outputs import read_json
from pipelines.execution import graph


def unfixed(params: Params) -> set[str]:
    """Names of the stages that fetch local files, those of a bucket, or a data set of the hub without a revision."""
    return {
        f"{stage.name}@{name}" for stage in registry.stages().values() if stage.fetches
        for name, block in getattr(params, stage.section).items() if any(map(_unfixed, inside(block)))
    }  # fmt: skip


def _unfixed(value: object) -> bool:
    return isinstance(value, FilesSource | BucketSource) or (isinstance(value, HubSource) and value.revision is None)


def forced(plan: Sequence[graph.Stage], params: Params, force: bool, recheck: bool) -> set[str]:
    """Names of the stages that run although they are unchanged: with `force` all, with `recheck` those of `unfixed`."""
    return {stage.name for stage in plan} if force else unfixed(params) if recheck else set()


def edited(params: Params, states: Mapping[str, str]) -> list[str]:
    """A line for each stage that is unchanged but for its local files, which are others than it read. `states` is that of each stage."""
    said = []
    for stage in (each for each in registry.stages().values() if each.fetches):
        for name in getattr(params, stage.section):
            metrics = metrics_path(stage.name, name)
            if states.get(f"{stage.name}@{name}") != "unchanged" or not metrics.exists():
                continue
            read = read_json(metrics).get("local_files")
            if read and local_files.changed(params, stage.name, name, read):
                said.append(
                    f"the local files of {stage.name}@{name} have changed since it ran (edited, added or removed): "
                    "`sesame run --recheck` reads them again"
                )
    return said
