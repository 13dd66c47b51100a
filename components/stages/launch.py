"""A training on several machines: who starts its processes, and how the machines find and check each other.

DVC runs a stage on one node, the head. There `processes` does not train, but starts those that do by the launcher that the block names:
torchrun's agent or `srun`. The command is the stage's own, so DVC's hash of it says nothing of launchers. On every other node `sesame join
HEAD:PORT` asks the head what it trains, refuses where commit, code, settings or inputs are other ones here, and runs an agent, too.

All that the nodes tell each other goes through one store of torch's at HEAD:PORT, which the head's process has: what is trained, torchrun's
rendezvous, and that a training has failed for good. Nobody who reaches that port is asked for a password: it is for a network of one's own.
"""

import ctypes
import hashlib
import ipaddress
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import psutil
import torch
from torch.distributed import DistError, TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousError, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from components import params as params_file
from components.core import tracking
from components.core.errors import SesameError, Unreachable, one_line
from components.core.processes import LAUNCHED, rank_zero
from components.core.storage import reading
from components.params import Params, Running
from components.stages import registry

HEAD = "SESAME_HEAD"
"""In the environment: HOST:PORT of the head; before the settings' on the head itself, and told to every process that trains."""
PORT = 29400
TRAINING, OVER, JOINED, HEARD = "sesame/training", "sesame/over", "sesame/joined", "sesame/heard"
"""Keys of the store: what the head trains; why nobody needs to try again; how many nodes have joined, and have heard of the end."""
AFTERWARDS = 3.0
"""Seconds that a head whose training has failed or was stopped stays, so that the others hear of it."""
JOINER = "~"
"""What the address of a node that joins begins with. It is behind every letter: torchrun numbers nodes in the order of their addresses, and
the first has to be the head."""
FRESH = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""A store of their own for the processes of each attempt: in the agent's, torch 2.13 would let one that begins again
find the addresses that the others had in the attempt before, and fail by them."""
LAST_CALL = 5.0
"""Seconds that further nodes are waited for when the fewest that do are there."""
PATIENCE = 20.0
"""Seconds that a store gets to answer."""
PR_SET_PDEATHSIG = 1


class Gone(SesameError):
    """The head can't be reached any more: its training may be begun again."""


class Done(Exception):
    """The training was finished while this node was about to begin again."""


def processes(all_params: Params, stage: str, section: str, name: str, reads: list[Path]) -> None:
    """Returns in a process that is to train. In the one that DVC started it starts those, waits for them, and exits as they did.

    Raises SesameError where this can't be a head.
    """
    if LAUNCHED in os.environ:
        # an agent that is killed with -9 takes nobody along: its processes would train on, and write, beside those of the next attempt
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.environ[LAUNCHED] == "slurm":
            _task()
        return
    run: Running = getattr(all_params, section)[name].run
    command = [sys.executable, "-m", f"components.{stage}", name]
    if run.launcher == "slurm":
        _srun(run, command)
    label = f"{stage}@{name}"
    training = {"stage": stage, "section": section, "name": name, "attempt": secrets.token_hex(8), "command": command[1:]}
    lead(label, run, training | described(all_params, stage, section, name, [str(path) for path in reads]))
    sys.exit(0)


def per_node(run: Running) -> int:
    """Processes of a node."""
    if run.devices != "auto":
        return run.devices
    return max(1, torch.cuda.device_count()) if run.accelerator != "cpu" else 1


def _srun(run: Running, command: list[str]) -> NoReturn:
    """Have `srun` start the processes, one for each device of each node of the job, wait for them, and exit as the first that failed."""
    if "SLURM_JOB_ID" not in os.environ:
        raise SesameError(
            "run.launcher slurm: not inside a Slurm job; start `sesame run` in one (sbatch, salloc), or take torchrun"
        )
    if (have := int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))) < run.num_nodes:
        raise SesameError(f"run.num_nodes {run.num_nodes}: the Slurm job has {have}; ask for more (--nodes)")
    if (srun := shutil.which("srun")) is None:
        raise SesameError("run.launcher slurm: srun is not in the PATH of this node; add it, or take torchrun")
    each, stopped = per_node(run), []
    # without a number of tasks it takes the job's, and leaves that of a node out of account
    options = [f"--nodes={run.num_nodes}", f"--ntasks={run.num_nodes * each}", f"--ntasks-per-node={each}", "--kill-on-bad-exit=1"]
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with _environment({LAUNCHED: "slurm", HEAD: f"{socket.gethostname()}:{store.port}"}):
        child = subprocess.Popen([srun, *options, *command], start_new_session=True)  # it would ask for a second Ctrl-C

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        child.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    status = child.wait()
    if stopped:
        if stopped[0] == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + stopped[0])
    over = _over(store)  # `srun` itself exits with the highest status, and it is higher of those that it had to kill
    sys.exit(over["status"] if over and over["status"] else status if status >= 0 else 128 - status)


def _task() -> None:
    """Prepare a process that `srun` has started: where it meets the others, and that it ends when it is to end."""
    from lightning.pytorch.plugins.environments import SLURMEnvironment
    from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector

    host, port = os.environ["SLURM_SRUN_COMM_HOST"], os.environ[HEAD].rpartition(":")[2]
    os.environ[HEAD] = f"{host}:{port}"  # an address, which needs no name
    os.environ |= _interface(os.environ[HEAD])
    # Lightning's own are the first of the job's nodes, which need not be one of this step, and a port for all steps of the job
    job, step, nodes = (os.environ[f"SLURM_{key}"] for key in ("JOB_ID", "STEP_ID", "STEP_NODELIST"))
    os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(nodes))
    os.environ.setdefault("MASTER_PORT", str(15000 + (int(job) + 1000 * int(step)) % 10000))
    # its handler of SIGTERM would have all tasks agree, in the middle of whatever they send each other, and hang
    _SignalConnector.register_signal_handlers = lambda _: None
    if not rank_zero():  # it writes nothing that is to be tidied up, and Python would hear of the signal when torch has done waiting
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        try:
            connected = socket.create_connection((host, int(port)), PATIENCE)
        except OSError:  # between these nodes the port is closed: what says nothing can't be missed
            return
        with suppress(OSError), connected:
            connected.settimeout(None)
            connected.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()  # Slurm lets a task go on when `srun` and who started it are killed


# What must be the same on all nodes


def described(all_params: Params, stage: str, section: str, name: str, reads: list[str]) -> dict[str, Any]:
    """Of a training all that its nodes must agree on."""
    return {
        "commit": tracking.git_commit().removesuffix("-dirty"),  # what is not committed is seen in code and settings
        "code": registry.entry(all_params, stage, name).code,
        "settings": tracking.flatten({section: {name: getattr(all_params, section)[name].model_dump(mode="json")}}),
        "torch": torch.__version__,
        "inputs": {path: content(Path(path)) for path in reads},
    }


def content(path: Path) -> str:
    """A hash of a file, or of all in a folder, their names included; empty where there is nothing."""
    digest = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path] if path.exists() else []
    for file in files:
        with reading(file), file.open("rb") as opened:
            digest.update(f"{file.relative_to(path)} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest() if files else ""


def check(own: dict[str, Any], told: dict[str, Any], head: str) -> None:
    """Raises SesameError with the first thing in which this node differs from the head."""
    if own["commit"] != told["commit"]:
        raise SesameError(f"{head} trains with commit {told['commit'][:12]}, here is {own['commit'][:12] or 'none'}: check that out first")
    for key in sorted(own["settings"].keys() | told["settings"].keys()):
        here, there = own["settings"].get(key), told["settings"].get(key)
        if json.dumps(here) != json.dumps(there):
            raise SesameError(f"{head} trains with {key} {there}, in params.yaml here it is {here}: make the files the same")
    if own["code"] != told["code"]:
        raise SesameError(
            f"{head} runs other code than this node, though the commit is the same: commit the changes on both nodes"
        )
    if own["torch"] != told["torch"]:
        raise SesameError(f"{head} has torch {told['torch']}, here is {own['torch']}: install the same (`make install`)")
    for path, hashed in told["inputs"].items():
        if not own["inputs"][path]:
            raise SesameError(
                f"{path} is missing on this node: bring it from {head} (`dvc push` there, `dvc pull {path}` here)"
            )
        if own["inputs"][path] != hashed:
            raise SesameError(
                f"{path} differs from the file on {head}: `dvc push` there, and here `dvc pull --force {path}`"
            )


# torchrun


def lead(label: str, run: Running, training: dict[str, Any]) -> None:
    """Be the head of a training, until it is done. Raises SesameError where it can't be, or has failed."""
    host, port = _address(os.environ.get(HEAD) or run.rendezvous.head or f"{socket.gethostname()}:{PORT}")
    store = _open(host, port)
    store.set(TRAINING, json.dumps(training))
    others = run.num_nodes - 1
    if others:
        print(f"{label}: waits for {others} node{'s' * (others > 1)}; there: sesame join {host}:{port}", flush=True)

    def stopped(number: int, _: object) -> NoReturn:
        _end(store, SesameError(f"{label} was stopped on {host}"))  # first: the processes here may take a while to end
        raise SignalException(label, signal.Signals(number))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopped)
    try:
        _agent(f"{host}:{port}", run, training, host)
    except BaseException as error:  # of whatever kind: nobody is to wait for this head
        _end(store, error if isinstance(error, SesameError) else SesameError(f"{label} has failed on {host}"))
        end = time.monotonic() + AFTERWARDS
        while store.add(HEARD, 0) < store.add(JOINED, 0) and time.monotonic() < end:
            time.sleep(0.1)
        raise


def join(head: str, seconds: float, say: Any = print) -> None:
    """Take part in the training of a head, until that is done. A head that goes away is waited for again.

    Raises SesameError where there is none for so long, where it trains something else than what is here, or where the training failed.
    """
    host, port = _address(head)
    while True:
        store = _reach(host, port, seconds)
        training = _told(store, head)
        all_params = params_file.load()
        section, name = training["section"], training["name"]
        if name not in getattr(all_params, section):
            raise SesameError(f"{head} trains {section}.{name}, which params.yaml here does not know: make the files the same")
        check(described(all_params, training["stage"], section, name, list(training["inputs"])), training, head)
        run: Running = getattr(all_params, section)[name].run
        say(f"joined {training['stage']}@{name} of {head} with {per_node(run)} process{'es' * (per_node(run) > 1)}")
        try:
            return _agent(head, run, training, f"{JOINER}{socket.gethostname()}")
        except Gone:
            say(f"{head} went away; waits for it")


def tell(error: SesameError | None) -> None:
    """Have all nodes know that to try again is of no use: the training has failed for good, or, with None, is done. A process that trains
    says so of itself, and ends. (Under Slurm they all end with it, and it is told for the exit code.)"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # an agent that hears of it stops who is about to go
    if isinstance(error, Unreachable):
        return
    with suppress(DistError):  # the head is gone, and nobody is left to tell
        host, port = _address(os.environ[HEAD])
        _end(TCPStore(host, port, timeout=timedelta(seconds=PATIENCE)), error)


def _end(store: TCPStore, error: SesameError | None) -> None:
    """Whoever says it first is right."""
    store.compare_set(OVER, "", json.dumps({"line": str(error), "status": error.status} if error else {"line": "", "status": 0}))


def _over(store: TCPStore) -> dict[str, Any] | None:
    return json.loads(store.get(OVER)) if store.check([OVER]) else None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SesameError(f"{text!r} is not the address of a head; write HOST:PORT, e.g. 10.0.0.1:{PORT}")
    return host, int(port)


def _open(host: str, port: int) -> TCPStore:
    """The head's store. Raises SesameError where the port is taken, or the host is no name of this machine."""
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise SesameError(f"run.rendezvous.head: {host} can't be found ({error.strerror}); name this node as others reach it") from None
    try:
        with socket.create_server(("", port)):  # torch says the same in a page
            pass
        return TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE))
    except OSError as error:
        raise SesameError(f"run.rendezvous.head: port {port} is taken on this node ({error.strerror}); name another one") from None
    except DistError:
        raise SesameError(f"run.rendezvous.head: this node can't be reached as {host}:{port}; name it as others do") from None


def _reach(host: str, port: int, seconds: float) -> TCPStore:
    """The head's store, when it is there. Raises SesameError where it is not for so long."""
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), timeout=5) as connected:
                _greet(connected, f"{host}:{port}")
            store = TCPStore(host, port, timeout=timedelta(seconds=PATIENCE))
            _impatient(port)
            return store
        except (OSError, DistError) as error:
            if time.monotonic() > end:
                raise SesameError(
                    f"{host}:{port} can't be reached for {seconds:g} s ({one_line(error)}); does the training run there?"
                ) from None
        time.sleep(0.5)


def _greet(connected: socket.socket, head: str) -> None:
    """Ask as torch's store asks (TCPStoreBackend.hpp): of what is none it would show its stack, and wait for ever where nothing is said.
    Raises SesameError where something else answers."""
    connected.sendall(struct.pack("=BIBI", 0, 0x3C85F7CE, 13, 2**16 + 1))  # a client; ping, with a number that is to come back
    answer = connected.recv(4, socket.MSG_WAITALL)
    if not answer:
        raise ConnectionError("the connection is closed at once")
    if answer != struct.pack("=I", 2**16 + 1):
        raise SesameError(f"{head} answers, but is no head of a training")


def _told(store: TCPStore, head: str) -> dict[str, Any]:
    try:
        return json.loads(store.get(TRAINING))
    except (DistError, ValueError):
        raise SesameError(f"{head} answers, but is no head of a training") from None


class Meeting:
    """torchrun's rendezvous, which ends as soon as somebody has said that the training is over."""

    def __init__(self, store: TCPStore, parameters: RendezvousParameters):
        self.store = store
        self.handler = create_handler(store, C10dRendezvousBackend(store, parameters.run_id), parameters)
        self.joins, self.heard, self.alive = parameters.local_addr.startswith(JOINER), None, 0
        store.add(JOINED, int(self.joins))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)

    def get_backend(self) -> str:
        return "sesame"

    def over(self) -> dict[str, Any] | None:
        """What was said of the end. It is kept: the head does not wait for the processes of this node."""
        if self.heard is None and (said := _over(self.store)):
            self.heard = said
            self.store.add(HEARD, int(self.joins))
        return self.heard

    def next_rendezvous(self) -> RendezvousInfo:
        if over := self.over():
            raise _failure(over["line"], over["status"]) if over["status"] else Done
        self.alive = 0
        return self.handler.next_rendezvous()

    def num_nodes_waiting(self) -> int:
        """Of which one is enough to stop what trains: it may hang where others have failed, and is to end in peace where it is done.

        A node that gives no sign of life any more counts, too: nobody else would ever hear of a power cut.
        """
        if over := self.over():
            return bool(over["status"])
        waiting, alive = self.handler.num_nodes_waiting(), len(self.handler._state_holder.state.participants)
        lost, self.alive = alive < self.alive, max(alive, self.alive)
        return waiting or lost


def _meeting(parameters: RendezvousParameters) -> Meeting:
    host, port = _address(parameters.endpoint)
    store = TCPStore(host, port, timeout=timedelta(seconds=PATIENCE))
    _impatient(port)
    return Meeting(store, parameters)


def _impatient(port: int) -> None:
    """Have the system end this process' connections to a head that was cut off: torch would wait for its answer for ever."""
    options = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: int(PATIENCE * 1000)}
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port:
            with socket.socket(fileno=os.dup(connection.fd)) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in options.items():
                    own.setsockopt(socket.IPPROTO_TCP, option, value)


def _interface(head: str) -> dict[str, str]:
    """By which network this node and the others reach each other, for gloo: it takes that of the machine's name, often 127.0.1.1."""
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        family, kind, _, _, address = socket.getaddrinfo(*_address(head), type=socket.SOCK_DGRAM)[0]
        with suppress(OSError), socket.socket(family, kind) as there:
            there.connect(address)  # which sends nothing
            own = there.getsockname()[0]
            for name, addresses in psutil.net_if_addrs().items():
                if any(other.address == own for other in addresses) and not ipaddress.ip_address(own).is_loopback:
                    return {"GLOO_SOCKET_IFNAME": name}
    return {}


def _agent(head: str, run: Running, training: dict[str, Any], own: str) -> None:
    """Start this node's processes, and again when there is need, until all are done. Raises SesameError where they have failed."""
    rendezvous, nodes = run.rendezvous, run.rendezvous.min_nodes or run.num_nodes
    signals = "SIGHUP,SIGQUIT" if not own.startswith(JOINER) else "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # the head tells the others first
    with suppress(ValueError):  # `join` comes here more than once
        rendezvous_handler_registry.register("sesame", _meeting)
    for logger in logging.root.manager.loggerDict:
        if logger.startswith("torch.distributed.elastic"):  # what matters of it is said below in a line
            logging.getLogger(logger).setLevel(logging.CRITICAL)
    with TemporaryDirectory(prefix="sesame-") as logs, _environment({LAUNCHED: "torchrun", HEAD: head, FRESH: "1"} | _interface(head)):
        config = LaunchConfig(
            min_nodes=nodes, max_nodes=run.num_nodes, nproc_per_node=per_node(run), run_id=training["attempt"],
            max_restarts=rendezvous.restarts, rdzv_backend="sesame", rdzv_endpoint=head, local_addr=own,
            rdzv_configs={
                "join_timeout": int(rendezvous.wait) or 1, "last_call_timeout": LAST_CALL,
                "keep_alive_interval": 2, "keep_alive_max_attempt": 5,
            },
            monitor_interval=0.2, shutdown_timeout=10, signals_to_handle=signals, logs_specs=DefaultLogsSpecs(logs),
        )  # fmt: skip
        try:
            launch_agent(config, sys.executable, training["command"])
        except Done:
            return
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            raise _failed(failure.exitcode, rendezvous.restarts) from None
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            sys.exit(128 + error.sigval)
        except (RendezvousConnectionError, DistError) as error:
            raise Gone(f"{head} went away ({one_line(error)})") from None
        except RendezvousError:
            raise Unreachable(f"waited {rendezvous.wait:g} s for {nodes} nodes at {head}, and they did not come") from None


def _failure(line: str, status: int) -> SesameError:
    error = SesameError(line)
    error.status = status
    return error


def _failed(status: int, restarts: int) -> SesameError:
    said = f"ended with {status}" if status >= 0 else f"was killed ({signal.Signals(-status).name})"
    return SesameError(f"one of its processes {said}, and {restarts} restarts did not help; see its output above")


@contextmanager
def _environment(more: dict[str, str]):
    os.environ |= more
    try:
        yield
    finally:
        for key in more:
            del os.environ[key]
