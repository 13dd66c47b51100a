"""All stages. A new one is a folder with a `stages.py`, a line here, and a block of dvc.yaml."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module

from components.params import Params
from components.stages.declaration import Entry, Stage

REPORTED = ("text", "tasks", "pretrain", "derive", "evaluations", "finetune", "embeddings", "generate")
"""In the order of the pipeline. The report has the metrics of all their stages."""
FOLDERS = (*REPORTED, "report", "studies", "labs")
"""The last two have a pipeline and pages of their own."""


@cache
def stages() -> dict[str, Stage]:
    """Each by its name, in the order of the pipeline."""
    return {stage.name: stage for folder in FOLDERS for stage in import_module(f"components.{folder}.stages").STAGES}


def declared(stage: str) -> Stage:
    """A stage by its name. For a user's stage, which no folder declares, one that fetches, trains, scores and writes nothing."""
    return stages().get(stage, Stage(stage, lambda _: iter(()), ""))


def entries(p: Params, stage: str | None = None) -> Iterator[Entry]:
    """What params declare, of both pipelines or of one stage."""
    for each in [stages()[stage]] if stage else stages().values():
        yield from each.entries(p)
        for inputs in each.inputs(p) if each.inputs else ():
            folders = [f"data/{path}" for path in dict.fromkeys(inputs.paths)]
            yield Entry(f"{each.name}_inputs", inputs.name, ("components.stages.inputs",), {"folders": folders})


def reported(p: Params) -> list[tuple[str, str]]:
    """(stage, name) of all that the main pipeline makes for the report."""
    declared = [stage for folder in REPORTED for stage in import_module(f"components.{folder}.stages").STAGES]
    return [
        (stage.name, entry.name) for stage in declared for entry in stage.entries(p) if entry.name not in p.of_studies(stage.section)
    ]


def entry(p: Params, stage: str, name: str) -> Entry | None:
    """That of one stage; None where params declare no such stage."""
    group = stage.removesuffix("_inputs")
    return next((each for each in entries(p, group) if (each.stage, each.name) == (stage, name)), None) if group in stages() else None


def declared_now(p: Params, metrics: Mapping[str, dict]) -> dict[str, dict]:
    """The metrics, by stage, of those runs that had the settings which params declare now."""
    now = settings(p, {stage.partition("@")[0] for stage in metrics})
    return {stage: measured for stage, measured in metrics.items() if is_of(measured, now.get(stage))}


def settings(p: Params, groups: Collection[str]) -> dict[str, dict]:
    """Stage -> the settings that params declare for it now, of some groups of stages: all of them take a second."""
    declared = (entry for group in groups if group in stages() for entry in entries(p, group))
    return {f"{entry.stage}@{entry.name}": entry.settings for entry in declared}


def is_of(metrics: Mapping, settings: Mapping | None) -> bool:
    """Whether the metrics of a stage are of a run with these settings, those declared now: the last report may have another model's of the
    same name. Metrics without settings are of an older version."""
    return "settings" not in metrics or json.dumps(metrics["settings"], sort_keys=True) == json.dumps(settings, sort_keys=True)


def trains(stage: str) -> bool:
    """Whether a stage trains, and so uses a GPU where there is one. Others leave it alone."""
    return declared(stage).trains != "nothing"


@cache
def writers() -> dict[str, tuple[str, ...]]:
    """Folder of data/ -> the stages that write to it, as templates for the names below it: `finetune@{0}-{1}`."""
    names_by_folder = defaultdict(list)
    for stage in stages().values():
        folder, _, names = stage.writes.partition("/")
        if "{" in names:
            names_by_folder[folder].append(f"{stage.name}@{names.replace('/', '-')}")
    return {folder: tuple(templates) for folder, templates in names_by_folder.items()} | {
        "curves": ("pretrain@{0}",), "metrics": ("{0}@{1}",),
    }  # fmt: skip
