"""The runs of a flow in a work pool: one thread asks Prefect's server about all of them together.

So a stage that waits costs a thread that sleeps, and the server answers a question for all stages at once.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
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
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling, Crashed

from components.core.errors import one_line
from pipelines import terminal
from pipelines.machines import services

OnLine = Callable[[str], None]
POLL = 0.5
"""Seconds between two looks at which runs have ended."""
ALL, LIVES = 4, 8
"""Every fourth poll reads the states and logs of all runs, every eighth also which workers are online."""
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
IN_FLIGHT = 200
"""Stages of a flow that are sent at once: more Prefect's server does not answer for in one go."""


@dataclass
class SentStage:
    """A stage that was sent, and its run in the pool."""

    stage: str
    on_line: OnLine
    ended: threading.Event = field(default_factory=threading.Event)
    state: State | None = None
    since: float = field(default_factory=time.monotonic)
    """When its present state began."""
    removed: bool = False
    """Somebody removed the run on Prefect's page."""
    worker: str = ""
    newest_line: datetime | None = None
    """Time of its newest log line, by the clock of its machine."""
    seen_lines: set[UUID] = field(default_factory=set)


class PoolRuns:
    """The runs of the stages that a flow has sent to a pool. A thread of its own watches them until `stop`."""

    def __init__(self, pool: str, kind: str):
        self.pool, self.kind = pool, kind
        self.stopping = threading.Event()
        self.begun: set[str] = set()
        """Stages that a worker has taken, and that were not sent again since."""
        self._sent: dict[UUID, SentStage] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._said: frozenset[str] = frozenset()
        self._offline: dict[str, float] = {}
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @cached_property
    def client(self) -> SyncPrefectClient:
        return get_client(sync_client=True)

    def add(self, run_id: UUID, sent: SentStage) -> bool:
        """Watch a run from now on; False if all are being stopped."""
        with self._lock:  # so that a stop sees this run, or it is not added
            if self.stopping.is_set():
                return False
            self._sent[run_id] = sent
            return True

    def remove(self, run_id: UUID) -> None:
        with self._lock:
            del self._sent[run_id]

    def say_once(self, text: str) -> None:
        with self._lock:
            said, self._said = self._said, self._said | {text}
        if text not in said:
            terminal.say(text, "yellow")

    def stop(self, hurried: Callable[[], bool]) -> None:
        """Cancel all runs that have not ended, and wait for their end, a minute at most, or until `hurried`; whoever
        waits for one goes on then."""
        with self._lock:
            self.stopping.set()
            running = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set()}
        try:
            left = [run_id for run_id in running if hurried() or not self._cancelled(run_id)]
            end = time.monotonic() + 60
            for run_id, sent in running.items():
                while run_id not in left and not sent.ended.wait(0.2):
                    if time.monotonic() >= end or hurried():
                        left.append(run_id)
            if left:
                where = ", ".join(sorted({running[run_id].worker or "no worker yet" for run_id in left}))
                some = terminal.number(len(left), "stage")
                terminal.say(
                    f"{some} of {self.pool} could not be cancelled, or have not ended yet ({where}); see "
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
            state = self.client.read_flow_run(run_id).state
            if not state.is_final():
                self.client.set_flow_run_state(run_id, Cancelling() if state.is_running() or state.is_pending() else Cancelled())
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
                    self._update(client, all_=turn % ALL == 0)
                    if turn % LIVES == 0:
                        self._crash_lost_runs(client)
                    away = 0.0
                except Exception as error:  # of any kind, and said once when it lasts
                    self._offline.clear()  # workers could not give signs of life, either
                    away = away or time.monotonic()
                    if time.monotonic() - away > services.QUIET:
                        self.say_once(f"Prefect's server does not answer ({one_line(error)}); trying again")

    def _update(self, client: SyncPrefectClient, all_: bool) -> None:
        """Read the states of all runs, or of those that have ended. Who waits for a run goes on after its last line was passed on."""
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
                self.begun.add(sent.stage)
        gone = [sent for run_id, sent in waiting.items() if all_ and run_id not in runs]
        for sent in gone:
            sent.removed = True
        ended = gone + [waiting[run_id] for run_id, run in runs.items() if run.state.is_final()]
        if all_ or ended:
            self._pass_on_lines(client)
        for sent in ended:
            sent.ended.set()

    def _pass_on_lines(self, client: SyncPrefectClient) -> None:
        """Pass on the new lines of the runs' logs. Lines come late and out of order, so the last seconds are read again. Their times are
        by the clock of each run's machine."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if sent.state and not sent.state.is_scheduled()}
        if not waiting:
            return
        newest = [sent.newest_line for sent in waiting.values()]
        since = None if None in newest else LogFilterTimestamp(after_=min(newest) - timedelta(seconds=30))
        wanted, offset, rows = LogFilter(flow_run_id=LogFilterFlowRunId(any_=list(waiting)), timestamp=since), 0, [None]
        while rows:
            rows = client.read_logs(wanted, limit=200, offset=offset, sort=LogSort.TIMESTAMP_ASC)
            offset += len(rows)
            for row in rows:
                sent = waiting[row.flow_run_id]
                if row.id in sent.seen_lines:
                    continue
                sent.seen_lines.add(row.id)
                sent.newest_line = max(sent.newest_line or row.timestamp, row.timestamp)
                if row.name == "prefect.flow_runs" and row.level >= logging.INFO and not row.message.startswith(PREFECTS):
                    sent.on_line(row.message)

    def _crash_lost_runs(self, client: SyncPrefectClient) -> None:
        """Mark runs whose worker is gone as crashed: Prefect does not. A worker counts as gone when the server has called it offline for
        `PATIENCE` seconds without a break, since after an outage the server calls all workers offline."""
        with self._lock:
            waiting = {run_id: sent for run_id, sent in self._sent.items() if not sent.ended.is_set() and sent.state is not None}
        workers = client.read_workers_for_work_pool(self.pool)
        online, now = {each.name for each in workers if each.status == "ONLINE"}, time.monotonic()
        for name in online:
            self._offline.pop(name, None)
        if waiting and not online:
            self.say_once(
                f"no worker of {self.pool} is online; start one on a machine that is to run stages: "
                f"sesame worker {self.pool}"
            )
        for run_id, sent in waiting.items():
            gone = sent.worker not in online and now - self._offline.setdefault(sent.worker, now) > PATIENCE if sent.worker else False
            # of other kinds of pool a run may wait in the cluster's own queue for days
            stuck = self.kind == "process" and sent.state.is_pending() and now - sent.since > PENDING
            if gone or stuck:
                message = f"worker {sent.worker} is offline" if gone else "taken by a worker that never began it"
                client.set_flow_run_state(run_id, Crashed(message=message), force=True)


