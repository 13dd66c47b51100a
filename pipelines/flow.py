"""The Prefect flow `sesame`: DVC's graph, stages in parallel, each state shown as it is."""

import os
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial

from filelock import FileLock, Timeout
from prefect import allow_failure, flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run, task_run
from prefect.states import Cancelled, Completed, Failed

from components import params
from components.core.errors import SesameError
from components.core.storage import STATE
from pipelines import terminal
from pipelines.execution import graph, ledger, processes, repository, runner, slots, sources, staleness
from pipelines.execution.cancellation import when_cancelled
from pipelines.machines import pools, services
from pipelines.money import energy
from pipelines.money.forecast import JOBS

GOOD = ("Completed", "Cached")
RETRY_AFTER = 3
"""Seconds."""
WAITING = "waiting for another flow that runs in this checkout"


@dataclass(frozen=True)
class Result:
    """How a stage ended in this flow."""

    state: str
    """Completed, Cached, Failed, Skipped or Stopped."""
    seconds: float
    message: str


RETRYING = "Failed, tried again"


def _is_retrying(_task, _run, state: State) -> bool:
    return state.name == RETRYING


@task(
    task_run_name="{stage.name}", retry_delay_seconds=RETRY_AFTER, retry_condition_fn=_is_retrying, persist_result=False
)
def run_stage(
    stage: graph.Stage, cached: bool, blocker: str, force: bool, run_ledger: ledger.Ledger | None,
    held: slots.Slots | None, run: Callable[..., runner.Outcome],
) -> State:  # fmt: skip
    """Run one stage on what it holds, by `run`, unless it is unchanged (`cached`) or a stage it needs failed (`blocker`)."""
    if blocker:
        return Failed(name="Skipped", message=f"not run, because {blocker} failed")
    if cached:
        return Completed(name="Cached", message="unchanged")
    log = get_run_logger()

    def on_line(text: str) -> None:
        log.info("[%s] %s", stage.name, text)  # Prefect's command line lists the lines of all stages together
        terminal.line(stage.name, text)

    on_line(stage.desc or "begins")
    env = (run_ledger.env if run_ledger else {}) | (held.env if held else {})
    outcome = run(on_line, force, env=env, files=held.files if held else ())
    if outcome.stopped:
        return Cancelled(name="Stopped", message=outcome.problem)
    if outcome.returncode:
        with repository.opened() as repo:
            repository.free_lock(repo)  # a timeout, or a system out of memory, may have cut what stages still to come would read
        if outcome.permanent or task_run.run_count > stage.meta.retries:
            return Failed(message=outcome.problem)
        terminal.line(stage.name, f"failed: {outcome.problem}; trying again ({task_run.run_count} of {stage.meta.retries})", "yellow")
        return Failed(name=RETRYING, message=outcome.problem)
    if outcome.skipped:
        return Completed(name="Cached", message="unchanged, or taken from DVC's cache")
    if run_ledger:
        run_ledger.record(stage)
    return Completed(message="done")


class StagesFailed(Exception):
    """At least one stage of a build failed."""


@dataclass
class Build:
    """Runs a plan: each stage is submitted when what it needs is done, its resource is free, and a job too.

    Submitting at that moment and not before keeps stages that wait from filling the pool, and lets the plan's order decide
    who goes first.
    """

    plan: Sequence[graph.Stage]
    cached: set[str]
    forced: set[str]
    jobs: int
    slots_of: Callable[[graph.Stage], int]
    """How many of its resource a stage takes."""
    run_ledger: ledger.Ledger | None = None
    pool: pools.Pool | None = None
    """Where stages run; None is here."""
    local: Collection[str] = ()
    """Those that read files which only this machine has."""
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self):
        self._running: dict[str, tuple[graph.Stage, float]] = {}
        self._held: dict[str, slots.Slots] = {}
        self._told: set[str] = set()
        self._futures: dict[str, PrefectFuture] = {}
        self._finished: queue.SimpleQueue[str] = queue.SimpleQueue()  # Ctrl-C cannot leave its lock taken
        self._by_name = {stage.name: stage for stage in self.plan}
        # what git keeps of all stages is here, and a worker has it of none
        kept = self.pool and graph.reads_what_git_keeps(self.plan)
        self._here = {name for name in self._by_name if not self.pool or name in {repository.RESOLVE, *kept, *self.local}}

    def run(self, cancelled: threading.Event) -> None:
        """Build all. Raises StagesFailed, or KeyboardInterrupt when it was stopped; nothing runs any more then."""
        waiting, stopped = list(self.plan), True
        try:
            while waiting or self._running:
                for stage in [stage for stage in waiting if self._free(stage)]:
                    if self._free(stage) and self._held_for(stage):  # still free, after those submitted before it
                        waiting.remove(stage)
                        self._submit(stage)
                with suppress(queue.Empty):
                    self._collect(self._finished.get(timeout=0.5))
                if cancelled.is_set():
                    raise KeyboardInterrupt
            stopped = False
        except (KeyboardInterrupt, TerminationSignal):
            raise KeyboardInterrupt from None
        finally:
            self._end("stopping the running stages" if stopped else "")
        if any(result.state not in GOOD for result in self.results.values()):
            raise StagesFailed

    def _end(self, said: str) -> None:
        """Stop what runs, and note how it ended. Another Ctrl-C ends the waiting, and nothing else."""
        # who cancels a flow often tells it twice, by Ctrl-C and by Prefect's SIGTERM
        with processes.handled(signal.SIGTERM, signal.SIG_IGN), processes.ctrl_c_again() as hurried:
            if said:
                terminal.say(said, "yellow")
            runner.stop_all(hurried)
            if self.pool:
                self.pool.stop(hurried)
            for name in list(self._running):
                self._collect(name)

    def _free(self, stage: graph.Stage) -> bool:
        if not self.results.keys() >= set(stage.upstream):
            return False
        taken = {other.meta.resource for other, _ in self._running.values()} - {None, *slots.KINDS}
        if stage.meta.resource in taken:
            return False
        if stage.name in self._here:
            return sum(name in self._here for name in self._running) < self.jobs
        if not self._is_run(stage):
            return True  # it is not sent, and what waits for it may go to another queue
        sent = [other for name, (other, _) in self._running.items() if name not in self._here and name not in self.cached]
        return self.pool.has_room(sent, stage.meta.resource)

    def _is_run(self, stage: graph.Stage) -> bool:
        """Whether a stage whose upstream has ended is run, and not only written down as unchanged or skipped."""
        return stage.name not in self.cached and not self._bad(stage)

    def _bad(self, stage: graph.Stage) -> list[str]:
        return [name for name in stage.upstream if self.results[name].state not in GOOD]

    def _held_for(self, stage: graph.Stage) -> bool:
        """Take the GPUs or cores that a stage runs on, which other flows may hold: whether it has what it needs."""
        kind = stage.meta.resource
        if kind not in slots.KINDS or stage.name not in self._here or not self._is_run(stage):
            return True
        if held := slots.take(kind, self.slots_of(stage)):
            self._held[stage.name] = held
        elif not self._running and kind not in self._told:
            self._told.add(kind)
            terminal.line(stage.name, f"waits for {kind}s of this machine that another flow uses")
        return held is not None

    def _submit(self, stage: graph.Stage) -> None:
        bad = self._bad(stage)
        configured = run_stage.with_options(name=stage.name.partition("@")[0], description=stage.desc, retries=stage.meta.retries)
        needs = [allow_failure(self._futures[name]) for name in stage.upstream]  # done already; Prefect draws the edges from it
        self._running[stage.name] = stage, time.monotonic()
        forced, held = stage.name in self.forced, self._held.get(stage.name)
        cached = stage.name in self.cached
        given = (stage, cached, ", ".join(bad), forced, self.run_ledger, held, self._way(stage))
        future = configured.submit(*given, wait_for=needs)
        self._futures[stage.name] = future
        future.add_done_callback(lambda _: self._finished.put(stage.name))

    def _way(self, stage: graph.Stage) -> Callable[..., runner.Outcome]:
        """How a stage is run: here, here with data that other machines have made, or there."""
        if self.pool is None:
            return partial(runner.run, stage.address, timeout=stage.meta.timeout)
        digested = [name for each in stage.upstream if self._by_name[each].is_digest for name in self._by_name[each].upstream]
        # what `resolve` writes of a stage goes with its order
        names = [name for name in dict.fromkeys((*stage.upstream, *digested)) if name != repository.RESOLVE]
        upstream = [self._by_name[name] for name in names]
        return partial(self.pool.run_here if stage.name in self._here else self.pool.run, stage, upstream)

    def _collect(self, name: str) -> None:
        _, begun = self._running.pop(name)
        self._futures[name].wait()
        if held := self._held.pop(name, None):
            held.release()
        state = self._futures[name].state
        result = self.results[name] = Result(state.name, time.monotonic() - begun, state.message or "")
        count, style = (len(self.results), len(self.plan)), terminal.STATES.get(result.state, "bold red")
        if result.state in GOOD:  # what is unchanged needs no line
            terminal.ended(name, f"done in {result.seconds:.1f} s" * (result.state == "Completed"), terminal.STATES["done"], *count)
        else:
            terminal.ended(name, f"{result.state.lower()}: {result.message}", style, *count)


@contextmanager
def _only_flow(wait: bool, cancelled: threading.Event) -> Iterator[None]:
    """DVC's locks between stages do not wait for each other, so a checkout has one flow at a time."""
    STATE.mkdir(exist_ok=True)
    lock = FileLock(STATE / "flow.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise SesameError("another flow runs in this checkout; wait for its end by `sesame run --wait`") from None
        terminal.say(WAITING)
        get_run_logger().info(WAITING)
        while not lock.is_locked:
            if cancelled.is_set():
                raise KeyboardInterrupt from None
            with suppress(Timeout):
                lock.acquire(timeout=1)
    try:
        yield
    finally:
        lock.release()


@flow(name="sesame", persist_result=False)
def sesame(targets: list[str] | None = None, force: bool = False, jobs: int = JOBS, wait: bool = False, recheck: bool = False) -> State:
    """Run stages and all that they need. Without targets: all stages of dvc.yaml.

    `force` runs unchanged stages too; `jobs` is how many run side by side; `wait` waits for another flow in this checkout;
    `recheck` fetches again from sources whose content params.yaml does not pin; if it is the same, later stages do not
    run. Raises SesameError if the plan can't be made. Returns the state of the flow: Completed, Failed or Cancelled.
    """
    started = time.monotonic()
    runner.reset()
    try:
        with when_cancelled() as cancelled, _only_flow(wait, cancelled):
            with repository.at_once(wait):
                plan, all_params = graph.plan(targets or []), params.load()
                forced = sources.forced(plan, all_params, force, recheck)
                if all_params.away:
                    pools.bring(graph.folders(plan))
                states = staleness.states(plan, forced, all_params.away)
                # one that runs again may read what another one has lost
                while all_params.away and (lost := pools.lost(plan, states)):
                    names = ", ".join(sorted(lost))
                    terminal.say(f"run again, as their outputs are neither here nor in DVC's remote: {names}", "yellow")
                    forced |= lost
                    states = staleness.states(plan, forced, all_params.away)
                cached = {name for name, state in states.items() if state == "unchanged"}
            pool = pools.Pool(all_params.run_on, plan, states) if all_params.away and len(cached) < len(plan) else None
            build = Build(
                plan, cached, forced, jobs, partial(slots.demand, all_params), pool=pool,
                local=sources.unfixed(all_params),
            )  # fmt: skip
            return _built(build, targets or [], cancelled, started, all_params.energy.pue)
    except (KeyboardInterrupt, TerminationSignal):
        return Cancelled(message="stopped before it began")


def _built(build: Build, targets: list[str], cancelled: threading.Event, started: float, pue: float) -> State:
    """Run a build, in the ledger when it has work, and say what came of it."""
    outcome, work = Completed, len(build.cached) < len(build.plan)
    guard = processes.guarded(runner.MARK, str(os.getpid())) if work else nullcontext()
    try:
        opened = ledger.opened(flow_run.name, flow_run.id, targets) if work else nullcontext()
        with guard, opened as build.run_ledger, energy.running() if work else nullcontext() as meter:
            try:
                build.run(cancelled)
            finally:
                if work:
                    graph.order_lock()  # before the ledger keeps a copy
                    build.run_ledger.measured(meter.kwh(pue))
    except StagesFailed:
        outcome = Failed
    except KeyboardInterrupt:
        outcome = Cancelled
    summary = _summary(build, time.monotonic() - started)
    _show(build, summary)
    return outcome(message=summary)


def _summary(build: Build, seconds: float) -> str:
    count = Counter(result.state for result in build.results.values())
    parts = [f"{count['Cached']} cached", f"{count['Completed']} done", f"{count['Failed'] + count['Crashed']} failed"]
    parts += [f"{count[state]} {state.lower()}" for state in ("Skipped", "Stopped") if count[state]]
    if left := len(build.plan) - len(build.results):
        parts.append(f"{left} not begun")
    return f"{terminal.number(len(build.plan), 'stage')}: {', '.join(parts)} in {seconds:.1f} s"


def _show(build: Build, summary: str) -> None:
    """The table of stages: whole in Prefect, without the unchanged ones in the terminal."""
    rows, recorded = [], build.run_ledger
    for stage in build.plan:
        result = build.results.get(stage.name, Result("Not begun", 0.0, ""))
        run_id = recorded.stages.get(stage.name) if recorded else None
        link = services.mlflow_run(recorded.experiment, run_id) if run_id else ""
        seconds = f"{result.seconds:.1f}" if result.state not in ("Cached", "Skipped", "Not begun") else ""
        message = result.message * (result.state not in GOOD)
        rows.append({"stage": stage.name, "state": result.state, "seconds": seconds, "message": message, "MLflow": link})
    address = services.page(services.PREFECT)
    # a server that is silent would be waited for several times
    if address and services.healthy(services.PREFECT, address, patience=5):
        with suppress(Exception):  # without the server the terminal still has it
            create_table_artifact(rows, key="stages", description=summary)
    if worth := [row for row in rows if row["state"] != "Cached"]:
        terminal.say("")
        terminal.table(["stage", "state", "seconds", ""], [[row["stage"], row["state"], row["seconds"], row["message"]] for row in worth])
    terminal.say(summary, "bold")
