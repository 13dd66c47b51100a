"""A training on several machines: who starts its processes, and how the machines find and check each other.

DVC runs a stage on one node, the head. There `processes` does not train: it starts the processes that do, by the launcher
of `run` in params (torchrun's agent or `srun`). The command is that of the stage, so that DVC's hash of it does not depend
on the launcher. On every other node `sesame join HEAD:PORT` asks the head what it trains. It refuses if commit, code,
settings or inputs differ here (`agreement`), and otherwise runs an agent, too (`agent`).

All that the nodes exchange goes through one TCPStore of torch at HEAD:PORT (`store`): what is trained, torchrun's
rendezvous, and that a training has ended. The port asks for no password: it is for a private network.
"""

import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed import DistError, TCPStore
from torch.distributed.elastic.multiprocessing import SignalException

from components import params as params_file
from components.core.errors import SesameError, Unreachable
from components.core.processes import LAUNCHED
from components.params import Params, Running
from components.stages.launch.agent import JOINER, processes_per_node, run_agent
from components.stages.launch.agreement import check_same, description
from components.stages.launch.slurm import prepare_task, run_srun
from components.stages.launch.store import (
    HEAD,
    HEARD,
    JOINED,
    PATIENCE,
    PORT,
    TRAINING,
    HeadGone,
    announce_end,
    open_store,
    parsed_address,
    reach_store,
    training_of,
)

AFTERWARDS = 3.0
"""Seconds that a head whose training has failed or was stopped stays, so that the others hear of it."""
PR_SET_PDEATHSIG = 1


def processes(all_params: Params, stage: str, section: str, name: str, reads: list[Path]) -> None:
    """Start the processes that train, wait for them, and exit with their status. In a process that is to train: return.

    Raises SesameError if this node can't be the head.
    """
    if LAUNCHED in os.environ:
        # without it, processes of an agent that is killed by -9 would train on, and write next to those of the next attempt
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.environ[LAUNCHED] == "slurm":
            prepare_task()
        return
    run: Running = getattr(all_params, section)[name].run
    command = [sys.executable, "-m", f"components.{stage}", name]
    if run.launcher == "slurm":
        run_srun(run, command)
    label = f"{stage}@{name}"
    training = {"stage": stage, "section": section, "name": name, "attempt": secrets.token_hex(8), "command": command[1:]}
    lead(label, run, training | description(all_params, stage, section, name, [str(path) for path in reads]))
    sys.exit(0)


def lead(label: str, run: Running, training: dict[str, Any]) -> None:
    """Be the head of a training until it is done. Raises SesameError if that is not possible, or the training failed."""
    host, port = parsed_address(os.environ.get(HEAD) or run.rendezvous.head or f"{socket.gethostname()}:{PORT}")
    store = open_store(host, port)
    store.set(TRAINING, json.dumps(training))
    others = run.num_nodes - 1
    if others:
        print(f"{label}: waits for {others} node{'s' * (others > 1)}; there: sesame join {host}:{port}", flush=True)

    def stopped(number: int, _: object) -> NoReturn:
        announce_end(store, SesameError(f"{label} was stopped on {host}"))  # before the processes here end, which may take a while
        raise SignalException(label, signal.Signals(number))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopped)
    try:
        run_agent(f"{host}:{port}", run, training, host)
    except BaseException as error:  # of any kind: no node is to wait for this head
        announce_end(store, error if isinstance(error, SesameError) else SesameError(f"{label} has failed on {host}"))
        end = time.monotonic() + AFTERWARDS
        while store.add(HEARD, 0) < store.add(JOINED, 0) and time.monotonic() < end:
            time.sleep(0.1)
        raise


def join(head: str, seconds: float, say: Any = print) -> None:
    """Take part in the training of a head until it is done. If the head goes away, wait for it again.

    Raises SesameError if no head answers for so many seconds, if it trains something else than what is here, or if the
    training failed.
    """
    host, port = parsed_address(head)
    while True:
        store = reach_store(host, port, seconds)
        training = training_of(store, head)
        all_params = params_file.load()
        section, name = training["section"], training["name"]
        if name not in getattr(all_params, section):
            raise SesameError(f"{head} trains {section}.{name}, which params.yaml here does not know: make the files the same")
        check_same(description(all_params, training["stage"], section, name, list(training["inputs"])), training, head)
        run: Running = getattr(all_params, section)[name].run
        say(f"joined {training['stage']}@{name} of {head} with {processes_per_node(run)} process{'es' * (processes_per_node(run) > 1)}")
        try:
            return run_agent(head, run, training, f"{JOINER}{socket.gethostname()}")
        except HeadGone:
            say(f"{head} went away; waits for it")


def announce(error: SesameError | None) -> None:
    """Tell all nodes that the training has ended: it failed for good, or, with None, is done. So no node tries again.

    A process that trains calls this as it ends. Under Slurm all processes end with it; there it is for the exit code.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # an agent that learns of the end stops the processes that are still ending
    if isinstance(error, Unreachable):
        return
    with suppress(DistError):  # the head is gone, and with it the store
        host, port = parsed_address(os.environ[HEAD])
        announce_end(TCPStore(host, port, timeout=timedelta(seconds=PATIENCE)), error)
