"""What prefect.yaml deploys: the flows that Prefect's page and its schedules start, and the process that serves them.

A run begins in the checkout, in a process of its own, and waits for the flow that is at work there.
"""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import PrefectException
from prefect.flows import load_flow_from_entrypoint
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.states import Cancelled, Completed, Failed
from prefect.types.entrypoint import EntrypointType
from pydantic import PositiveInt, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from components import params
from components.core.errors import SesameError, one_line
from pipelines import studies, terminal
from pipelines.flow import State, sesame
from pipelines.machines import services
from pipelines.money import forecast
from pipelines.worktrees import sweep
from pipelines.worktrees.overrides import variants

DEPLOYED = Path("prefect.yaml")


@flow(name="sesame", persist_result=False)
def pipeline(
    targets: list[str] | None = None,
    overrides: dict[str, Any] | None = None,
    experiment: str | None = None,
    force: bool = False,
    recheck: bool = False,
    jobs: PositiveInt | None = None,
) -> State:
    """Run stages and all that they need; in a git worktree of its own if values are overridden or the experiment has a
    name.

    Args:
        targets: Stages (`pretrain@bert`) or groups of them (`finetune`). Default: all stages.
        overrides: Other values of params.yaml, e.g. `{"models.bert.optimizer.learning_rate": 0.001}`.
            The files of the checkout stay as they are.
        experiment: Name of the experiment, for `dvc exp show`. Default: made from the overrides.
        force: Run unchanged stages too.
        recheck: Fetch sources again that params.yaml does not pin: local files, data sets of the hub without a revision.
        jobs: How many stages run side by side.
    """
    if overrides or experiment:
        options = ["--force"] * force + ["--recheck"] * recheck + (["--jobs", str(jobs)] if jobs else [])
        return _in_worktree(overrides or {}, experiment, targets or [], options)
    try:
        forecast.announce(targets or [], force, recheck, jobs, True, get_run_logger().info)
        return sesame.fn(targets, force, jobs or forecast.default_jobs(params.load()), wait=True, recheck=recheck)
    except SesameError as error:
        return Failed(message=str(error))


@flow(name="sesame", persist_result=False)
def study(name: str) -> State:
    """Run a study and all it needs.

    Args:
        name: The name of a file in `studies/params`, without its ending.
    """
    try:
        studies.clear_removed(name)
    except SesameError as error:
        return Failed(message=str(error))
    return pipeline.fn(targets=[f"study@{name}"])


def _in_worktree(values: dict[str, Any], name: str | None, targets: list[str], options: list[str]) -> State:
    """Run `sesame run` in a git worktree. Its stages are in a flow run of their own, with the experiment's name."""
    log = get_run_logger()

    def on_line(run: str, text: str, style: str = "") -> None:
        log.info("[%s] %s", run, text)
        terminal.line(run, text, style)

    # as Ctrl-C does: the flow stops its stages, then its worktree is removed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
        [variant] = variants(settings, Path("params.yaml").read_text(encoding="utf-8"), name=name)
        [run] = sweep.run([variant], 1, targets, options, on_line)
    except SesameError as error:
        return Failed(message=str(error))
    except KeyboardInterrupt:
        return Cancelled(message="stopped")
    outcome = {"done": Completed, "stopped": Cancelled}.get(run.state, Failed)
    return outcome(message=f"experiment {run.name} {run.state} after {run.seconds:.1f} s: {run.problem or run.scores}".rstrip(": "))


def serve_all() -> None:
    """Serve all of prefect.yaml from this process until it is stopped; schedules rest then."""
    served = _deployments()
    for deployed in served:
        terminal.say(f"{deployed.full_name:16} {', '.join(map(_when, deployed.schedules)) or 'on demand'}")
    terminal.say(f"Prefect  {services.page(services.PREFECT)}/deployments")
    asyncio.run(_serve(served))


def _deployments() -> list[RunnerDeployment]:
    """Those of prefect.yaml. Raises SesameError that says which of them is wrong."""
    try:
        entries = list(YAML(typ="safe").load(DEPLOYED)["deployments"])
    except FileNotFoundError:
        raise SesameError(f"{DEPLOYED}: no such file; run from the project's folder") from None
    except (YAMLError, LookupError, TypeError) as error:
        raise SesameError(f"{DEPLOYED}: not a list of `deployments` in YAML: {one_line(error)}") from None
    served = []
    for number, entry in enumerate(entries, start=1):
        try:
            deployed = load_flow_from_entrypoint(entry["entrypoint"]).to_deployment(
                entry["name"],
                description=entry["description"],
                parameters=entry.get("parameters"),
                schedules=[Schedule(**schedule) for schedule in entry.get("schedules", [])],
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
        except (LookupError, TypeError, ValueError, AttributeError, ImportError, PrefectException) as error:
            name = entry.get("name", f"number {number}") if isinstance(entry, dict) else f"number {number}"
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else one_line(error)
            problem = f"no {said}" if isinstance(error, KeyError) else said
            cure = f"`git diff {DEPLOYED}` shows what was changed"
            raise SesameError(f"{DEPLOYED}, deployment {name}: {problem}; {cure}") from None
        deployed.work_pool_name = None  # said outright: one that was given to a pool before comes back from it
        served.append(deployed)
    return served


def _when(deployment_schedule: DeploymentScheduleCreate) -> str:
    """A schedule as it is kept: by UTC where it names no time zone."""
    schedule = deployment_schedule.schedule
    if isinstance(schedule, IntervalSchedule):
        rule = f"every {schedule.interval}"
    else:
        rule = schedule.cron if isinstance(schedule, CronSchedule) else schedule.rrule.rpartition("\n")[2]
    return f"{rule} {schedule.timezone or 'UTC'}{'' if deployment_schedule.active else ' (paused)'}"


async def _serve(served: list[RunnerDeployment]) -> None:
    """As `prefect.serve`, whose runner kills its runs when it is told to end, so that they can't stop their stages."""
    runner, loop = Runner(), asyncio.get_running_loop()
    for deployed in served:
        await runner.aadd_deployment(deployed)

    def end(*_) -> None:
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(runner.astop()))

    runner.handle_sigterm = end
    signal.signal(signal.SIGINT, end)
    await runner.start()
