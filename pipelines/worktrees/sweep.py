"""Several worktree runs at once: each has its flow as a child process, and all are stopped together."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from components import params
from components.core import tracking
from components.core.errors import SesameError
from pipelines import terminal
from pipelines.execution import ledger, processes, slots
from pipelines.machines import services
from pipelines.worktrees import checkout, worktree
from pipelines.worktrees.overrides import Variant

PATIENCE = 75.0
"""Seconds that the flow of a worktree run gets to stop its stages (up to a minute in a pool) and to report to Prefect
and MLflow."""
AWAY = 8
"""How many worktree runs are active at once when their stages run on other machines: a waiting flow takes half a GB
here."""
SHOWN = re.compile(r"\[.+?\] (done in|failed: |skipped: |stopped: |crashed: ).*\(\d+/\d+\)$")
"""The lines of a worktree run's flow that the terminal shows; its log has all."""
WRONG = re.compile(r"\[.+?\] failed: (?!.*; trying again)|sesame: |\w+(Error|Exception)\b")
"""The lines that say why it failed; the last one is kept."""


@dataclass
class Sweep:
    """Runs variants in worktrees, some at a time, until all have ended or it is stopped."""

    start: checkout.Checkout
    targets: Sequence[str]
    """The stages that a worktree run builds; all if empty."""
    options: Sequence[str]
    """Options of `sesame run` in a worktree."""
    on_line: Callable[..., None]
    """Takes the name of a worktree run, a line and its style."""

    def __post_init__(self):
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._flows: dict[int, subprocess.Popen] = {}

    def run(self, variants: Sequence[Variant], jobs: int) -> list[worktree.WorktreeRun]:
        """Run them all; a KeyboardInterrupt stops those that run and begins no other."""
        runs = [worktree.WorktreeRun(variant.name, variant.overrides) for variant in variants]
        with ThreadPoolExecutor(jobs) as pool:
            ends = [pool.submit(self._work, run, variant.text) for run, variant in zip(runs, variants, strict=True)]
            try:
                wait(ends)
            except KeyboardInterrupt:
                terminal.say("stopping the worktree runs", "yellow")
                self._stop()
        for end in ends:
            end.result()  # a mistake of ours is not to pass in silence
        return runs

    def _stop(self) -> None:
        with processes.ctrl_c_again() as hurried:
            with self._starting:
                self._stopping.set()
            flows = list(self._flows.values())
            for flow in flows:
                flow.send_signal(signal.SIGINT)  # it stops its stages, and says so
            deadline = time.monotonic() + PATIENCE
            while any(flow.poll() is None for flow in flows) and time.monotonic() < deadline and not hurried():
                time.sleep(0.1)
            processes.stop([flow.pid for flow in flows], processes.FIRM)

    def _work(self, run: worktree.WorktreeRun, text: str) -> None:
        begun = time.monotonic()
        if self._stopping.is_set():
            run.state = "stopped"
            return
        try:
            lock = run.prepare(self.start, text)
        except (SesameError, OSError) as error:
            run.state, run.problem = "failed", str(error)
            return
        try:
            ready, size = time.monotonic() - begun, worktree.disk(run.folder) / 2**20
            self.on_line(run.name, f"ready after {ready:.1f} s, {size:.1f} MiB; log: {run.log}")
            code, last = self._flow(run)
            if self._stopping.is_set() and code:
                run.state = "stopped"
                run.remove()
            elif code:
                run.state, run.problem = ("failed", last) if code > 0 else ("crashed", f"killed by signal {-code}")
            else:
                run.save(self.start, self.targets)
                run.state = "done"
        except (SesameError, OSError) as error:
            run.state, run.problem = "failed", str(error)
        finally:
            run.seconds = time.monotonic() - begun
            if run.folder.exists():
                processes.stop(processes.marked(worktree.MARK, str(run.folder)), processes.FIRM)
                run.write()
            lock.release()
        self.on_line(
            run.name, f"{run.state} after {run.seconds:.1f} s{': ' * bool(run.problem)}{run.problem}", terminal.STATES[run.state]
        )

    def _flow(self, run: worktree.WorktreeRun) -> tuple[int, str]:
        """Run `sesame run` in a worktree; its exit code, and the line that best explains a failure."""
        tags = {"experiment": run.name} | {f"override.{key}": value for key, value in run.overrides.items()}
        env = {worktree.MARK: str(run.folder), ledger.TAGS: json.dumps(tags), "MLFLOW_TRACKING_URI": tracking.uri()}
        with self._starting:
            if self._stopping.is_set():
                return 130, ""
            flow = processes.start([sys.executable, "-m", "pipelines.cli", "run", *self.targets, *self.options], env, run.folder)
            self._flows[flow.pid] = flow
        last = ""
        with run.log.open("w", encoding="utf-8") as log:
            for line in flow.stdout:
                log.write(line)
                log.flush()
                if SHOWN.match(line.rstrip()):
                    self.on_line(run.name, line.rstrip())
                if WRONG.match(line):
                    last = line.strip()
        return flow.wait(), last or "no reason was reported; see its log"


def default_jobs(all_params: params.Params) -> int:
    """Default number of worktree runs that are active at once, by the resources that their stages take."""
    named = set(all_params.resources.model_dump().values()) - {None}
    if all_params.away:
        return AWAY
    if slots.GPU in named:
        return slots.capacity(slots.GPU)
    return 1 if named else max(1, (os.cpu_count() or 1) // 2)


def run(
    variants: Sequence[Variant],
    jobs: int,
    targets: Sequence[str] = (),
    options: Sequence[str] = (),
    on_line: Callable[..., None] = terminal.line,
) -> list[worktree.WorktreeRun]:
    """Run variants in worktrees, `jobs` at a time; each builds the targets, by `sesame run` with these options.

    Raises SesameError before any begins if one can't.
    """
    for variant in variants:
        if (worktree.WORKTREES / variant.name).exists():
            state = worktree.read(worktree.WORKTREES / variant.name).state
            cure = f"run `sesame exp clean {variant.name}`, or choose another name"
            raise SesameError(f"a worktree run {variant.name} exists ({state}): {cure}")
    start = checkout.read(variants)
    services.use_prefect()
    if not tracking.is_off():
        with suppress(Exception):  # the ledger's tables, made once before all; a flow that can't reach it says so
            tracking.client()
    return Sweep(start, targets, options, on_line).run(variants, jobs)
