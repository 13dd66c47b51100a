"""The two servers: Prefect's (API and pages of the runner) and MLflow's. Their state is in .sesame/; `sesame down`
stops them.

A server that the user's environment names (PREFECT_API_URL, an http MLFLOW_TRACKING_URI) is used as it is and never started or stopped.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import requests
from filelock import FileLock

from components.core import tracking
from components.core.errors import SesameError, without_secrets
from components.core.storage import STATE, output
from components.stages.cost import process_start
from pipelines.execution import processes

PATIENCE = 600
"""Seconds that a server which lives gets to come up: ten are usual, and a busy or throttled machine needs minutes."""
QUIET = 20
"""Seconds of them that pass without a word."""
PAGES = "SESAME_PAGES"
"""In the environment of a server of ours: the addresses under which its page may be open, with a comma between them."""


@dataclass(frozen=True)
class Service:
    """A server of ours: `variable` names another one to be used in its place."""

    name: str
    variable: str
    port: int
    api: str
    """What follows the page's address in the address of its API."""


PREFECT = Service("prefect", "PREFECT_API_URL", 4200, "/api")
MLFLOW = Service("mlflow", "MLFLOW_TRACKING_URI", 5000, "")
SERVICES = (PREFECT, MLFLOW)


def command(service: Service, port: int) -> tuple[list[str], dict[str, str]]:
    """How a server of ours is started, and what only it gets to know: an address may hold a password, and all users see a command."""
    place = ["--host", "127.0.0.1", "--port", str(port)]
    pages = [f"http://{host}:{port}" for host in ("127.0.0.1", "localhost")]
    if service is PREFECT:
        # the page asks port 4200 unless it is told, where another checkout's server may be
        variables = {
            "PREFECT_SERVER_UI_API_URL": pages[0] + PREFECT.api,
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(pages),
        }
        variables |= {PAGES: ",".join(pages), "PREFECT__SERVER_FINAL": "1"}
        return [
            sys.executable, "-m", "uvicorn", "--factory", "pipelines.machines.prefect_server:create_app", *place,
        ], variables  # fmt: skip
    tracking.connected()  # its tables are made here, once, and not by the server's workers at the same time
    variables = {
        "MLFLOW_BACKEND_STORE_URI": tracking.uri(),
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": Path("mlartifacts").resolve().as_uri(),
    }
    variables |= {PAGES: ",".join(pages)}
    return [sys.executable, "-m", "mlflow", "server", *place, "--workers", "1", "--app-name", "sesame"], variables


def environment() -> dict[str, str]:
    """Settings of our Prefect and MLflow, servers and clients: state inside the checkout, no analytics, a quiet terminal."""
    return {
        "PREFECT_HOME": str((STATE / "prefect").resolve()),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        # three tries of 10 s: a server on a machine at its limit may need 20 s for an answer, and by Prefect's defaults
        # a flow ends minutes after its server is gone or has fallen silent
        "PREFECT_CLIENT_MAX_RETRIES": "2",
        "PREFECT_API_REQUEST_TIMEOUT": "10",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }


def foreign(service: Service) -> str | None:
    """The page of the server that the user's environment names. Raises SesameError for an address that can't be one of Prefect's."""
    url = os.environ.get(service.variable, "")
    if service is PREFECT and url and not url.startswith(("http://", "https://")):
        raise SesameError(
            f"{service.variable}: {url!r} is not the address of a server; write it as http://HOST:PORT/api, or unset it"
        )
    return url.rstrip("/").removesuffix(service.api) if url.startswith(("http://", "https://")) else None


def _ours() -> dict[str, dict]:
    """Our servers that live: name -> pid, created, page."""
    with suppress(FileNotFoundError, ValueError):
        return {name: entry for name, entry in json.loads((STATE / "services.json").read_text()).items() if _lives(entry)}
    return {}


def _lives(entry: dict) -> bool:
    with suppress(psutil.Error, FileNotFoundError):
        return process_start(entry["pid"]) == entry["created"] and psutil.Process(entry["pid"]).status() != psutil.STATUS_ZOMBIE
    return False


def _write(entries: dict[str, dict]) -> None:
    with output(STATE / "services.json") as path:
        path.write_text(json.dumps(entries, indent=1) + "\n")


def healthy(service: Service, page: str, tries: int = 1, patience: int = 30) -> bool:
    """Whether the server answers: a busy one takes its time, one of somebody else's may ask for a password first."""
    for again in reversed(range(tries)):
        with suppress(requests.RequestException):
            if requests.get(f"{page}{service.api}/health", timeout=(5, patience)).status_code < 500:
                return True
        time.sleep(min(again, 1))
    return False


def _refuses(page: str) -> bool:
    """Whether a Prefect server turns us away, with the password that the environment has, or without."""
    name, _, word = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    with suppress(requests.RequestException):
        answer = requests.get(f"{page}{PREFECT.api}/admin/version", auth=(name, word) if name else None, timeout=(5, 30))
        return answer.status_code in (401, 403)
    return False


def page(service: Service) -> str | None:
    """The address of a service's page, or None when it isn't up."""
    return foreign(service) or _ours().get(service.name, {}).get("page")


def mlflow_run(experiment: str, run_id: str) -> str:
    """Where a run of the ledger is seen; its bare id when no page is up."""
    address = without_secrets(page(MLFLOW) or "")
    return f"{address}/#/experiments/{experiment}/runs/{run_id}" if address else run_id


def up(service: Service) -> str:
    """Have a service up and healthy; the address of its page. Does nothing when it is. Raises SesameError when it doesn't come up."""
    if address := foreign(service):
        if not healthy(service, address, tries=4):  # a busy one refuses now and then
            raise SesameError(f"{service.name}: no server answers at {address} ({service.variable}); start it, or unset {service.variable}")
        if service is PREFECT and _refuses(address):
            place = without_secrets(address)
            raise SesameError(f"{service.name}: the server at {place} asks for a password: set PREFECT_API_AUTH_STRING to user:password")
        return address
    STATE.mkdir(exist_ok=True)
    with FileLock(STATE / "services.lock"):
        entries = _ours()
        if service.name not in entries:
            entries[service.name] = _start(service)
            _write(entries)
        while not _answers(service, entries[service.name]):
            entries[service.name] = _start(service)
            _write(entries)
    return entries[service.name]["page"]


def _start(service: Service) -> dict:
    port = _free(service.port)
    address = f"http://127.0.0.1:{port}"
    started, variables = command(service, port)
    with (STATE / f"{service.name}.log").open("w") as log:
        server = subprocess.Popen(
            started,
            env=os.environ | environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in the terminal isn't meant for it
        )
    return {"pid": server.pid, "created": process_start(server.pid), "page": address}


def _free(port: int) -> int:
    """The port, or another when something listens there."""
    for candidate in (port, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", candidate))
            return probe.getsockname()[1]
    raise SesameError("no free port on 127.0.0.1; stop programs that listen there")


def _answers(service: Service, entry: dict) -> bool:
    """Wait for a server of ours; False where another one took its port at the same moment, as that of a second checkout may.

    Raises SesameError when it doesn't come up.
    """
    begun, log = time.monotonic(), STATE / f"{service.name}.log"
    quiet, end = begun + QUIET, begun + PATIENCE
    while not (listening := _listens(entry)) or not healthy(service, entry["page"]):
        if not _lives(entry) and not listening and healthy(service, entry["page"]):
            return False
        if time.monotonic() > quiet:
            print(f"waiting for {service.name}'s server (its log: {log})", file=sys.stderr, flush=True)
            quiet = end
        if not _lives(entry) or time.monotonic() > end:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise SesameError(
                f"{service.name}: its server doesn't answer at {entry['page']}; {log} ends with: {lines[-1] if lines else '(nothing)'}"
            )
        time.sleep(0.2)
    return True


def _listens(entry: dict) -> bool:
    """Whether it is our process, or one that it has started, that listens at the port of the page."""
    port = urlsplit(entry["page"]).port
    with suppress(psutil.Error):
        ours = psutil.Process(entry["pid"])
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for process in (ours, *ours.children(recursive=True))
            for connection in process.net_connections("tcp")
        )
    return False


def down() -> list[str]:
    """Stop our servers with all they started; the names of those that ran."""
    STATE.mkdir(exist_ok=True)
    with FileLock(STATE / "services.lock"):
        entries = _ours()
        processes.stop([entry["pid"] for entry in entries.values()], processes.FIRM)
        _write({})
    return list(entries)


def status() -> Iterator[tuple[str, str, str]]:
    """(service, state, address) of each."""
    for service in SERVICES:
        address = page(service)
        state = "down" if address is None else "up" if healthy(service, address) else "does not answer"
        yield service.name, state + (f" ({service.variable})" if foreign(service) else ""), without_secrets(address or "")


def use_prefect() -> None:
    """Prefect's server up, and this process set to it. To be called before Prefect is imported, which reads its settings then."""
    address = up(PREFECT)
    (STATE / "prefect").mkdir(parents=True, exist_ok=True)
    for key, value in {**environment(), PREFECT.variable: address + PREFECT.api}.items():
        os.environ[key] = os.environ.get(key) or value
