"""`sesame` in processes forked off one that has imported Prefect and DVC: the command itself, without the seconds that they take to import.

A test hands over arguments, folder and environment with the ends of two pipes: one for what the command prints, one on which it is told the
command's pid and, at its end, its exit status. Each command has a keeper, forked between, that waits for it.
"""

import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from tests.pipelines import shim

PYTHON = "SESAME_TEST_PYTHON"
"""In the environment of a command: the interpreter that it starts others with, if not its own."""


class Command:
    """A command that runs, with what the tests use of `subprocess.Popen`."""

    def __init__(self, output: int, status: int):
        self.stdout, self._status = os.fdopen(output, encoding="utf-8"), os.fdopen(status)
        self.pid, self.returncode = int(self._status.readline()), None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def communicate(self) -> tuple[str, None]:
        said = self.stdout.read()
        self.stdout.close()
        self.wait()
        return said, None


class Zygote:
    """The process that commands are forked off, and below it the one of `shim`. One for a session of tests."""

    def __init__(self, folder: Path):
        self.link, other = socket.socketpair()
        address, self.python = folder / "forks", folder / "python"
        self.python.write_text(shim.PYTHON.format(python=sys.executable, shim=shim.__file__, address=address))
        self.python.chmod(0o755)
        from pipelines import services

        # Prefect makes its loggers when it is imported; its home is each command's own
        quiet = {key: value for key, value in services.environment().items() if key != "PREFECT_HOME"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(other.fileno()), address], cwd=Path(__file__).parents[2],
            env=os.environ | quiet, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        other.close()

    def start(self, args: list[str], folder: Path, environment: dict[str, str]) -> Command:
        (output, printed), (status, told) = os.pipe(), os.pipe()
        wanted = json.dumps({"args": args, "folder": str(folder), "environment": environment}).encode()
        socket.send_fds(self.link, [len(wanted).to_bytes(4, "big") + wanted], [printed, told])
        os.close(printed)
        os.close(told)
        return Command(output, status)

    def end(self) -> None:
        self.link.close()
        self.process.wait()


def serve(link: socket.socket, address: str) -> None:
    """Fork a command for each request, until the tests hang up. Returns in the command's process only."""
    import dvc.repo
    import dvc.repo.reproduce
    import dvc.repo.status  # noqa: F401
    import lightning.pytorch.strategies  # noqa: F401
    import mlflow.pytorch
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    if os.fork() == 0:  # before anything of ours is imported: a lab has its own copy of it
        link.close()
        gc.freeze()
        return shim.serve(address)
    import pipelines.flow  # noqa: F401

    gc.freeze()  # a collection in a command would touch, and so copy, every page of what was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing behind
    while True:
        start, fds, _, _ = socket.recv_fds(link, 4, 2)
        if not start:
            os._exit(0)
        wanted = b""
        while len(wanted) < int.from_bytes(start, "big"):
            wanted += link.recv(int.from_bytes(start, "big") - len(wanted))
        if os.fork() == 0:
            link.close()
            if keep(*fds):
                return become(**json.loads(wanted))
        for fd in fds:
            os.close(fd)


def keep(printed: int, told: int) -> bool:
    """Fork the command and wait for it; True in its own process, whose output goes to `printed`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(told)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.close(printed)
        return True
    os.close(printed)
    os.write(told, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # a test that failed doesn't wait
        os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(args: list[str], folder: str, environment: dict[str, str]) -> None:
    """The command, as its script runs it."""
    import prefect.context

    from pipelines import cli, services

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for key, value in services.environment().items():  # Prefect reads its settings when it is imported, which has been
        os.environ.setdefault(key, value)
    with warnings.catch_warnings(action="ignore"):  # its folder is made when a flow begins
        prefect.context.refresh_global_settings_context()
    random.seed()  # or all flows would be called the same
    sys.argv, sys.executable = ["sesame", *args], environment.get(PYTHON, sys.executable)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.app()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
