"""The store of torch's at HEAD:PORT, through which all nodes of a training exchange what they have to know."""

import json
import os
import socket
import struct
import time
from datetime import timedelta
from typing import Any

import psutil
from torch.distributed import DistError, TCPStore

from components.core.errors import SesameError, one_line

HEAD = "SESAME_HEAD"
"""In the environment: HOST:PORT of the head; before the settings' on the head itself, and told to every process that trains."""
PORT = 29400
TRAINING, OVER, JOINED, HEARD = "sesame/training", "sesame/over", "sesame/joined", "sesame/heard"
"""Keys of the store: what the head trains; why nobody needs to try again; how many nodes have joined, and have heard of the end."""
PATIENCE = 20.0
"""Seconds that a store gets to answer."""


class HeadGone(SesameError):
    """The head can't be reached any more: its training may be begun again."""


def announce_end(store: TCPStore, error: SesameError | None) -> None:
    """Whoever says it first is right."""
    store.compare_set(OVER, "", json.dumps({"line": str(error), "status": error.status} if error else {"line": "", "status": 0}))


def announced_end(store: TCPStore) -> dict[str, Any] | None:
    return json.loads(store.get(OVER)) if store.check([OVER]) else None


def parsed_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SesameError(f"{text!r} is not the address of a head; write HOST:PORT, e.g. 10.0.0.1:{PORT}")
    return host, int(port)


def open_store(host: str, port: int) -> TCPStore:
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


def reach_store(host: str, port: int, seconds: float) -> TCPStore:
    """The head's store, when it is there. Raises SesameError where it is not for so long."""
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), timeout=5) as connected:
                _greet(connected, f"{host}:{port}")
            return connect(host, port)
        except (OSError, DistError) as error:
            if time.monotonic() > end:
                raise SesameError(
                    f"{host}:{port} can't be reached for {seconds:g} s ({one_line(error)}); does the training run there?"
                ) from None
        time.sleep(0.5)


def _greet(connected: socket.socket, head: str) -> None:
    """Send the first messages of torch's store (TCPStoreBackend.hpp) to see whether one answers: torch itself would
    print a stack trace, or wait for ever. Raises SesameError where something else answers."""
    connected.sendall(struct.pack("=BIBI", 0, 0x3C85F7CE, 13, 2**16 + 1))  # a client; ping, with a number that is to come back
    answer = connected.recv(4, socket.MSG_WAITALL)
    if not answer:
        raise ConnectionError("the connection is closed at once")
    if answer != struct.pack("=I", 2**16 + 1):
        raise SesameError(f"{head} answers, but is no head of a training")


def training_of(store: TCPStore, head: str) -> dict[str, Any]:
    try:
        return json.loads(store.get(TRAINING))
    except (DistError, ValueError):
        raise SesameError(f"{head} answers, but is no head of a training") from None


def connect(host: str, port: int) -> TCPStore:
    """Connect to the head's store, and limit how long its answers are waited for."""
    store = TCPStore(host, port, timeout=timedelta(seconds=PATIENCE))
    limit_waits(port)
    return store


def limit_waits(port: int) -> None:
    """Have the system end this process' connections to a head that was cut off: torch would wait for its answer for ever."""
    options = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: int(PATIENCE * 1000)}
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port:
            with socket.socket(fileno=os.dup(connection.fd)) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in options.items():
                    duplicate.setsockopt(socket.IPPROTO_TCP, option, value)
