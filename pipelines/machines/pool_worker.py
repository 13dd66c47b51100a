"""`sesame worker`: Prefect's worker of processes, whose stages are forks of one process that has imported all (half a second until one
runs, on two slow cores where a new Python took 3.6), and which waits for a server that is away, where Prefect's gives up after two minutes.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from pathlib import Path
from uuid import UUID

import anyio
import httpx
from anyio.abc import TaskStatus
from prefect.client.schemas.objects import FlowRun
from prefect.engine import handle_engine_signals
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flow_engine import load_flow_run, run_flow
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_WORKER_HEARTBEAT_SECONDS,
    PREFECT_WORKER_QUERY_SECONDS,
    temporary_settings,
)
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from pipelines import terminal
from pipelines.execution import cancellation, processes
from pipelines.machines import pool_stage, pools

forks = get_context("forkserver")  # a fork of the worker itself would take along its threads' locks
FIRM: processes.Ladder = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 2.0))
"""For a stage whose worker ends: Prefect's server is to hear of it."""
SETTINGS = {PREFECT_WORKER_HEARTBEAT_SECONDS: 5.0, PREFECT_WORKER_QUERY_SECONDS: 1.0}
"""Where nobody has set them: seconds between two signs of life that a worker gives to Prefect's server, and between two questions for
stages."""
PATIENT = {PREFECT_CLIENT_MAX_RETRIES: 4}
"""Of a request, after 2, 4, 8 and 16 s: a server that is away for half a minute costs no stage."""


class Worker(ProcessWorker):
    """For pools of the type `process`. Runs of others' deployments it leaves to Prefect's own way."""

    @classmethod
    def __dispatch_key__(cls) -> str:
        return "sesame"  # Prefect's own stays what its command line starts

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._asking = anyio.Lock()  # two answers would name the same stages

    async def run(
        self, flow_run: FlowRun, configuration: ProcessJobConfiguration, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED
    ) -> ProcessWorkerResult:  # fmt: skip
        """Run one stage in a process of its own, until it has ended. What came of it the process itself tells the server, unless it is
        killed."""
        if configuration.env.get("PREFECT__FLOW_NAME") != pool_stage.stage.name:
            return await super().run(flow_run, configuration, task_status)
        process = forks.Process(target=_run, args=({key: value for key, value in configuration.env.items() if value is not None},))
        await anyio.to_thread.run_sync(process.start)
        task_status.started(process.pid)
        try:
            await anyio.wait_readable(process.sentinel)
        finally:
            if process.is_alive():  # this worker ends
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(processes.stop, [process.pid], FIRM)
        process.join()
        with _patience():
            left = await self.client.read_flow_run(flow_run.id)
            if left.state.is_cancelling():  # it was cancelled before it had begun, or killed since it did not end by itself
                await self._mark_flow_run_as_cancelled(left)
        self._runs_task_group.start_soon(self.get_and_submit_flow_runs)  # for the next one, whose place is free by then
        return ProcessWorkerResult(identifier=str(process.pid), status_code=process.exitcode)

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Ask for stages, unless all places are taken (Prefect's worker asks every second even then). If the server
        does not answer, ask again later; running stages go on."""
        with _patience():
            async with self._asking:
                if self.limiter.available_tokens:
                    return await super().get_and_submit_flow_runs()
        return []

    async def sync_with_backend(self) -> None:
        """The same of signs of life."""
        with _patience():
            await super().sync_with_backend()


@contextmanager
def _patience() -> Iterator[None]:
    """A server that is away or busy is no error."""
    try:
        yield
    except httpx.TransportError:
        pass
    except PrefectHTTPStatusError as error:
        if error.response.status_code < 500:
            raise


def _run(env: dict[str, str]) -> None:
    """Be the run that is named in this environment."""
    os.setsid()  # out of reach of the Ctrl-C that is for the worker, and to be stopped with all that it starts
    os.environ.update(env)
    with handle_engine_signals(run_id := UUID(env["PREFECT__FLOW_RUN_ID"])), cancellation.without_heartbeats(), temporary_settings(PATIENT):
        run_flow(pool_stage.stage, flow_run=load_flow_run(run_id))


def serve(pool: str, queues: list[str], limit: int) -> None:
    """Be a worker of this pool, for so many stages at once, until Ctrl-C or SIGTERM. Raises SesameError where it could do nothing."""
    pools.check_remote()
    pools.make(pool)
    os.environ[pool_stage.CHECKOUT] = str(Path.cwd())
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])  # a stage's `python`
    forks.set_forkserver_preload(["__main__", __name__])
    forkserver.ensure_running()
    name = f"{os.uname().nodename}-{os.getpid()}"
    terminal.say(f"{name} works for {pool}{' (' + ', '.join(queues) + ')' if queues else ''}, {limit} at a time")
    with temporary_settings(PATIENT, set_defaults=SETTINGS), suppress(asyncio.CancelledError):
        asyncio.run(_until_told(Worker(pool, queues, name, limit=limit)))


async def _until_told(worker: Worker) -> None:
    """Work until Ctrl-C or SIGTERM."""
    task = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await worker.start(printer=lambda _: None)
