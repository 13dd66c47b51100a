"""`sesame exp`: other params in git worktrees of their own, and the comparison of what came out.

Modules that are slow to import are imported inside the commands that use them.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from components import params
from pipelines.cli.command import MOST, Jobs, app, one_line_errors

Settings = Annotated[
    list[str],
    typer.Option("-S", "--set", metavar="KEY=VALUE", help="Set a key of params.yaml to a value (YAML). Repeatable."),
]
exp = typer.Typer(help="Run variants of the pipeline in separate git worktrees, and compare them.", no_args_is_help=True)
app.add_typer(exp, name="exp", rich_help_panel="Run")


@exp.command("run")
@one_line_errors
def exp_run(
    settings: Settings,
    name: Annotated[
        str | None, typer.Option("-n", "--name", help="The name of the experiment. Default: made from the values.")
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Run the whole pipeline with other values, in its own git worktree. The result is a DVC experiment and a run in
    MLflow."""
    _run_in_worktrees(settings, False, name, 1, jobs)


@exp.command("sweep")
@one_line_errors
def exp_sweep(
    settings: Annotated[
        list[str], typer.Option("-S", "--set", metavar="KEY=A,B,C", help="Values for a key of params.yaml. Repeatable.")
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="How many worktree runs are active at once. Default: one per GPU if `resources` names gpu, one if it "
            "names anything else, eight if stages run in a pool, otherwise one per two cores.",
        ),
    ] = None,
) -> None:
    """Run the whole pipeline with each combination of values, each in its own git worktree."""
    from pipelines.worktrees import sweep

    at_once, cores = jobs or sweep.default_jobs(params.load()), os.cpu_count() or 1
    _run_in_worktrees(settings, True, None, at_once, max(1, min(4, cores // at_once)) if at_once > 1 else None)


def _run_in_worktrees(settings: list[str], several: bool, name: str | None, jobs: int, stage_jobs: int | None) -> None:
    from pipelines import terminal
    from pipelines.execution import mlflow_view
    from pipelines.worktrees import experiments, overrides, sweep

    params.load()
    variants = overrides.variants(settings, Path("params.yaml").read_text(encoding="utf-8"), several, name)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps it running
            signal.signal(number, signal.default_int_handler)
    if several:
        terminal.say(f"{len(variants)} worktree runs, {min(jobs, len(variants))} at a time")
    ended = sweep.run(variants, jobs, options=["--jobs", str(stage_jobs)] if stage_jobs else [])
    rows = [
        [run.name, run.changes, run.state, f"{run.seconds:.1f}", f"{sum(run.added.values()) / 2**20:.1f}", run.scores]
        for run in ended
    ]  # fmt: skip
    terminal.say("")
    terminal.table(["experiment", "overrides", "state", "seconds", "new MiB", "mean score of tasks"], rows)
    added = {md5: size for run in ended for md5, size in run.added.items()}
    size = sum(added.values()) / 2**20
    terminal.say(f"{size:.1f} MiB of new data in DVC's cache; the worktrees of finished runs are removed")
    if done := [run.name for run in ended if run.state == "done"]:
        if len(ended) == 1:
            experiments.show(done[0], "HEAD")
        for run in ended:
            if run.state == "done" and run.page.exists():  # one that failed may have that of an earlier experiment
                terminal.say(f"report   {run.page}")
        terminal.say(f"MLflow   {mlflow_view.address([]) or 'start its page with `sesame up`'}")
        terminal.say(f"next     `sesame exp diff {done[0]}`, `dvc exp show --only-changed`, `dvc exp apply {done[0]}`")
    bad = [run for run in ended if run.state in ("failed", "crashed")]
    for run in bad:
        terminal.say(f"{run.name} {run.state}: {run.problem}" + f"; {run.log}" * run.folder.exists(), "red")
    if bad:
        terminal.say("`sesame exp list` shows the worktrees that are left, `sesame exp clean` removes them")
    if any(run.state == "stopped" for run in ended):
        terminal.say("stopped; finished stages are in DVC's cache, and the same command continues from there")
        sys.exit(130)
    if bad:
        sys.exit(1)


@exp.command("diff")
@one_line_errors
def exp_diff(
    name: Annotated[
        str, typer.Argument(metavar="A", help="An experiment, a commit, or `workspace` for the files in this folder.")
    ],
    other: Annotated[
        str, typer.Argument(metavar="B", help="The experiment, commit or `workspace` to compare A with.")
    ] = "HEAD",
) -> None:
    """Compare two experiments: params that differ, scores with intervals, cost. Differences are A minus B."""
    from pipelines.worktrees import experiments

    experiments.show(name, other)


@exp.command("list")
@one_line_errors
def exp_list() -> None:
    """List the worktree runs that are active, failed or crashed, with the disk space that they take."""
    from pipelines import terminal
    from pipelines.worktrees import worktree

    rows = [
        [run.name, run.state, run.changes, f"{worktree.disk(run.folder) / 2**20:.1f}", run.problem]
        for run in worktree.present()
    ]
    terminal.table(["worktree run", "state", "overrides", "MiB", ""], rows)
    terminal.say(f"{terminal.number(len(rows), 'worktree run')}; finished ones: `dvc exp show --only-changed`")


@exp.command("clean")
@one_line_errors
def exp_clean(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names as in `sesame exp list`. Default: all that failed or crashed."),
    ] = None,
) -> None:
    """Remove the worktrees of failed and crashed runs. Active ones are kept."""
    from pipelines import terminal
    from pipelines.worktrees import worktree

    freed = worktree.clean(names or [])
    for name, size in freed.items():
        terminal.say(f"removed {name}: {size / 2**20:.1f} MiB")
    terminal.say(f"{sum(freed.values()) / 2**20:.1f} MiB freed" if freed else "nothing to remove")
