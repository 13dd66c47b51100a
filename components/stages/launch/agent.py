"""torchrun's agent on one node: it starts the processes that train, and again when there is need."""

import ipaddress
import logging
import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

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

from components.core.errors import SesameError, Unreachable, one_line
from components.core.processes import LAUNCHED
from components.params import Running
from components.stages.launch.store import HEAD, HEARD, JOINED, HeadGone, announced_end, connect, parsed_address

JOINER = "~"
"""What the address of a node that joins begins with. It is behind every letter: torchrun numbers nodes in the order of their addresses, and
the first has to be the head."""
FRESH = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""A store of their own for the processes of each attempt: in the agent's, torch 2.13 would let one that begins again
find the addresses that the others had in the attempt before, and fail by them."""
LAST_CALL = 5.0
"""Seconds that further nodes are waited for when the fewest that do are there."""


class AlreadyDone(Exception):
    """The training was finished while this node was about to begin again."""


def processes_per_node(run: Running) -> int:
    """Processes of a node."""
    if run.devices != "auto":
        return run.devices
    return max(1, torch.cuda.device_count()) if run.accelerator != "cpu" else 1


class Rendezvous:
    """torchrun's rendezvous, which ends as soon as the end of the training is announced."""

    def __init__(self, store: TCPStore, parameters: RendezvousParameters):
        self.store = store
        self.handler = create_handler(store, C10dRendezvousBackend(store, parameters.run_id), parameters)
        self.joins = parameters.local_addr.startswith(JOINER)
        self.end: dict[str, Any] | None = None
        self.alive = 0
        store.add(JOINED, int(self.joins))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)

    def get_backend(self) -> str:
        return "sesame"

    def ended(self) -> dict[str, Any] | None:
        """The announced end of the training. It is kept here, since the head does not wait for the processes of this node."""
        if self.end is None and (end := announced_end(self.store)):
            self.end = end
            self.store.add(HEARD, int(self.joins))
        return self.end

    def next_rendezvous(self) -> RendezvousInfo:
        if end := self.ended():
            raise _failure(end["line"], end["status"]) if end["status"] else AlreadyDone
        self.alive = 0
        return self.handler.next_rendezvous()

    def num_nodes_waiting(self) -> int:
        """One waiting node makes the agent restart the training. After an announced failure, say one, since processes
        may hang; after success, none, so that they end by themselves.

        A node that gives no sign of life any more counts, too: nobody else would ever hear of a power cut.
        """
        if end := self.ended():
            return bool(end["status"])
        waiting, alive = self.handler.num_nodes_waiting(), len(self.handler._state_holder.state.participants)
        lost, self.alive = alive < self.alive, max(alive, self.alive)
        return waiting or lost


def _rendezvous(parameters: RendezvousParameters) -> Rendezvous:
    return Rendezvous(connect(*parsed_address(parameters.endpoint)), parameters)


def network_interface(head: str) -> dict[str, str]:
    """By which network this node and the others reach each other, for gloo: it takes that of the machine's name, often 127.0.1.1."""
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        family, kind, _, _, address = socket.getaddrinfo(*parsed_address(head), type=socket.SOCK_DGRAM)[0]
        with suppress(OSError), socket.socket(family, kind) as there:
            there.connect(address)  # which sends nothing
            ip = there.getsockname()[0]
            for name, addresses in psutil.net_if_addrs().items():
                if any(other.address == ip for other in addresses) and not ipaddress.ip_address(ip).is_loopback:
                    return {"GLOO_SOCKET_IFNAME": name}
    return {}


def run_agent(head: str, run: Running, training: dict[str, Any], node: str) -> None:
    """Start this node's processes, and again when there is need, until all are done. Raises SesameError where they have failed."""
    rendezvous, nodes = run.rendezvous, run.rendezvous.min_nodes or run.num_nodes
    # the head tells the others first
    signals = "SIGHUP,SIGQUIT" if not node.startswith(JOINER) else "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    with suppress(ValueError):  # `join` comes here more than once
        rendezvous_handler_registry.register("sesame", _rendezvous)
    for logger in logging.root.manager.loggerDict:
        if logger.startswith("torch.distributed.elastic"):  # what matters of it is said below in a line
            logging.getLogger(logger).setLevel(logging.CRITICAL)
    variables = {LAUNCHED: "torchrun", HEAD: head, FRESH: "1"} | network_interface(head)
    with TemporaryDirectory(prefix="sesame-") as logs, environment(variables):
        config = LaunchConfig(
            min_nodes=nodes, max_nodes=run.num_nodes, nproc_per_node=processes_per_node(run), run_id=training["attempt"],
            max_restarts=rendezvous.restarts, rdzv_backend="sesame", rdzv_endpoint=head, local_addr=node,
            rdzv_configs={
                "join_timeout": int(rendezvous.wait) or 1, "last_call_timeout": LAST_CALL,
                "keep_alive_interval": 2, "keep_alive_max_attempt": 5,
            },
            monitor_interval=0.2, shutdown_timeout=10, signals_to_handle=signals, logs_specs=DefaultLogsSpecs(logs),
        )  # fmt: skip
        try:
            launch_agent(config, sys.executable, training["command"])
        except AlreadyDone:
            return
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            raise _failed(failure.exitcode, rendezvous.restarts) from None
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            sys.exit(128 + error.sigval)
        except (RendezvousConnectionError, DistError) as error:
            raise HeadGone(f"{head} went away ({one_line(error)})") from None
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
def environment(more: dict[str, str]):
    os.environ |= more
    try:
        yield
    finally:
        for key in more:
            del os.environ[key]
