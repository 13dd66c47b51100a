"""`python -m dvc ...` and `python -m components.<stage> ...`, forked off one process that has imported DVC, torch, Lightning and MLflow.

A `python` of our own is the `sys.executable` of a flow and stands first in its PATH: these two commands it hands to that process, by this
file, with its folder, environment and outputs, and ends as they end; anything else it runs with the true interpreter. For flows that are
not killed: what is forked is no child of the flow, and the system does not show the flow's environment for it.
"""

import json
import os
import signal
import socket
import sys

PYTHON = """#!/bin/sh
case "$1:$2" in
    -m:dvc | -m:components.*) exec {python} -I -S {shim} {address} "$@" ;;
esac
exec {python} "$@"
"""


def ask(address: str, args: list[str]) -> int:
    """Have a command forked, and wait for it; its exit status."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(address)
    wanted = json.dumps({"args": args, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    socket.send_fds(link, [len(wanted).to_bytes(4, "big") + wanted], [1, 2])
    replies = link.makefile()
    pid = int(replies.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: os.kill(pid, received))
    return int(replies.readline())


def serve(address: str) -> None:
    """Fork a command for each that asks, as long as the parent lives. Returns in the command's process only."""
    listening, parent = socket.socket(socket.AF_UNIX), os.getppid()
    listening.bind(address)
    listening.listen(64)
    listening.settimeout(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing behind
    while os.getppid() == parent:
        try:
            link, _ = listening.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listening.close()
            keep(link)
            return
        link.close()
    os._exit(0)


def keep(link: socket.socket) -> None:
    """Fork the command and wait for it. Returns in the command's process, which is set up as it asked to be."""
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
        return become(**json.loads(wanted))
    link.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(args: list[str], folder: str, environment: dict[str, str]) -> None:
    """The module `args` name, run as the interpreter would."""
    import random
    import runpy

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.stdout.reconfigure(line_buffering=True)
    sys.executable, sys.path[0] = os.path.join(environment["PATH"].split(os.pathsep)[0], "python"), folder
    _, module, *rest = args
    sys.argv = ["-m", *rest]
    if module.startswith("components."):
        __import__("components")  # it looks at the place of the name, which is not known before the module is found
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
