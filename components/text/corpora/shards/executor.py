"""Run the tasks of a step in processes of this machine or on Slurm's nodes. The folder of a step records which are done."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from components import params
from components.core.errors import SesameError, one_line
from components.core.storage import STATE

GIB_A_WORKER = 2
POLL = 5.0
"""Seconds between two queries of a Slurm job's state."""


def workplace(kind: str, name: str, key: str) -> Path:
    """The folder of a stage's partial results, which outlives a killed run. Remove the folders of other keys."""
    folder = STATE / "text" / kind / name / key
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


def link(file: Path, target: Path) -> None:
    """Hard-link a file, or copy it if the target is on another disk."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy(file, target)


class Runner:
    """Runs steps one after the other, in a pool of processes or, without a pool, in this process. `label` starts its messages."""

    def __init__(self, settings: params.TextRun, folder: Path, label: str, pool: ProcessPoolExecutor | None):
        self.settings, self.folder, self.label, self.pool = settings, folder, label, pool

    def __call__(self, step: str, pipeline: list[PipelineStep], tasks: int) -> None:
        """Run the unfinished tasks of a step. Raise what a task raises, and SesameError if one was killed."""
        started, logs = time.monotonic(), str((self.folder / "logs" / step).absolute())
        if self.settings.executor == "slurm":
            done = self._on_slurm(step, pipeline, tasks, logs)
        else:
            done = self._locally(step, LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs))
        print(f"{step}: {done} of {tasks} tasks in {time.monotonic() - started:.1f} s", flush=True)

    def _locally(self, step: str, executor: LocalPipelineExecutor) -> int:
        """Run the tasks on this machine. datatrove's own pool waits for ever for a task whose process was killed (its issue 222)."""
        waiting = executor.get_incomplete_ranks()
        if self.pool is None:
            for rank in waiting:
                _task(deepcopy(executor), rank)
            return len(waiting)
        try:
            for future in as_completed([self.pool.submit(_task, executor, rank) for rank in waiting]):
                future.result()
        except BrokenProcessPool:
            raise SesameError(
                f"{self.label}: a worker was killed in the step {step} (too little memory?); what is done is kept: run again, "
                "with fewer `text.workers` or more shards"
            ) from None
        return len(waiting)

    def _on_slurm(self, step: str, pipeline: list[PipelineStep], tasks: int, logs: str) -> int:
        settings, jobs = self.settings, Path(logs, "jobs")

        def record_job(output: str) -> str:
            """The id of the job in the output of `sbatch`, also written to `jobs` so that it can be cancelled."""
            number = re.search(r"job (\d+)", output)[1]
            with jobs.open("a") as file:
                file.write(f"{number}\n")
            return number

        here = shlex.quote(str(Path.cwd()))
        executor = _Submitted(
            pipeline, tasks, settings.time, settings.partition, mem_per_cpu_gb=GIB_A_WORKER, workers=settings.workers or -1,
            job_name=f"sesame-{step}", qos="", logging_dir=logs, requeue_signals=None, job_id_retriever=record_job,
            # run the code of the current folder, not the one that this environment was installed from
            env_command=f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH PYTHONPATH={here}; cd {here}",
        )  # fmt: skip
        waiting = executor.get_incomplete_ranks()
        _cancel(jobs)  # jobs of a killed run would write to the same files
        try:
            executor.run()
            self._wait(step, executor, logs)
        except FileNotFoundError as error:
            raise SesameError(
                f"text.executor slurm: no command {error.filename!r} on this machine; take `local`, or submit from a login node"
            ) from None
        except subprocess.CalledProcessError:
            raise SesameError(
                f"text.executor slurm: sbatch has refused the step {step}, and says why above; do text.partition {settings.partition!r} "
                f"and text.time {settings.time!r} suit this cluster?"
            ) from None
        except BaseException:
            _cancel(jobs)
            raise
        jobs.unlink(missing_ok=True)
        return len(waiting)

    def _wait(self, step: str, executor: SlurmPipelineExecutor, logs: str) -> None:
        """Wait until all tasks of a step are done. Raise SesameError if some are not and none of them is in the queue any more."""
        reported = None
        while executor.get_incomplete_ranks():
            time.sleep(POLL)
            queue = subprocess.run(["squeue", "-h", "-o", "%T %r", "-j", str(executor.job_id)], capture_output=True, text=True)
            state = queue.stdout.split("\n")[0].split()
            if queue.returncode and "Invalid job id" not in queue.stderr:  # an invalid id means that the job has left the queue
                state = ["PENDING", one_line(queue.stderr.strip())]
            if not state and (failed := executor.get_incomplete_ranks()):
                raise SesameError(
                    f"{self.label}: {len(failed)} of {executor.tasks} tasks of the step {step} failed on Slurm, or were cancelled; "
                    f"the first one's log is {logs}/logs/task_{failed[0]:05}.log; what is done is kept: run again"
                )
            if state and state[0] == "PENDING" and state[1:] != reported:
                reported = state[1:]
                print(f"{step}: waits for Slurm ({' '.join(reported)})", flush=True)


class _Submitted(SlurmPipelineExecutor):
    def launch_merge_stats(self) -> None:
        """Do nothing: the statistics are not used, and Slurm would keep this job queued for ever if a task of the step failed."""


def _cancel(jobs: Path) -> None:
    """Cancel the jobs that are still in Slurm's queue."""
    if jobs.exists():
        subprocess.run(["scancel", *jobs.read_text().split()], capture_output=True)
        jobs.unlink()


@contextmanager
def runner(settings: params.TextRun, folder: Path, label: str, preloaded: str) -> Iterator[Runner]:
    """A runner whose processes end with the context. `preloaded` is the module that the fork server imports once for all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = settings.workers or os.cpu_count() or 1
    if settings.executor == "slurm" or workers == 1:
        yield Runner(settings, folder, label, None)
        return
    context = get_context("forkserver")  # a fork of this process would copy locks that its threads hold
    context.set_forkserver_preload([preloaded])
    pool = ProcessPoolExecutor(workers, context, _begin, (dict(os.environ),))
    try:
        yield Runner(settings, folder, label, pool)
    except BaseException:
        for process in list((pool._processes or {}).values()):  # do not wait for their tasks
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(environment: dict[str, str]) -> None:
    """Take over the parent's environment, since the fork server's may be older, and exit when the parent does: otherwise a worker
    whose parent was killed would wait for ever."""
    os.environ.clear()
    os.environ.update(environment)

    def watch() -> None:
        connection.wait([parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _task(executor: LocalPipelineExecutor, rank: int) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # the task's log has it all
        try:
            executor._run_for_rank(rank)
        finally:
            logger.remove()  # it would go on logging to `nowhere`, which is closed then
