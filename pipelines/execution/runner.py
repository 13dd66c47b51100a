"""One stage as a child process in a session of its own: streamed, timed out, stopped without orphans."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.errors import SesameError
from pipelines.execution import processes

HINTS = re.compile(
    r"(Running stage '|Verifying |(Updating|Generating) lock file |To track the changes with git|To enable auto staging|Use `dvc push`"
    r"|\tgit add |\tdvc config core\.autostage|ERROR: failed to reproduce |WARNING: '.*' is empty\.$|\S+: done in [\d.]+ s$"
    r"|\S+ The `srun` command is available on your system but is not used)"
)
"""What DVC says around a stage's own output; the stage's seconds, as the flow prints its own, which count from start to end;
and Lightning's hint on a machine with Slurm. The terminal and the logs are better without."""
TORN = re.compile(r"Traceback \(most recent call last\):|Error processing line |Exception ignored |Fatal Python error")
"""What Python begins with to say where a stop has met it, most often in an import."""
MARK = "SESAME_FLOW"
"""In the environment of all that a stage starts: the process id of its flow."""
PROGRESS_EVERY = 5.0
"""Seconds between two states of a progress bar that are passed on."""

_lock = threading.Lock()
_children: set[int] = set()
_stopping = threading.Event()


@dataclass(frozen=True)
class Outcome:
    """How a stage ended."""

    returncode: int
    seconds: float
    skipped: bool = False
    """DVC found nothing to do, or took the outputs from its cache."""
    problem: str = ""
    """Why it failed, in one line."""
    stopped: bool = False
    """It was stopped from outside, by `stop_all`."""
    permanent: bool = False
    """The stage itself said that another try would end the same way: a wrong key, a malformed file."""


def run(
    name: str, on_line: Callable[[str], None], force: bool = False, timeout: float | None = None, env: dict[str, str] | None = None,
    files: Sequence[int] = (),
) -> Outcome:  # fmt: skip
    """Run one stage with DVC and wait for it; it has `files` open. Each line of its output goes to `on_line`. Safe to call from many
    threads."""
    command = [
        sys.executable,
        "-m",
        "pipelines.execution.lockfile",
        "--wait-for-lock",
        "repro",
        "--single-item",
        *(["--force"] if force else []),
        name,
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    started = time.monotonic()
    with _lock:
        if _stopping.is_set():
            return Outcome(1, 0.0, problem="stopped before it began", stopped=True)
        child = processes.start(command, {**(env or {}), MARK: str(os.getpid()), "PATH": path, "PYTHONUNBUFFERED": "1"}, files=files)
        _children.add(child.pid)
    tail: deque[str] = deque(maxlen=200)
    reader = threading.Thread(target=_stream, args=(name, child.stdout, tail, on_line), daemon=True)
    reader.start()
    timed_out = False
    try:
        child.wait(timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        processes.stop([child.pid], processes.GENTLE)
        child.wait()
    processes.stop([child.pid], processes.FIRM)  # what a stage left running would hold its output open, and a GPU
    with _lock:
        _children.discard(child.pid)
    reader.join(timeout=5)
    seconds = time.monotonic() - started
    if _stopping.is_set() and child.returncode:
        return Outcome(child.returncode, seconds, problem="stopped", stopped=True)
    if timed_out:
        return Outcome(child.returncode or 1, seconds, problem=f"stopped after its timeout of {timeout:g} s (meta.timeout in dvc.yaml)")
    skipped = any(re.match(r"Stage '.*' (didn't change, skipping|is cached - skipping run)", line) for line in tail)
    if not child.returncode:
        return Outcome(0, seconds, skipped)
    permanent = any(line.startswith("ERROR: ") and line.endswith(f"exited with {SesameError.status}") for line in tail)
    return Outcome(child.returncode, seconds, problem=_problem(name, tail), permanent=permanent)


def stop_all(hurried: Callable[[], bool] = lambda: False) -> None:
    """Stop every running stage, without patience once `hurried`, and let none begin until `reset`."""
    with _lock:
        _stopping.set()
        children = list(_children)
    processes.stop(children, processes.GENTLE, hurried)


def reset() -> None:
    """Let stages begin again after `stop_all`."""
    _stopping.clear()


def _stream(name: str, stream, tail: deque[str], on_line: Callable[[str], None]) -> None:
    stream.reconfigure(newline="")  # tell a line that ended from a progress bar's, which the next one overwrites
    shown, torn = 0.0, False
    for line in stream:
        if line.endswith("\r"):
            if time.monotonic() - shown < PROGRESS_EVERY:
                continue
            shown = time.monotonic()
        text = line.rstrip()
        tail.append(text)
        torn = torn or (_stopping.is_set() and bool(TORN.match(text)))
        if text and not HINTS.match(text) and (not torn or text.startswith(_label(name))):
            on_line(text)


def _label(name: str) -> str:
    """What a stage's own last word begins with: its name, without the file of its address."""
    return f"{name.rpartition(':')[2]}: "


def _problem(name: str, tail: deque[str]) -> str:
    """The line that says best why a stage failed: its own last word, or DVC's when the stage wasn't to blame."""
    verdicts = [line for line in tail if line.startswith("ERROR: ")]
    verdict = verdicts[-1].removeprefix("ERROR: ") if verdicts else "DVC ended without a message"
    verdict = re.sub(r"^failed to reproduce '.*?': ", "", verdict)
    if "No possible cache link types" in verdict:  # DVC's words for every way in which a file can't be put in place
        free = shutil.disk_usage(".").free / 2**20
        cure = "free some space, or make data/ writable"
        return f"its outputs can't be brought from DVC's cache ({free:,.0f} MiB of disk are free): {cure}"
    if "failed to run: " not in verdict:
        return verdict
    if re.search(r"exited with (-9|137)$", verdict):
        return "killed by the system (signal 9), most often because memory ran out"
    said = [line for line in tail if line and not line.startswith(("ERROR: ", "> ")) and not HINTS.match(line)]
    prefix = _label(name)
    messages = [line for line in said if line.startswith(prefix)]
    return (messages or said or [verdict])[-1].removeprefix(prefix)
