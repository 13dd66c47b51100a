"""A process and all it started, stopped together: what runs under `sesame` leaves no orphan."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

Ladder = Sequence[tuple[signal.Signals, float]]
"""Signals to send one after another, each with the seconds it gets to take effect."""

GENTLE: Ladder = ((signal.SIGINT, 4.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
FIRM: Ladder = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0))


def start(command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, files: Sequence[int] = ()) -> subprocess.Popen[str]:
    """Start a process as the leader of a session, out of Ctrl-C's reach; its output, errors too, is text to be read from `stdout`.

    It has these `files` open, too.
    """
    return subprocess.Popen(
        command,
        env=os.environ | env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        pass_fds=files,
    )


@contextmanager
def guarded(variable: str, value: str) -> Iterator[None]:
    """Should this process be killed meanwhile, all that carry `variable=value` in their environment are stopped."""
    command = [sys.executable, "-m", "pipelines.execution.processes", variable, value]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate()


def family(leader: int) -> set[psutil.Process]:
    """The living processes of the session that `leader` leads, and their descendants wherever these went.

    The session holds those whose parent is gone, descent holds those that opened a session of their own (torchrun's workers).
    """
    members = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader:
                members |= {process, *process.children(recursive=True)}
    return {process for process in members if _alive(process)}


def marked(variable: str, value: str) -> set[int]:
    """The sessions of all living processes that carry this in their environment: what a killed parent left behind, too."""
    sessions = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if process.environ().get(variable) == value:
                sessions.add(os.getsid(process.pid))
    return sessions


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def handled(number: signal.Signals, handler: signal.Handlers | Callable[..., None]) -> Iterator[None]:
    """For some time, another handler of a signal."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def ctrl_c_again() -> Iterator[Callable[[], bool]]:
    """For the time in which all is stopped: whether Ctrl-C was pressed once more. It raises nothing here.

    An exception that a signal raises within `threading` can leave a lock taken for good, and who waits for it hangs.
    """
    pressed: list[bool] = []
    with handled(signal.SIGINT, lambda *_: pressed.append(True)):
        yield lambda: bool(pressed)


def stop(leaders: Iterable[int], ladder: Ladder, hurried: Callable[[], bool] = lambda: False) -> None:
    """Stop the families of these session leaders, all at once, and return when none of them lives.

    Once `hurried`, the last signal follows without a wait for the others.
    """
    leaders = list(leaders)
    known: set[psutil.Process] = set()
    try:
        for number, grace in ladder:
            known = {process for process in known.union(*map(family, leaders)) if _alive(process)}
            if not known:
                break
            _send(known, number)
            deadline = time.monotonic() + grace
            while (known := {process for process in known if _alive(process)}) and time.monotonic() < deadline:
                if hurried() and number != ladder[-1][0]:
                    break
                time.sleep(0.05)
    finally:  # also when an exception cuts the wait short
        _send(known.union(*map(family, leaders)), signal.SIGKILL)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


if __name__ == "__main__":
    sys.stdin.read()  # it ends when the process that started this one has no more need of a guard, or is gone
    stop(marked(*sys.argv[1:]), FIRM)
