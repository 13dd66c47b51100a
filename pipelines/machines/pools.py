"""Stages on other machines: each is a run of the deployment `stage/POOL` in a work pool of Prefect, whose workers have clones of their own.

The flow sends what a stage is made of (`parcel.Order`) and waits; only the flow writes dvc.lock and what git keeps. One thread asks
Prefect's server about all runs together, so that what a waiting stage costs here is a thread that sleeps.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import httpx
from dvc.exceptions import CollectCacheError, DvcException, RevCollectionError
from dvc.repo import lock_repo
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
)
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.states import Cancelled, Scheduled

from components.core import tracking
from components.core.errors import SesameError, one_line, without_secrets
from components.core.storage import output
from components.stages import resolve
from pipelines.execution import graph, lockfile, repository, runner
from pipelines.execution.runner import Outcome
from pipelines.machines import parcel, pool_stage, services
from pipelines.machines.pool_runs import IN_FLIGHT, OnLine, PoolRuns, SentStage
from pipelines.worktrees import checkout

LOST = 3
"""A stage is sent so often when workers vanish with it."""
SIGNALLED = "termination signal"
"""In what Prefect says of a run that a signal has ended: that of a worker whose end its process has seen."""
ROOM = 300_000
"""Bytes of an order that uncommitted changes may take; Prefect takes half a mebibyte in all."""
QUEUED = 8
"""Stages of a flow that wait in a queue of Prefect's server for a worker, which is answered with all of them whenever it asks; the rest
wait here. Four a second go there so, and a server begins fewer."""


def check_remote() -> None:
    """Raises SesameError when DVC has no remote to send data through, or it does not answer."""
    with repository.opened() as repo:
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
    """How Prefect starts the flow: by module name, whatever the worker's folder, and without the extra process that
    prepares a workspace."""
    from prefect.types.entrypoint import EntrypointType

    variables = {"job_variables": {"command": "python -m prefect.engine"}} if kind == "process" else {}
    return {"entrypoint_type": EntrypointType.MODULE_PATH} | variables


def bring(addresses: Iterable[str]) -> None:
    """Bring here what these stages have left in the remote, as far as it is there."""
    if addresses := list(addresses):
        with suppress(DvcException, SesameError), repository.opened() as repo:
            repo.pull(targets=addresses, allow_missing=True)


def _read_by_others(plan: Sequence[graph.Stage], states: Mapping[str, str]) -> list[graph.Stage]:
    """Unchanged stages whose data another one is to read."""
    needed = {name for stage in plan if states[stage.name] != "unchanged" for name in stage.upstream}
    return [stage for stage in plan if stage.name in needed and states[stage.name] == "unchanged"]


def lost(plan: Sequence[graph.Stage], states: Mapping[str, str]) -> set[str]:
    """Names of unchanged stages whose data another one is to read, and which neither this machine nor the remote has any more: a lock file
    may have come with git to a store that is new."""
    candidates = _read_by_others(plan, states)
    if not candidates:
        return set()
    check_remote()  # one that does not answer has not lost anything
    names, log = set(), logging.getLogger("dvc")
    before = log.level
    log.setLevel(logging.CRITICAL)  # DVC names hashes, at length
    try:
        with repository.opened(wait=True) as repo:
            for stage in candidates:
                try:
                    gone = any(repo.cloud.status(ids).missing for ids in repo.used_objs([stage.address]).values())
                except RevCollectionError as error:  # the list of a folder's files is gone itself
                    if not isinstance(error.__cause__, CollectCacheError):
                        raise
                    gone = True
                names |= {stage.name} if gone else set()
    finally:
        log.setLevel(before)
    return names


class Pool:
    """A work pool as a flow uses it. Raises SesameError where nothing could run in it."""

    def __init__(self, name: str, plan: Sequence[graph.Stage], states: Mapping[str, str]):
        self.name = name
        check_remote()
        self._deployment, kind = make(name)
        for path in {Path(stage.file).with_name("dvc.lock") for stage in plan}:
            lockfile.plain(path)
        self.commit, self.patch = checkout.commit_and_patch()
        if len(packed := parcel.Order(self.commit, self.patch, "", "", [], {}, {}, False, None, {}).packed()) > ROOM:
            raise SesameError(
                f"the uncommitted changes are too large to be sent ({len(packed) / 2**20:.1f} MiB "
                "packed): commit and push them"
            )
        self._maybe = {name for name, state in states.items() if state == "may run"}
        self._push(_read_by_others(plan, states))
        self._runs = PoolRuns(name, kind)

    def stop(self, hurried: Callable[[], bool]) -> None:
        """Cancel all runs that have not ended, and wait for their end, a minute at most, or until `hurried`."""
        self._runs.stop(hurried)

    def run_here(
        self, stage: graph.Stage, upstream: Sequence[graph.Stage], on_line: OnLine, force: bool, env: dict, files: Sequence[int]
    ) -> Outcome:  # fmt: skip
        """Run a stage on this machine, between others that run elsewhere."""
        try:
            with repository.opened(wait=True) as repo:
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
            with repository.opened(wait=True) as repo:
                repo.push(targets=[stage.address for stage in stages])

    def has_room(self, running: Iterable[graph.Stage], resource: str | None) -> bool:
        """Whether another stage of this resource may be sent, beside these, which have been submitted and are not yet written down."""
        running = list(running)
        waiting = sum(stage.meta.resource == resource and stage.name not in self._runs.begun for stage in running)
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
            self._runs.begun.discard(stage.name)
            sent = SentStage(stage.name, on_line)
            run_id = pool_stage.until_it_answers(partial(self._send, stage, order, sent, uuid4().hex), self._runs.stopping)
            if run_id is None:
                return Outcome(1, 0.0, problem="stopped before it began", stopped=True)
            sent.ended.wait()
            self._runs.remove(run_id)
            if self._runs.stopping.is_set():
                return Outcome(1, time.monotonic() - begun, problem="stopped", stopped=True)
            if (answer := pool_stage.until_it_answers(partial(self._answer, run_id), self._runs.stopping)) is not None:
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
        stage_env = env | {tracking.USER: tracking.user()}
        if address := services.page(services.MLFLOW):
            stage_env[services.MLFLOW.variable] = without_secrets(address)  # what is sent can be read on Prefect's page
        elif tracking.OFF not in stage_env:
            stage_env = {tracking.OFF: "off"}
            self._runs.say_once(
                "MLflow's server is not running, so stages on other machines are not recorded; start it by `sesame up`"
            )
        kind, _, name = stage.name.partition("@")
        resolved = parcel.read([resolve.file_of(kind, name or "all")])
        return parcel.Order(
            self.commit, self.patch, stage.address, stage.name, [each.address for each in upstream], resolved, entries, force,
            stage.meta.timeout, stage_env,
        )  # fmt: skip

    def _send(self, stage: graph.Stage, order: parcel.Order, sent: SentStage, key: str) -> UUID | None:
        """Have a run made; its id, None when all was stopped meanwhile. By its `key` it is one however often it is asked for."""
        run = self._runs.client.create_flow_run_from_deployment(
            self._deployment,
            parameters={"name": stage.name, "order": order.packed()},
            state=Scheduled(scheduled_time=datetime.now(UTC) - timedelta(days=1)),  # for workers whose clock is behind
            work_queue_name=stage.meta.resource,
            idempotency_key=key,
        )
        if self._runs.add(run.id, sent):
            return run.id
        with suppress(httpx.TransportError, ObjectNotFound):
            self._runs.client.set_flow_run_state(run.id, Cancelled())
        return None

    def _answer(self, run_id: UUID) -> parcel.Answer | None:
        """What a stage left when it ended; None of one that was lost."""
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[pool_stage.answer_key(run_id)]))
        artifacts = self._runs.client.read_artifacts(artifact_filter=wanted)
        return parcel.Answer.unpacked(artifacts[0].data) if artifacts else None

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
        with repository.opened(wait=True) as repo, lock_repo(repo):  # stages that run here write the lock file, too
            for path, text in answer.files.items():
                with output(Path(path)) as temporary:
                    temporary.write_bytes(parcel.content(text))
            path = Path(stage.file).with_name("dvc.lock")
            lockfile.write(path, lockfile.plain(path) | {stage.name: answer.entry})
        return outcome

def _same(stage: graph.Stage, order: parcel.Order) -> bool:
    """Whether a stage's last run read exactly what the stages before it have left now, as far as that can be told from lock files."""
    entries = {
        name: entry
        for lines in order.entries.values()
        for each in lines.values()
        for name, entry in lockfile.parsed(each).items()
    }
    if stage.name not in entries:
        return False
    outputs = {
        out["path"]: out.get("md5")
        for name, entry in entries.items()
        if name != stage.name
        for out in entry.get("outs", ())
    }
    read = {dep["path"]: dep.get("md5") for dep in entries[stage.name].get("deps", ())}
    inside = any(path.startswith(f"{dep}/") for path in outputs for dep in read)  # a folder of many stages: who knows
    return not inside and all(outputs.get(path, md5) == md5 for path, md5 in read.items())


def _wrong(stage: graph.Stage, order: parcel.Order, answer: parcel.Answer) -> str:
    """Why an answer does not fit the stage that was sent; empty if it fits."""
    [(name, entry)] = lockfile.parsed(answer.entry).items()
    if name != stage.name or entry.get("cmd") != stage.cmd:
        return f"it ran `{entry.get('cmd')}` as {name}"
    if difference := {out["path"] for out in entry.get("outs", ())} ^ set(stage.outs):
        return f"it wrote other outputs, they differ in {', '.join(sorted(difference))}"
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
