"""Subcommands that look at results: `runs`, `champion`, `compare`, `submit`.

Modules that are slow to import are imported inside the commands that use them.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from components import params
from components.core.errors import SesameError
from components.stages import resolve
from components.stages.outputs import read_lines, reading
from pipelines.cli.command import group

command = group("Results")


@command()
def runs(
    study: Annotated[
        str | None, typer.Option("--study", help="List the runs of this study: one line per variant and seed.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=50_000, help="How many fine-tunings to list.")] = 30,
) -> None:
    """List runs recorded in MLflow: the newest fine-tunings, or a study's variants with their budgets and scores."""
    from pipelines import studies, terminal

    terminal.table(*(studies.recorded(study) if study is not None else studies.tunings(last)))


@command("trace")
def trace_command(
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="The stage that wrote the number, e.g. evaluate@gpt-pairs.")
    ],
) -> None:
    """Show where a stage's numbers come from: data, code, settings and commit, of it and of every stage behind it."""
    from pipelines import terminal
    from pipelines.execution import trace

    first, *_ = stages = trace.behind(stage)
    writer = {path: each.name for each in stages for path in each.written}
    rows = []
    for each in stages:
        origins = dict.fromkeys(writer[path] for path in each.read if path in writer)
        rows.append([each.name, each.state, each.commit, ", ".join([*origins, *each.sources])])
    terminal.table(["stage", "state", "recorded by", "reads"], rows)
    kind, _, name = stage.partition("@")
    files = list(map(str, trace.code(stage)))
    if files:
        terminal.say(f"settings {resolve.file_of(kind, name or 'all')}")
        terminal.say(f"code     {files[0]}, which imports {len(files) - 1} others of the project")
    for path, md5 in first.read.items():
        terminal.say(f"read     {path} ({md5[:12]})")
    for path, md5 in first.written.items():
        terminal.say(f"wrote    {path} ({md5[:12]})")


@command()
def champion(name: Annotated[str, typer.Argument(metavar="STUDY", help="A study that has been run.")]) -> None:
    """Register the model of a study that has the highest mean score on dev in MLflow, under the alias `champion`."""
    from pipelines import studies, terminal

    terminal.say(studies.champion(name))


@command()
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A fine-tuned model, MODEL:random for the same model from random weights, or a baseline."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The model or baseline to compare A with.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of `finetune.tasks` in params.yaml.")],
    split: Annotated[str, typer.Option(help="The split of the task, e.g. dev or test.")] = "dev",
) -> None:
    """Compare two models or baselines on the same examples: A minus B, with a 95 % interval over seeds and examples."""
    from components.comparison import verdicts
    from pipelines import terminal
    from pipelines.execution import staleness

    all_params = params.load()
    if task not in all_params.finetune.tasks:
        known = ", ".join(all_params.finetune.tasks)
        raise SesameError(f"no model is fine-tuned on {task!r}; give a task of finetune.tasks in params.yaml ({known})")
    if split not in all_params.tasks[task].splits:
        raise SesameError(f"no split {split!r} of {task} (there are: {', '.join(all_params.tasks[task].splits)})")
    places = {side: [_predictions(all_params, side, task)] for side in (a, b)}
    if places[a] == places[b]:  # `gpt:pretrained` is gpt
        raise SesameError(f"A and B are both {b}; give two different models or baselines")
    metric = (all_params.tasks[task].splits[split].metrics or all_params.tasks[task].metrics)[0]
    stages = [
        f"baseline@{task}" if side in all_params.baselines.methods else f"finetune@{side.partition(':')[0]}-{task}"
        for side in (a, b)
    ]  # fmt: skip
    for stage, [place] in zip(stages, places.values(), strict=True):
        _same_rows(stage, place, task, split)
    examples, scored = verdicts.sides(all_params, task, split, metric, places)
    difference = verdicts.difference(scored[a], scored[b])
    [verdict] = verdicts.verdicts([difference])
    runs = " and ".join(terminal.number(count, "run") for count in difference.runs)
    staleness.say_stale(stages, "the sides may differ in more")
    terminal.say(
        f"{task} {split}, {metric} over {examples:,} examples, {runs}: {a} {difference.a:.3f}, {b} {difference.b:.3f}, "
        f"difference {difference.shown}: {verdict}"
    )


def _same_rows(stage: str, place: tuple[Path, str], task: str, split: str) -> None:
    """Raises SesameError where predictions are of other rows than the task has now: a row is known by its number."""
    from components import tasks

    folder, init = place
    labels = {example.id: example.label for example in tasks.read(Path("data/tasks", task), split)}
    with reading(file := folder / "predictions.jsonl"):
        for row in read_lines(file):
            number, label = row["id"], row["label"]
            if (row["split"], row["init"]) == (split, init) and labels.get(number, label) != label:
                raise SesameError(
                    f"{stage} predicted other rows of {task} {split} than there are now (the label of row {number} was "
                    f"{label!r}, and is {labels[number]!r}); run it again"
                )


def _predictions(all_params: params.Params, side: str, task: str) -> tuple[Path, str]:
    """The folder of the predictions of `MODEL`, `MODEL:random` or a baseline, and their name there.

    Raises SesameError if there are none.
    """
    if side in all_params.baselines.methods:
        return Path("data/baselines", task), side
    name, _, init = side.partition(":")
    init = init or "pretrained"
    if name not in all_params.finetune.models or init not in all_params.finetune.inits:
        known, inits = ", ".join(all_params.finetune.models), ", ".join(all_params.finetune.inits)
        raise SesameError(
            f"no fine-tuned model {name}:{init} (finetune.models: {known}; inits: {inits}; "
            f"baselines: {', '.join(all_params.baselines.methods)})"
        )
    return Path("data/scores", name, task), init


Benchmark = Literal["glue", "superglue"]


@command()
def submit(
    benchmark: Annotated[Benchmark, typer.Argument(help="The leaderboard.")],
    model: Annotated[str, typer.Argument(help="A fine-tuned model.")],
    seed: Annotated[
        int | None, typer.Option(help="The seed whose predictions are written. Default: the first.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out test sets without predictions.")] = False,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="The folder for the zip file.")] = "data/submissions",
) -> None:
    """Write a model's predictions as the zip file that a leaderboard accepts, and check it."""
    from components.tasks import submission
    from pipelines import terminal
    from pipelines.execution import staleness

    all_params = params.load()
    if model not in (known := all_params.all_models):
        raise SesameError(f"no model {model} in params.yaml (there are: {', '.join(known)})")
    written = submission.write(benchmark, model, seed, partial, out)
    tuned = all_params.finetune.tasks if model in all_params.finetune.models else ()
    declared = [task for task in written.tasks if task in tuned]
    staleness.say_stale([f"finetune@{model}-{task}" for task in declared], "predictions are of an earlier model or recipe")
    if others := [task for task in written.tasks if task not in declared]:
        some = ", ".join(others)
        terminal.say(f"predictions of {some} are of other params: `finetune` does not tune {model} on them now", "yellow")
    terminal.table(["file", "predictions"], [[name, f"{rows:,}"] for name, rows in written.files.items()])
    for reason in written.absent:
        terminal.say(f"absent: {reason}")
    for name, count in written.replaced.items():
        terminal.say(f"{name}: {count:,} answers of the model are not a label; the first label is written instead")
    terminal.say(f"{written.path}{' (partial)' if written.absent else ''}: names, headers, counts and labels are valid")
