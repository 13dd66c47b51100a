"""Stages on other machines: each is a run of the deployment `stage/POOL` in a work pool of Prefect, whose workers have clones of their own.

The flow sends what a stage is made of (`parcel.Order`) and waits; only the flow writes dvc.lock and what git keeps. One thread asks
Prefect's server about all runs together, so that what a waiting stage costs here is a thread that sleeps.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from uuid import UUID, uuid4

from dvc.repo import lock_repo
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
    LogFilterTimestamp,
)
from prefect.client.schemas.objects import State
from prefect.client.schemas.sorting import LogSort
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.states import Cancelled, Cancelling, Crashed

from components import tracking
from components.errors import SesameError, one_line, without_secrets
from components.stage import output
from pipelines import graph, lockfile, origin, parcel, runner, services, terminal, worker
from pipelines.runner import Outcome

OnLine = Callable[[str], None]
HERE = "here"
"""`run_on` of params.yaml for this machine."""
POLL = 1.0
"""Seconds between two looks at what the pool does."""
LOST = 3
"""A stage is sent so often when workers vanish with it."""
PENDING = 300
"""Seconds after which a worker that has taken a stage and not begun it is taken for lost."""
PREFECTS = ("Beginning flow run", "Finished in state", "View at ", "Worker '", "Opening process", "Process for flow run")
"""What Prefect says around a run."""
IN_FLIGHT = 100
"""Stages that are sent at once: more would wait at Prefect's server in place of here."""


def check_remote() -> None:
    """Raises SesameError when DVC has no remote to send data through."""
    with graph.opened() as repo:
        if not repo.config["core"].get("remote"):
            raise SesameError(
                "a pool's machines exchange data through DVC's default remote, and there is none: "
                "`dvc remote add --default store ADDRESS`, commit .dvc/config, and run again"
            )


def make(name: str) -> UUID:
    """Have the pool, of the type `process` unless it is there, and the deployment whose runs are stages: its id."""
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=name, type="process", description="Stages of Sesame's pipelines"))
        kind = client.read_work_pool(name).type
    deployed = worker.stage.to_deployment(name, description="Run one stage that a flow has sent.", work_pool_name=name, **_entry(kind))
    return deployed.apply()


def _entry(kind: str) -> dict:
    """Started by name, from wherever the worker stands; without looking for a workspace to prepare, which takes a process more."""
    from prefect.types.entrypoint import EntrypointType

    variables = {"job_variables": {"command": "python -m prefect.engine"}} if kind == "process" else {}
    return {"entrypoint_type": EntrypointType.MODULE_PATH} | variables


@dataclass
class _Sent:
    """A run in the pool, and what waits for it."""

    on_line: OnLine
    ended: threading.Event = field(default_factory=threading.Event)
    state: State | None = None
    since: float = field(default_factory=time.monotonic)
    """When it came into its present state."""
    worker: str = ""
    heard: datetime | None = None
    """Of the newest of its lines, by its machine's clock."""
    seen: set[UUID] = field(default_factory=set)


class Pool:
    """A work pool as a flow uses it. Raises SesameError where nothing could run in it."""

    def __init__(self, name: str, plan: Sequence[graph.Stage], cached: Collection[str]):
        self.name = name
        check_remote()
        self._deployment = make(name)
        for path in {Path(stage.file).with_name("dvc.lock") for stage in plan}:
            lockfile.plain(path)
        self.commit, self.patch = origin.carried()
        needed = {name for stage in plan if stage.name not in cached for name in stage.upstream}
        self._push([stage for stage in plan if stage.name in needed & set(cached)])
        self._flow = uuid4().hex[:12]
        self._sent: dict[UUID, _Sent] = {}
        self._lock, self._over, self._stopping = threading.Lock(), threading.Event(), threading.Event()
        self._told: frozenset[str] = frozenset()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @cached_property
    def _client(self) -> SyncPrefectClient:
        return get_client(sync_client=True)

    def run_here(
        self, stage: graph.Stage, upstream: Sequence[graph.Stage], on_line: OnLine, force: bool, env: dict, files: Sequence[int]
    ) -> Outcome:  # fmt: skip
        """Run a stage on this machine, between others that run elsewhere."""
        try:
            with graph.opened(wait=True) as repo:
                repo.pull(targets=[each.address for each in upstream]) if upstream else None
            outcome = runner.run(stage.address, on_line, force, stage.meta.timeout, env, files)
            if not outcome.returncode:
                self._push([stage])
        except SesameError as error:
            return Outcome(1, 0.0, problem=str(error))
        return outcome

    def _push(self, stages: Sequence[graph.Stage]) -> None:
        """Bring to the remote what stages have left here: a worker could not read it otherwise."""
        if stages:
            with graph.opened(wait=True) as repo:
                repo.push(targets=[stage.address for stage in stages])

    def run(
        self, stage: graph.Stage, upstream: Sequence[graph.Stage], on_line: OnLine, force: bool, env: dict, files: Sequence[int]
    ) -> Outcome:  # fmt: skip
        """Run a stage in the pool and wait for it; its lines go to `on_line`. Safe to call from many threads."""
        begun = time.monotonic()
        order = self._order(stage, upstream, force, env)
        for attempt in range(LOST):
            run_id, sent = self._send(stage, order, attempt, on_line)
            if run_id is None:
                return Outcome(1, 0.0, problem="stopped before it began", stopped=True)
            sent.ended.wait()
            with self._lock:
                del self._sent[run_id]
            if self._stopping.is_set():
                return Outcome(1, time.monotonic() - begun, problem="stopped", stopped=True)
            if (answer := self._answer(run_id)) is not None:
                return self._taken(stage, order, answer, time.monotonic() - begun)
            said = sent.state.message or sent.state.name
            if not sent.state.is_crashed():  # cancelled by somebody, or a fault of ours
                return Outcome(1, time.monotonic() - begun, problem=f"{sent.state.name.lower()} in the pool: {said}", permanent=True)
            on_line(f"lost: {said}; sent again" if attempt + 1 < LOST else f"lost: {said}")
        return Outcome(1, time.monotonic() - begun, problem=f"lost with its worker {LOST} times: {said}", permanent=True)

    def _order(self, stage: graph.Stage, upstream: Sequence[graph.Stage], force: bool, env: dict) -> parcel.Order:
        entries: dict[str, dict[str, str]] = {}
        for path in {Path(each.file).with_name("dvc.lock") for each in (*upstream, stage)}:
            lines = lockfile.plain(path)
            names = [each.name for each in (*upstream, stage) if Path(each.file).with_name("dvc.lock") == path and each.name in lines]
            entries[path.as_posix()] = {name: lines[name] for name in names}
        own = env | {tracking.USER: tracking.user()}
        if address := services.page(services.MLFLOW):
            own[services.MLFLOW.variable] = without_secrets(address)  # what is sent can be read on Prefect's page
        elif tracking.OFF not in own:
            own = {tracking.OFF: "off"}
            self._say_once("no page of MLflow is up (`sesame up`): stages on other machines leave no runs")
        return parcel.Order(
            self.commit, self.patch, stage.address, stage.name, [each.address for each in upstream], entries, force, stage.meta.timeout, own
        )

    def _send(self, stage: graph.Stage, order: parcel.Order, attempt: int, on_line: OnLine) -> tuple[UUID | None, _Sent]:
        sent = _Sent(on_line)
        with self._lock:  # a stop either sees this run or keeps it from beginning
            if self._stopping.is_set():
                return None, sent
            run = self._client.create_flow_run_from_deployment(
                self._deployment,
                parameters={"name": stage.name, "order": order.packed()},
                work_queue_name=stage.meta.resource,
                idempotency_key=f"{self._flow}-{stage.name}-{uuid4().hex}",
                tags=[f"attempt:{attempt + 1}"] if attempt else [],
            )
            self._sent[run.id] = sent
        return run.id, sent

    def _answer(self, run_id: UUID) -> parcel.Answer | None:
        """What a stage left when it ended; None of one that was lost."""
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[worker.answer_key(run_id)]))
        found = self._client.read_artifacts(artifact_filter=wanted)
        return parcel.Answer.unpacked(found[0].data) if found else None

    def _taken(self, stage: graph.Stage, order: parcel.Order, answer: parcel.Answer, seconds: float) -> Outcome:
        """Write down what came of a stage."""
        outcome = Outcome(answer.returncode, seconds, answer.skipped, answer.problem, answer.stopped, answer.permanent)
        if answer.returncode:
            return outcome
        if wrong := _wrong(stage, order, answer):
            return Outcome(1, seconds, problem=f"what came back is not what was sent: {wrong}", permanent=True)
        with graph.opened(wait=True) as repo, lock_repo(repo):  # stages that run here write the lock file, too
            for path, text in answer.files.items():
                with output(Path(path)) as temporary:
                    temporary.write_bytes(parcel.content(text))
            path = Path(stage.file).with_name("dvc.lock")
            lockfile.write(path, lockfile.plain(path) | {stage.name: answer.entry})
        return outcome

    def _say_once(self, text: str) -> None:
        with self._lock:
            told, self._told = self._told, self._told | {text}
        if text not in told:
            terminal.say(text, "yellow")

    def stop(self) -> None:
        """Cancel all runs that have not ended, and wait for their end."""
        with self._lock:
            self._stopping.set()
            running = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set()}
        for run_id, sent in running.items():
            begun = sent.state is not None and (sent.state.is_running() or sent.state.is_pending())
            with suppress(ObjectNotFound):
                self._client.set_flow_run_state(run_id, Cancelling() if begun else Cancelled())
        for sent in running.values():
            sent.ended.wait(60)
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        """Look at all runs together until the pool is no longer needed. A server that is away for a moment is asked again."""
        last, quiet = time.monotonic(), 0.0
        with get_client(sync_client=True) as client:
            while not self._over.wait(POLL):
                try:
                    self._hear(client)
                    self._look(client)
                    if time.monotonic() - last > worker.BEATS:
                        self._bury(client)
                        last = time.monotonic()
                    quiet = 0.0
                except Exception as error:  # of any kind, and said once when it lasts
                    quiet = quiet or time.monotonic()
                    if time.monotonic() - quiet > services.QUIET:
                        terminal.say(f"Prefect's server does not answer ({one_line(error)}); stages run on meanwhile", "yellow")
                        quiet = float("inf")
            for sent in self._sent.values():
                sent.ended.set()

    def _look(self, client: SyncPrefectClient) -> None:
        """Take note of the runs' states; whoever waits for one that has ended is told, after the last of its lines."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set()}
        ids = list(waiting)
        for some in (ids[place : place + 200] for place in range(0, len(ids), 200)):
            for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=some)), limit=200):
                sent = waiting[run.id]
                sent.worker = next((tag.removeprefix("worker:") for tag in run.tags if tag.startswith("worker:")), "")
                if sent.state is None or run.state.id != sent.state.id:
                    sent.state, sent.since = run.state, time.monotonic()
                if run.state.is_final():
                    self._hear(client)
                    sent.ended.set()

    def _hear(self, client: SyncPrefectClient) -> None:
        """Pass on what the runs' logs have that was not passed on before. They come late and out of order, so the last seconds of each are
        read again; what time it is only its own machine's clock says."""
        with self._lock:
            waiting = dict(self._sent)
        if not waiting:
            return
        heard = [sent.heard for sent in waiting.values()]
        since = None if None in heard else LogFilterTimestamp(after_=min(heard) - timedelta(seconds=30))
        wanted, offset, rows = LogFilter(flow_run_id=LogFilterFlowRunId(any_=list(waiting)), timestamp=since), 0, [None]
        while rows:
            rows = client.read_logs(wanted, limit=200, offset=offset, sort=LogSort.TIMESTAMP_ASC)
            offset += len(rows)
            for row in rows:
                sent = waiting[row.flow_run_id]
                if row.id in sent.seen:
                    continue
                sent.seen.add(row.id)
                sent.heard = max(sent.heard or row.timestamp, row.timestamp)
                if row.name == "prefect.flow_runs" and row.level >= logging.INFO and not row.message.startswith(PREFECTS):
                    sent.on_line(row.message)

    def _bury(self, client: SyncPrefectClient) -> None:
        """Runs whose worker is gone count as crashed: nobody else would say so. What the server counts by is its own clock alone."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set() and sent.state is not None}
        online = {each.name for each in client.read_workers_for_work_pool(self.name) if each.status == "ONLINE"}
        for run_id, sent in waiting.items():
            gone = sent.worker and sent.worker not in online
            stuck = sent.state.is_pending() and time.monotonic() - sent.since > PENDING
            if gone or stuck:
                message = f"worker {sent.worker} gives no sign of life" if gone else "taken by a worker that never began it"
                client.set_flow_run_state(run_id, Crashed(message=message), force=True)


def _wrong(stage: graph.Stage, order: parcel.Order, answer: parcel.Answer) -> str:
    """What of an answer does not fit what was sent; empty where all does."""
    [(name, entry)] = lockfile.parsed(answer.entry).items()
    if name != stage.name or entry.get("cmd") != stage.cmd:
        return f"it ran `{entry.get('cmd')}` as {name}"
    if made := {out["path"] for out in entry.get("outs", ())} ^ set(stage.outs):
        return f"it wrote {', '.join(sorted(made))} more or less"
    before = [lockfile.parsed(lines)[name] for entries in order.entries.values() for name, lines in entries.items() if name != stage.name]
    sent = {out["path"]: out.get("md5") for entry in before for out in entry.get("outs", ())}
    for dep in entry.get("deps", ()):
        if dep["path"] in sent and dep.get("md5") != sent[dep["path"]]:
            return f"it read another {dep['path']}"
    return ""
