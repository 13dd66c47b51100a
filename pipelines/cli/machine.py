"""Subcommands about this machine and others: servers, checks, pools, DVC's cache, profiles of params.

Modules that are slow to import are imported inside the commands that use them.
"""

import shutil
import subprocess
from typing import Annotated

import typer

from components.core import storage
from components.core.errors import SesameError
from pipelines.cli.build import while_prefect_lives
from pipelines.cli.command import MOST, group

command = group("Machines and servers")


@command()
def up() -> None:
    """Start the Prefect server and the MLflow page, unless they already run."""
    from pipelines import terminal
    from pipelines.execution import mlflow_view
    from pipelines.machines import services

    for service in services.SERVICES:
        address = services.up(service)
        terminal.say(f"{service.name:8} {mlflow_view.address([]) if service is services.MLFLOW else address}")


@command()
def down() -> None:
    """Stop the Prefect server and the MLflow page."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.say(f"stopped: {', '.join(services.down()) or 'nothing, as no server was running'}")


@command()
def status() -> None:
    """Show which servers run, and their addresses."""
    from pipelines import terminal
    from pipelines.machines import services

    terminal.table(["service", "state", "address"], [list(row) for row in services.status()])


@command()
def doctor() -> None:
    """Check whether this machine has what a run needs: Python, packages, git, memory, disk, GPU, package index, servers."""
    from pipelines import terminal
    from pipelines.doctor import examined

    checks = examined()
    terminal.table(["", "", ""], [[check.name, check.value, check.cure] for check in checks])
    if missing := [check.name for check in checks if check.cure and check.needed]:
        raise SesameError(f"not ready to run: {', '.join(missing)}")
    terminal.say("ready to run", "bold")


@command()
def serve() -> None:
    """Serve the deployments of prefect.yaml: flows by schedule and from Prefect's page. Ctrl-C ends it
    and its flows."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines import deployments

    with while_prefect_lives():
        deployments.serve_all()


@command()
def worker(
    pool: Annotated[
        str, typer.Argument(metavar="POOL", help="A Prefect work pool, as named by `run_on` in params.yaml.")
    ],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="Take only stages that use this resource. Repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many stages run at once.")] = 1,
) -> None:
    """Run stages that other machines send to a work pool, in git worktrees of this clone, until Ctrl-C."""
    from pipelines.machines import services

    services.use_prefect()
    from pipelines.machines import pool_worker

    pool_worker.serve(pool, queue or [], limit)


@command()
def join(
    head: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The node on which the stage runs. It prints the whole command.")
    ],
    wait: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to wait until that node can be reached.")
    ] = 600,
) -> None:
    """Join a training that runs on another machine with `run: {launcher: torchrun}`, until it ends."""
    from components.stages import launch
    from pipelines import terminal

    launch.join(head, wait, terminal.say)


@command("verify")
def verify_command(
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove damaged objects, so that the stages that need them run again.")
    ] = False,
) -> None:
    """Check DVC's cache for damaged objects, which DVC itself would restore as results."""
    from pipelines import terminal
    from pipelines.execution import verify

    damaged, count = verify.damaged()
    for one in damaged:
        terminal.say(f"damaged: {one.path}, {', '.join(one.uses) or 'which no current stage needs'}", "red")
        if remove:
            one.path.unlink()  # so that DVC does not restore it, and runs the stages again that need it
    terminal.say(f"{count} objects read, {len(damaged)} damaged{' and removed' * bool(damaged and remove)}", "bold")
    if damaged and not remove:
        cure = "`sesame verify --remove` removes these objects, the next `sesame run` builds them again"
        raise SesameError(f"DVC's cache is damaged; {cure}")


@command()
def profile(
    name: Annotated[str | None, typer.Argument(help="A profile. Without a name: list all profiles.")] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FOLDER", help="The folder of the local files, for a *_files profile."),
    ] = None,
) -> None:
    """Add a ready set of params to params.yaml: tasks such as GLUE, evaluations, translators, vector spaces."""
    from components.params.reading import FILE
    from pipelines import profiles, terminal

    if name is None:
        terminal.table(["profile", ""], [list(row) for row in profiles.listed().items()])
        return
    before, compare = FILE.read_bytes(), ["git", "diff", "--quiet", "HEAD", "--", FILE]
    committed = shutil.which("git") and not subprocess.run(compare, capture_output=True).returncode
    for change in profiles.merge(name, data):
        terminal.say(change)
    if FILE.read_bytes() == before:
        return
    undo = f"git checkout {FILE}"
    if not committed:  # that would lose what was edited before
        kept = storage.STATE / f"params-before-{name}.yaml"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(before)
        undo = f"cp {kept} {FILE}"
    terminal.say(f"undo with `{undo}`; `sesame plan` lists the stages to run")
