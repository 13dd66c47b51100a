"""Outputs of stages that params.yaml declares no more, as those of a model that was removed or renamed.

A stage that depends on a complete folder, as `report` on data/metrics, would take them for inputs: `dvc.lock` would name
files that no other clone has, and the stage would run there again. DVC never removes the output of a stage that is gone.
"""

from collections.abc import Iterator
from pathlib import Path

from components.core import storage
from components.params import Params
from components.stages.registry import reported, stages, writers

READ_AS_A_WHOLE = (
    "tasks", "evaluations", "vectors", "metrics", "curves", "samples", "scores", "baselines", "align", "generated", "evaluated",
)  # fmt: skip
"""Folders of data/ that a stage depends on as a whole. Studies write to none of them."""


def leftovers(params: Params) -> Iterator[Path]:
    """What is in those folders of stages that are ours and not declared; what a user's own stage writes is not judged."""
    declared = {f"{stage}@{name}" for stage, name in reported(params)}
    for folder in READ_AS_A_WHOLE:
        templates = writers()[folder]
        depth = max(template.count("{") for template in templates)
        for path in sorted(Path("data", folder).glob("/".join(["[!.]*"] * depth))):
            names = path.with_suffix("").parts[2:]
            may_have_written = [template.format(*names) for template in templates]
            is_ours = any(stage.partition("@")[0] in stages() for stage in may_have_written)
            if is_ours and declared.isdisjoint(may_have_written):
                yield path


def remove(params: Params) -> None:
    """Remove them, and print which. DVC's cache keeps them: taking the change back brings them back."""
    if gone := list(leftovers(params)):
        for path in gone:
            storage.remove(path)
            if not any(path.parent.iterdir()):
                path.parent.rmdir()  # data/scores/gpt; the folders above have a file `.keep`
        shown = ", ".join(map(str, gone[:5])) + " ..." * (len(gone) > 5)
        count = f"{len(gone):,} outputs of stages that params.yaml no longer declares"
        print(f"removed {count} (DVC's cache keeps them): {shown}")
