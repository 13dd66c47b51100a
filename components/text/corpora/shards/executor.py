"""Who does the tasks of a step: processes of this machine, or Slurm's nodes. By the folder of a step it is known which are done."""

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
"""Seconds between two looks at a job of Slurm's."""


def workplace(kind: str, name: str, key: str) -> Path:
    """A folder for what a stage has done so far, which a run that was killed leaves; those of other keys are removed."""
    folder = STATE / "text" / kind / name / key
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


def link(file: Path, target: Path) -> None:
    """The same file under another name too, or a copy where that is on another disk."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copy(file, target)


class Runner:
    """Does steps, one after the other, by a pool of processes, or without one in this process."""

    def __init__(self, settings: params.TextRun, folder: Path, place: str, pool: ProcessPoolExecutor | None):
        self.settings, self.folder, self.place, self.pool = settings, folder, place, pool

    def __call__(self, step: str, pipeline: list[PipelineStep], tasks: int) -> None:
        """Do the tasks of a step that are not done yet. Raises what a task raises, and SesameError where one was killed."""
        started, logs = time.monotonic(), str((self.folder / "logs" / step).absolute())
        if self.settings.executor == "slurm":
            done = self._on_slurm(step, pipeline, tasks, logs)
        else:
            done = self._here(step, LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs))
        print(f"{step}: {done} of {tasks} tasks in {time.monotonic() - started:.1f} s", flush=True)

    def _here(self, step: str, executor: LocalPipelineExecutor) -> int:
        """datatrove's own pool waits for ever for a task whose process was killed (its issue 222); this one says so."""
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
                f"{self.place}: a worker was killed in the step {step} (too little memory?); what is done is kept: run again, "
                "with fewer `text.workers` or more shards"
            ) from None
        return len(waiting)

    def _on_slurm(self, step: str, pipeline: list[PipelineStep], tasks: int, logs: str) -> int:
        settings, jobs = self.settings, Path(logs, "jobs")

        def note(said: str) -> str:
            """The number of a job that `sbatch` has taken; kept for whoever has to cancel it."""
            number = re.search(r"job (\d+)", said)[1]
            with jobs.open("a") as file:
                file.write(f"{number}\n")
            return number

        here = shlex.quote(str(Path.cwd()))
        executor = _Submitted(
            pipeline, tasks, settings.time, settings.partition, mem_per_cpu_gb=GIB_A_WORKER, workers=settings.workers or -1,
            job_name=f"sesame-{step}", qos="", logging_dir=logs, requeue_signals=None, job_id_retriever=note,
            # the code is what is here, and not what this environment was installed from: a lane has its own
            env_command=f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH PYTHONPATH={here}; cd {here}",
        )  # fmt: skip
        waiting = executor.get_incomplete_ranks()
        _cancel(jobs)  # of a run that was killed: they would write beside these
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
        """Until all tasks of a step are done. Raises SesameError where they are not, and nothing of them is in the queue any more."""
        said = None
        while executor.get_incomplete_ranks():
            time.sleep(POLL)
            asked = subprocess.run(["squeue", "-h", "-o", "%T %r", "-j", str(executor.job_id)], capture_output=True, text=True)
            left = asked.stdout.split("\n")[0].split()
            if asked.returncode and "Invalid job id" not in asked.stderr:  # else it knows of the job no more
                left = ["PENDING", one_line(asked.stderr.strip())]
            if not left and (failed := executor.get_incomplete_ranks()):
                raise SesameError(
                    f"{self.place}: {len(failed)} of {executor.tasks} tasks of the step {step} failed on Slurm, or were cancelled; "
                    f"the first one's log is {logs}/logs/task_{failed[0]:05}.log; what is done is kept: run again"
                )
            if left and left[0] == "PENDING" and left[1:] != said:
                said = left[1:]
                print(f"{step}: waits for Slurm ({' '.join(said)})", flush=True)


class _Submitted(SlurmPipelineExecutor):
    def launch_merge_stats(self) -> None:
        """Nobody reads them, and Slurm would keep this job in its queue for ever where a task of the step has failed."""


def _cancel(jobs: Path) -> None:
    """Take jobs out of Slurm's queue, as far as they are in it."""
    if jobs.exists():
        subprocess.run(["scancel", *jobs.read_text().split()], capture_output=True)
        jobs.unlink()


@contextmanager
def runner(settings: params.TextRun, folder: Path, place: str, preloaded: str) -> Iterator[Runner]:
    """A runner, whose processes end with it. `place` is for messages; `preloaded` is the module whose import all processes share."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = settings.workers or os.cpu_count() or 1
    if settings.executor == "slurm" or workers == 1:
        yield Runner(settings, folder, place, None)
        return
    context = get_context("forkserver")  # a fork of this process would take along its threads' locks
    context.set_forkserver_preload([preloaded])
    pool = ProcessPoolExecutor(workers, context, _begin, (dict(os.environ),))
    try:
        yield Runner(settings, folder, place, pool)
    except BaseException:
        for process in list((pool._processes or {}).values()):  # what they do is not waited for
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(environment: dict[str, str]) -> None:
    """Have the parent's environment, and not the fork server's, which may be older; end with the parent: one whose parent was
    killed would wait for ever for its next task."""
    os.environ.clear()
    os.environ.update(environment)

    def watch() -> None:
        connection.wait([parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _task(executor: LocalPipelineExecutor, rank: int) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # all of it is in the task's log
        try:
            executor._run_for_rank(rank)
        finally:
            logger.remove()  # what it logs to otherwise is this nowhere, closed by then
