"""Stages on other machines: each is a run of the deployment `stage/POOL` in a work pool of Prefect, whose workers have clones of their own.

The flow sends what a stage is made of (`parcel.Order`) and waits; only the flow writes dvc.lock and what git keeps. One thread asks
Prefect's server about all runs together, so that what a waiting stage costs here is a thread that sleeps.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

import httpx
from dvc.exceptions import CollectCacheError, DvcException, RevCollectionError
from dvc.repo import lock_repo
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    LogFilter,
    LogFilterFlowRunId,
    LogFilterTimestamp,
)
from prefect.client.schemas.objects import TERMINAL_STATES, State
from prefect.client.schemas.sorting import LogSort
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling, Crashed, Scheduled

from components.core import tracking
from components.core.errors import SesameError, one_line, without_secrets
from components.core.storage import output
from components.stages import resolve
from pipelines import terminal
from pipelines.execution import graph, lockfile, runner
from pipelines.execution.runner import Outcome
from pipelines.machines import parcel, pool_stage, services
from pipelines.worktrees import checkout

OnLine = Callable[[str], None]
POLL = 0.5
"""Seconds between two looks at which runs have ended."""
ALL, LIVES = 4, 8
"""At every fourth look it is asked how all runs stand and what they have said, at every eighth which workers live, too."""
LOST = 3
"""A stage is sent so often when workers vanish with it."""
SIGNALLED = "termination signal"
"""In what Prefect says of a run that a signal has ended: that of a worker whose end its process has seen."""
PATIENCE = 15
"""Seconds that the server must go on saying that a worker is offline."""
PENDING = 300
"""Seconds after which a worker that has taken a stage and not begun it is taken for lost."""
PREFECTS = (
    "Beginning flow run",
    "Engine execution exited",  # with a traceback whose last line is what the answer says
    "Finished in state",
    "Opening process",
    "Process for flow run",
    "View at ",
    "Worker '",
)
"""What Prefect says around a run."""
ROOM = 300_000
"""Bytes of an order that uncommitted changes may take; Prefect takes half a mebibyte in all."""
QUEUED = 8
"""Stages of a flow that wait in a queue of Prefect's server for a worker, which is answered with all of them whenever it asks; the rest
wait here. Four a second go there so, and a server begins fewer."""
IN_FLIGHT = 200
"""Stages of a flow that are sent at once: more Prefect's server does not answer for in one go."""


def check_remote() -> None:
    """Raises SesameError when DVC has no remote to send data through, or it does not answer."""
    with graph.opened() as repo:
        if not repo.config["core"].get("remote"):
            raise SesameError(
                "a pool's machines exchange data through DVC's default remote, and there is none: "
                "`dvc remote add --default store ADDRESS`, commit .dvc/config, and run again"
            )
        try:
            store = repo.cloud.get_remote_odb()
            store.fs.exists(store.path)
        except Exception as error:  # botocore's, the system's
            raise SesameError(
                f"DVC's remote can't be asked ({one_line(error)}): see its address, and its keys in the environment"
            ) from None


def make(name: str) -> tuple[UUID, str]:
    """Have the pool, of the type `process` unless it is there, and the deployment whose runs are stages: its id, and the type."""
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=name, type="process", description="Stages of Sesame's pipelines"))
        kind = client.read_work_pool(name).type
    deployed = pool_stage.stage.to_deployment(name, description="Run one stage that a flow has sent.", work_pool_name=name, **_entry(kind))
    return deployed.apply(), kind


def _entry(kind: str) -> dict:
    """Started by name, from wherever the worker stands; without looking for a workspace to prepare, which takes a process more."""
    from prefect.types.entrypoint import EntrypointType

    variables = {"job_variables": {"command": "python -m prefect.engine"}} if kind == "process" else {}
    return {"entrypoint_type": EntrypointType.MODULE_PATH} | variables


@dataclass
class _Sent:
    """A run in the pool, and what waits for it."""

    stage: str
    on_line: OnLine
    ended: threading.Event = field(default_factory=threading.Event)
    state: State | None = None
    since: float = field(default_factory=time.monotonic)
    """When it came into its present state."""
    removed: bool = False
    """On Prefect's page, by somebody."""
    worker: str = ""
    heard: datetime | None = None
    """Of the newest of its lines, by its machine's clock."""
    seen: set[UUID] = field(default_factory=set)


def bring(addresses: Iterable[str]) -> None:
    """Bring here what these stages have left in the remote, as far as it is there."""
    if addresses := list(addresses):
        with suppress(DvcException, SesameError), graph.opened() as repo:
            repo.pull(targets=addresses, allow_missing=True)


def lost(plan: Sequence[graph.Stage], states: Mapping[str, str]) -> set[str]:
    """Names of unchanged stages whose data another one is to read, and which neither this machine nor the remote has any more: a lock file
    may have come with git to a store that is new."""
    needed = {name for stage in plan if states[stage.name] != "unchanged" for name in stage.upstream}
    asked = [stage for stage in plan if stage.name in needed and states[stage.name] == "unchanged"]
    if not asked:
        return set()
    check_remote()  # one that does not answer has not lost anything
    found, log = set(), logging.getLogger("dvc")
    before = log.level
    log.setLevel(logging.CRITICAL)  # DVC names hashes, at length
    try:
        with graph.opened(wait=True) as repo:
            for stage in asked:
                try:
                    gone = any(repo.cloud.status(ids).missing for ids in repo.used_objs([stage.address]).values())
                except RevCollectionError as error:  # the list of a folder's files is gone itself
                    if not isinstance(error.__cause__, CollectCacheError):
                        raise
                    gone = True
                found |= {stage.name} if gone else set()
    finally:
        log.setLevel(before)
    return found


class Pool:
    """A work pool as a flow uses it. Raises SesameError where nothing could run in it."""

    def __init__(self, name: str, plan: Sequence[graph.Stage], states: Mapping[str, str]):
        self.name = name
        check_remote()
        self._deployment, self._kind = make(name)
        for path in {Path(stage.file).with_name("dvc.lock") for stage in plan}:
            lockfile.plain(path)
        self.commit, self.patch = checkout.commit_and_patch()
        if len(packed := parcel.Order(self.commit, self.patch, "", "", [], {}, {}, False, None, {}).packed()) > ROOM:
            raise SesameError(
                f"the uncommitted changes are too large to be sent ({len(packed) / 2**20:.1f} MiB "
                "packed): commit and push them"
            )
        self._maybe = {name for name, state in states.items() if state == "may run"}
        needed = {name for stage in plan if states[stage.name] != "unchanged" for name in stage.upstream}
        self._push([stage for stage in plan if stage.name in needed and states[stage.name] == "unchanged"])
        self._sent: dict[UUID, _Sent] = {}
        self._begun: set[str] = set()
        """Stages that a worker has taken, and nobody had to send again."""
        self._lock, self._over, self._stopping = threading.Lock(), threading.Event(), threading.Event()
        self._told: frozenset[str] = frozenset()
        self._offline: dict[str, float] = {}
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
                if paths := graph.read_from(repo, stage, upstream):  # DVC takes none for all
                    repo.pull(targets=paths)
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

    def has_room(self, running: Iterable[graph.Stage], resource: str | None) -> bool:
        """Whether another stage of this resource may be sent, beside these, which have been submitted and are not yet written down."""
        running = list(running)
        waiting = sum(stage.meta.resource == resource and stage.name not in self._begun for stage in running)
        return len(running) < IN_FLIGHT and waiting < QUEUED

    def run(
        self, stage: graph.Stage, upstream: Sequence[graph.Stage], on_line: OnLine, force: bool, env: dict, files: Sequence[int]
    ) -> Outcome:  # fmt: skip
        """Run a stage in the pool and wait for it; its lines go to `on_line`. Safe to call from many threads."""
        begun = time.monotonic()
        order = self._order(stage, upstream, force, env)
        if stage.name in self._maybe and not force and _same(stage, order):
            return Outcome(0, 0.0, skipped=True)  # what it needs ran, and came out as it was
        for _ in range(LOST):
            self._begun.discard(stage.name)
            sent = _Sent(stage.name, on_line)
            run_id = pool_stage.until_it_answers(partial(self._send, stage, order, sent, uuid4().hex), self._stopping)
            if run_id is None:
                return Outcome(1, 0.0, problem="stopped before it began", stopped=True)
            sent.ended.wait()
            with self._lock:
                del self._sent[run_id]
            if self._stopping.is_set():
                return Outcome(1, time.monotonic() - begun, problem="stopped", stopped=True)
            if (answer := pool_stage.until_it_answers(partial(self._answer, run_id), self._stopping)) is not None:
                return self._taken(stage, order, answer, time.monotonic() - begun)
            said = f"its run was removed from {self.name}" if sent.removed else sent.state.message or sent.state.name
            if not sent.removed and sent.state.is_crashed() and SIGNALLED in said:
                said = f"worker {sent.worker or 'of its run'} was killed or has ended"
            if not sent.removed and not sent.state.is_crashed():  # cancelled by somebody, or a fault of ours
                return Outcome(1, time.monotonic() - begun, problem=f"{sent.state.name.lower()} in the pool: {said}", permanent=True)
            on_line(f"lost: {said}; sent again")
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
            self._say_once(
                "MLflow's server is not running, so stages on other machines are not recorded; start it by `sesame up`"
            )
        kind, _, name = stage.name.partition("@")
        resolved = parcel.read([resolve.file_of(kind, name or "all")])
        return parcel.Order(
            self.commit, self.patch, stage.address, stage.name, [each.address for each in upstream], resolved, entries, force,
            stage.meta.timeout, own,
        )  # fmt: skip

    def _send(self, stage: graph.Stage, order: parcel.Order, sent: _Sent, key: str) -> UUID | None:
        """Have a run made; its id, None when all was stopped meanwhile. By its `key` it is one however often it is asked for."""
        run = self._client.create_flow_run_from_deployment(
            self._deployment,
            parameters={"name": stage.name, "order": order.packed()},
            state=Scheduled(scheduled_time=datetime.now(UTC) - timedelta(days=1)),  # for workers whose clock is behind
            work_queue_name=stage.meta.resource,
            idempotency_key=key,
        )
        with self._lock:  # a stop sees this run, or it is cancelled here
            if not self._stopping.is_set():
                self._sent[run.id] = sent
                return run.id
        with suppress(httpx.TransportError, ObjectNotFound):
            self._client.set_flow_run_state(run.id, Cancelled())
        return None

    def _answer(self, run_id: UUID) -> parcel.Answer | None:
        """What a stage left when it ended; None of one that was lost."""
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[pool_stage.answer_key(run_id)]))
        found = self._client.read_artifacts(artifact_filter=wanted)
        return parcel.Answer.unpacked(found[0].data) if found else None

    def _taken(self, stage: graph.Stage, order: parcel.Order, answer: parcel.Answer, seconds: float) -> Outcome:
        """Write down what came of a stage."""
        outcome = Outcome(answer.returncode, seconds, answer.skipped, answer.problem, answer.stopped, answer.permanent)
        if answer.returncode:
            return outcome
        if wrong := _wrong(stage, order, answer):
            return Outcome(
                1,
                seconds,
                problem=(f"the worker's answer does not fit the stage that was sent: {wrong}"),
                permanent=True,
            )
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
        """Cancel all runs that have not ended, and wait for their end, a minute at most; whoever waits for one goes on then."""
        with self._lock:
            self._stopping.set()
            running = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set()}
        try:
            left = [run_id for run_id in running if not self._cancelled(run_id)]
            end = time.monotonic() + 60
            for run_id, sent in running.items():
                if run_id not in left and not sent.ended.wait(max(0.0, end - time.monotonic())):
                    left.append(run_id)
            if left:
                where = ", ".join(sorted({running[run_id].worker or "no worker yet" for run_id in left}))
                some = f"{len(left)} stage{'s' * (len(left) > 1)}"
                terminal.say(
                    f"{some} of {self.name} could not be cancelled, or have not ended yet ({where}); see "
                    "Prefect's page",
                    "yellow",
                )
        finally:
            self._over.set()
            with self._lock:
                for sent in self._sent.values():
                    sent.ended.set()
            self._watcher.join(10)

    def _cancelled(self, run_id: UUID) -> bool:
        """Have a run cancelled; False where the server does not do it."""
        try:
            state = self._client.read_flow_run(run_id).state
            if not state.is_final():
                self._client.set_flow_run_state(run_id, Cancelling() if state.is_running() or state.is_pending() else Cancelled())
        except ObjectNotFound:
            return True
        except (httpx.TransportError, PrefectHTTPStatusError):
            return False
        return True

    def _watch(self) -> None:
        """Look at all runs together until the pool is no longer needed. A server that is away for a moment is asked again."""
        away = 0.0
        with get_client(sync_client=True) as client:
            for turn in count():
                if self._over.wait(POLL):
                    return
                try:
                    self._look(client, all_=turn % ALL == 0)
                    if turn % LIVES == 0:
                        self._bury(client)
                    away = 0.0
                except Exception as error:  # of any kind, and said once when it lasts
                    self._offline.clear()  # workers could not give signs of life, either
                    away = away or time.monotonic()
                    if time.monotonic() - away > services.QUIET:
                        self._say_once(f"Prefect's server does not answer ({one_line(error)}); trying again")

    def _look(self, client: SyncPrefectClient, all_: bool) -> None:
        """Take note of the states of all runs, or of those that have ended; whoever waits for one is told, after the last of its lines."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set()}
        if not waiting:
            return
        # what the server reads and sends of a run is as long as its order, so mostly it is asked for the few that have ended
        state = None if all_ else FlowRunFilterState(type=FlowRunFilterStateType(any_=list(TERMINAL_STATES)))
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(waiting)), state=state)
        runs = {run.id: run for run in client.read_flow_runs(flow_run_filter=wanted, limit=IN_FLIGHT)}
        for run_id, run in runs.items():
            sent = waiting[run_id]
            by = next((tag.removeprefix("worker:") for tag in run.tags if tag.startswith("worker:")), "")
            if by != sent.worker:
                sent.worker = by
                sent.on_line(f"on {by}")
            if sent.state is None or run.state.id != sent.state.id:
                sent.state, sent.since = run.state, time.monotonic()
            if not run.state.is_scheduled():
                self._begun.add(sent.stage)
        gone = [sent for run_id, sent in waiting.items() if all_ and run_id not in runs]
        for sent in gone:
            sent.removed = True
        ended = gone + [waiting[run_id] for run_id, run in runs.items() if run.state.is_final()]
        if all_ or ended:
            self._hear(client)
        for sent in ended:
            sent.ended.set()

    def _hear(self, client: SyncPrefectClient) -> None:
        """Pass on what the runs' logs have that was not passed on before. They come late and out of order, so the last seconds of each are
        read again; what time it is only its own machine's clock says."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if sent.state and not sent.state.is_scheduled()}
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
        """Runs whose worker is gone count as crashed: nobody else would say so. What the server counts by is its own clock alone; a worker
        is taken for gone when it says so for a while without a break, since after an outage of its own it says so of all of them."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set() and sent.state is not None}
        workers = client.read_workers_for_work_pool(self.name)
        online, now = {each.name for each in workers if each.status == "ONLINE"}, time.monotonic()
        for name in online:
            self._offline.pop(name, None)
        if waiting and not online:
            self._say_once(
                f"no worker of {self.name} is online; start one on a machine that is to run stages: "
                f"sesame worker {self.name}"
            )
        for run_id, sent in waiting.items():
            gone = sent.worker not in online and now - self._offline.setdefault(sent.worker, now) > PATIENCE if sent.worker else False
            # of other kinds of pool a run may wait in the cluster's own queue for days
            stuck = self._kind == "process" and sent.state.is_pending() and now - sent.since > PENDING
            if gone or stuck:
                message = f"worker {sent.worker} is offline" if gone else "taken by a worker that never began it"
                client.set_flow_run_state(run_id, Crashed(message=message), force=True)


def _same(stage: graph.Stage, order: parcel.Order) -> bool:
    """Whether a stage's last run read exactly what the stages before it have left now, as far as that can be told from lock files."""
    entries = {name: own for lines in order.entries.values() for each in lines.values() for name, own in lockfile.parsed(each).items()}
    if stage.name not in entries:
        return False
    made = {out["path"]: out.get("md5") for name, own in entries.items() if name != stage.name for out in own.get("outs", ())}
    read = {dep["path"]: dep.get("md5") for dep in entries[stage.name].get("deps", ())}
    inside = any(path.startswith(f"{dep}/") for path in made for dep in read)  # a folder of many stages: who knows
    return not inside and all(made.get(path, md5) == md5 for path, md5 in read.items())


def _wrong(stage: graph.Stage, order: parcel.Order, answer: parcel.Answer) -> str:
    """What of an answer does not fit what was sent; empty where all does."""
    [(name, entry)] = lockfile.parsed(answer.entry).items()
    if name != stage.name or entry.get("cmd") != stage.cmd:
        return f"it ran `{entry.get('cmd')}` as {name}"
    if made := {out["path"] for out in entry.get("outs", ())} ^ set(stage.outs):
        return f"it wrote other outputs, they differ in {', '.join(sorted(made))}"
    written = {out["path"]: out.get("md5") for out in entry.get("outs", ())}
    for path, text in answer.files.items():
        inside = [out for out in written if Path(out) in Path(path).parents]
        if ".." in Path(path).parts or not (path in written or inside):
            return f"{path} is not one of its outputs"
        if path in written and hashlib.md5(parcel.content(text)).hexdigest() != written[path]:
            return f"{path} is not the file that its entry records"
    before = [lockfile.parsed(lines)[name] for entries in order.entries.values() for name, lines in entries.items() if name != stage.name]
    sent = {out["path"]: out.get("md5") for entry in before for out in entry.get("outs", ())}
    for dep in entry.get("deps", ()):
        if dep["path"] in sent and dep.get("md5") != sent[dep["path"]]:
            return f"it read another version of {dep['path']}"
    return ""
