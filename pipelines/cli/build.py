"""Subcommands that run stages: `run`, `try`, `study`, and what a run prints at its end.

Modules that are slow to import are imported inside the commands that use them.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated

import typer

from components import params
from components.core.errors import SesameError
from pipelines.cli.command import Jobs, Lines, Targets, group

command = group("Run")


@command()
def run(
    stages: Targets = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    recheck: Annotated[
        bool,
        typer.Option(
            "--recheck", help="Fetch sources again that params.yaml does not pin: files, hub sets without revision."
        ),
    ] = False,
    jobs: Jobs = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
    lines: Lines = False,
) -> None:
    """Run stages and all stages that they need, in parallel. Unchanged stages are skipped."""
    build(stages or [], force, recheck, jobs, wait, lines)


@command("try")
def try_out(jobs: Jobs = None) -> None:
    """Pre-train one small GPT, show what it has learnt, and write a page about it. Takes about two minutes."""
    from pipelines import trial

    build(trial.TARGETS, False, False, jobs, False)
    trial.show()


@command()
def study(
    name: Annotated[
        str | None, typer.Argument(help="A study of studies/params. Without a name: list all studies.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run unchanged stages too.")] = False,
    jobs: Jobs = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another flow in this checkout.")] = False,
    lines: Lines = False,
) -> None:
    """Run a study (an ablation): pre-train and score each variant with each seed, and print the table of results."""
    from pipelines import studies, terminal

    if name is None:
        terminal.table(["study", "variants", "question"], studies.listed())
        return
    studies.clear_removed(name)
    terminal.say(studies.power(name))
    build([f"study@{name}"], force, False, jobs, wait, lines)


def build(targets: list[str], force: bool, recheck: bool, jobs: int | None, wait: bool, lines: bool = False) -> None:
    """Run the flow, show its results, and exit with the status of the flow. `lines`: those of all stages, on a terminal, too."""
    from pipelines import terminal
    from pipelines.machines import services
    from pipelines.money import forecast

    params.load()  # every mistake in it is said before anything runs
    services.foreign(services.PREFECT)  # as is an address that can't be one
    # a wrong name, a broken dvc.yaml, and what can't fit: before a server is started
    plan, seconds = forecast.announce(targets, force, recheck, jobs, wait)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a closed terminal stops the stages, too; nohup keeps them
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    services.use_prefect()
    from prefect.utilities.urls import url_for

    from pipelines import flow, results
    from pipelines.execution import cancellation, ledger, mlflow_view

    logging.raiseExceptions = False  # a server that goes away is said once, below, and not for every line that was meant for it
    with while_prefect_lives(), cancellation.without_heartbeats(), nullcontext() if lines else terminal.board(seconds):
        named_flow = flow.sesame.with_options(flow_run_name=ledger.tags().get("experiment"))
        at_once = jobs or forecast.default_jobs(params.load())
        state = named_flow(targets, force, at_once, wait, recheck, return_state=True)
    problem = state.result(raise_on_failure=False) if not state.is_completed() else None
    if isinstance(problem, SesameError):
        raise problem
    if state.is_completed():
        results.show(plan, targets)
    terminal.say(f"Prefect  {url_for('flow-run', state.state_details.flow_run_id)}")
    terminal.say(f"MLflow   {mlflow_view.address_or_reason(targets)}")
    if state.is_cancelled():
        sys.exit(130)
    if not state.is_completed():
        sys.exit(1)


@contextmanager
def while_prefect_lives() -> Iterator[None]:
    """Says in one line that Prefect's server went away or no longer answers, and ends the process. Raises SesameError
    when it answers with errors: its database may be gone."""
    from httpx import TimeoutException, TransportError
    from prefect.exceptions import PrefectHTTPStatusError

    kept = "finished stages are kept: run the command again"
    try:
        yield
    except TransportError as error:
        sys.stdout.flush()
        what = "does not answer" if isinstance(error, TimeoutException) else "went away"
        said = f"sesame: Prefect's server {what} ({type(error).__name__}); {kept} (`sesame status` shows the servers)"
        print(said, file=sys.stderr, flush=True)
        os._exit(1)  # at Python's exit Prefect would wait for that server again, to send what it has left
    except RuntimeError as error:  # Prefect's, as a flow begins
        if not str(error).startswith("Failed to reach API at "):
            raise
        address = str(error).removeprefix("Failed to reach API at ")
        raise SesameError(f"Prefect's server at {address} does not answer; start it, or unset PREFECT_API_URL") from None
    except PrefectHTTPStatusError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}"
        raise SesameError(
            f"Prefect's server answers {answer}: see its log, its database may be down; {kept} once it works"
        ) from None
