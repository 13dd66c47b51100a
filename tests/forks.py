"""`sesame` and its stages in processes forked off one that has imported Prefect, DVC, torch, Lightning and MLflow: without the seconds that
these take to import, and otherwise as a shell runs them.

A request comes over a socket: arguments, folder and environment, with the two ends that output goes to. Back come the pid and, in the end,
the exit status. Each command has a keeper, forked between, that waits for it, and kills it should the one who asked be gone.

A flow's own `python -m dvc ...`, its stages, and a sweep's flows can be forked, too (`PYTHON`): a `python` of ours is then the flow's
`sys.executable` and first in its PATH, and hands these on. For flows that are not stopped: what is forked is no
child of the flow, and the system does not show the flow's environment for it. Another `python` has the flows alone forked, that a sweep or
Prefect starts; their stages are real.
"""

import atexit
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PYTHON = "SESAME_TEST_PYTHON"
"""In the environment of a command: the interpreter that it starts others with, if not its own."""
SCRIPT = """#!/bin/sh
case "$1:$2" in
    {stages}) PATH="{folder}:$PATH" exec {python} -I -S {forks} {folder}/stages "$@" ;;
    -m:pipelines.cli | -m:prefect.engine) exec {python} -I -S {forks} {folder}/commands "$@" ;;
esac
exec {python} "$@"
"""


class Command:
    """A command that runs, with what the tests use of `subprocess.Popen`."""

    def __init__(self, address: str, args: list[str], folder: str, environment: dict[str, str], outputs: tuple[int, int] | None = None):
        self.stdout = None
        if outputs is None:
            output, printed = os.pipe()
            self.stdout, outputs = os.fdopen(output, encoding="utf-8"), (printed, printed)
        link = socket.socket(socket.AF_UNIX)
        link.connect(address)
        wanted = json.dumps({"args": args, "folder": folder, "environment": environment}).encode()
        socket.send_fds(link, [len(wanted).to_bytes(4, "big") + wanted], outputs)
        if self.stdout:
            os.close(outputs[0])
        self._told = link.makefile()
        link.close()
        self.pid, self.returncode = int(self._told.readline()), None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def communicate(self) -> tuple[str, None]:
        said = self.stdout.read()
        self.stdout.close()
        self.wait()
        return said, None


def start(folder: Path) -> int:
    """Start the processes that fork for `folder/commands` and `folder/stages`, and write the two `python` that ask them; a pid."""
    import subprocess

    forked = "-m:pipelines.execution.lockfile | -m:dvc | -m:components.*"
    for python, stages in ((folder / "python", forked), (folder / "flows/python", "-")):
        python.parent.mkdir(exist_ok=True)
        python.write_text(SCRIPT.format(stages=stages, python=sys.executable, forks=__file__, folder=folder))
        python.chmod(0o755)
    from pipelines.machines import services

    # Prefect makes its loggers when it is imported; its home is each command's own
    quiet = {key: value for key, value in services.environment().items() if key != "PREFECT_HOME"}
    command = [sys.executable, "-m", "tests.forks", "--serve", folder]
    process = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], env=os.environ | quiet, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    return process.pid


def serve_both(folder: str) -> None:
    """Fork commands and stages, until ended. Returns in a command's process only."""
    import gc
    import inspect
    import logging

    stages, commands, parent = listen(f"{folder}/stages"), listen(f"{folder}/commands"), os.getpid()
    print("ready", flush=True)  # who asks from now on waits until all is imported
    os.dup2(2, 1)

    import dvc.cli.parser  # noqa: F401
    import dvc.repo.reproduce  # noqa: F401
    import dvc.repo.status  # noqa: F401
    import gensim.models  # noqa: F401
    import lightning.pytorch.strategies  # noqa: F401
    import mlflow.pytorch
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
    import ruamel.yaml  # noqa: F401
    import scmrepo.git  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import sqlalchemy.dialects.sqlite  # noqa: F401

    inspect.getmodule(inspect.currentframe())  # it looks for the file of every module: a quarter of what params take to be imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing behind
    logging.getLogger().handlers.clear()  # one of these packages sets up the root logger, which a command has as Python left it
    gc.freeze()  # a collection in a command would touch, and so copy, every page of what was imported
    if os.fork() == 0:  # before anything of ours is imported: a lab has its own copy of it
        commands.close()
        return serve(stages, lambda: os.getppid() == parent, as_module)
    import pipelines.flow  # noqa: F401

    stages.close()
    gc.freeze()
    serve(commands, lambda: True, as_sesame)


def listen(address: str) -> socket.socket:
    """A socket that waits a second at a time for who asks."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    listening.settimeout(1)
    return listening


def serve(listening: socket.socket, wanted: Callable[[], bool], become: Callable[..., None]) -> None:
    """Fork a command for each that asks. Returns in the command's process, when it has ended."""
    while wanted():
        try:
            link, _ = listening.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listening.close()
            return keep(link, become)
        link.close()
    os._exit(0)


def keep(link: socket.socket, become: Callable[..., None]) -> None:
    """Fork the command and wait for it. Returns in the command's process, when it has ended."""
    start, outputs, _, _ = socket.recv_fds(link, 4, 2)
    wanted = b""
    while len(wanted) < int.from_bytes(start, "big"):
        wanted += link.recv(int.from_bytes(start, "big") - len(wanted))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (pid := os.fork()) == 0:
        link.close()
        for stream, output in zip((1, 2), outputs, strict=True):
            os.dup2(output, stream)
            os.close(output)
        return to_the_end(lambda: become(**json.loads(wanted)))
    for output in outputs:
        os.close(output)
    os.setpgid(pid, pid)
    link.sendall(f"{pid}\n".encode())
    threading.Thread(target=kill_if_gone, args=(link, pid), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # a test that failed doesn't wait
        link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def kill_if_gone(link: socket.socket, pid: int) -> None:
    """Wait for who asked for a command to be gone, and end it then."""
    with suppress(OSError):  # it has ended by itself
        link.recv(1)  # none follows
        os.killpg(pid, signal.SIGKILL)


def to_the_end(command: Callable[[], None]) -> None:
    """Run a command and end as the interpreter does, except that nothing is taken apart: that would copy every page of what was imported.
    Returns only to an interpreter that is to end by Ctrl-C."""
    status = 0
    try:
        command()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        raise
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def as_sesame(args: list[str], folder: str, environment: dict[str, str]) -> None:
    """The command, as its script runs it, or a flow that Prefect starts."""
    import random
    import runpy
    import warnings

    import prefect.context

    from pipelines import cli
    from pipelines.machines import services

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for key, value in services.environment().items():  # Prefect reads its settings when it is imported, which has been
        os.environ.setdefault(key, value)
    with warnings.catch_warnings(action="ignore"):  # its folder is made when a flow begins
        prefect.context.refresh_global_settings_context()
    random.seed()  # or all flows would be called the same
    sys.executable = environment.get(PYTHON, sys.executable)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, rest = (args[1], args[2:]) if args[:1] == ["-m"] else ("pipelines.cli", args)
    sys.argv = ["sesame", *rest]
    if module == "pipelines.cli":
        cli.app()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def as_module(args: list[str], folder: str, environment: dict[str, str]) -> None:
    """`python -m ...` or `python -c ...`, as the interpreter runs it."""
    import random
    import runpy

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.stdout.reconfigure(line_buffering=True)
    sys.executable, sys.path[0] = os.path.join(environment["PATH"].split(os.pathsep)[0], "python"), folder
    how, module, *rest = args
    sys.argv = [how, *rest]
    if how == "-c":
        return exec(module, vars(sys.modules["__main__"]))
    if module.startswith("components."):
        __import__("components")  # it looks at the place of the name, which is not known before the module is found
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def hand_on(address: str, args: list[str]) -> int:
    """Have a command or a stage forked, and wait for it; its exit status. Signals are passed on."""
    command = Command(address, args, os.getcwd(), dict(os.environ), (1, 2))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: command.send_signal(received))
    return command.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve_both(sys.argv[2])
    else:
        sys.exit(hand_on(sys.argv[1], sys.argv[2:]))
