"""Servers that `sesame up` starts answer their own page and programs on this machine, not other web pages.

Prefect and MLflow answer whatever page a question comes from, MLflow those of this machine's other servers. A page that a user happens
to visit could so read and change runs, and start some under `sesame serve`. The check stands before the servers: their own settings of
allowed origins only hide answers.
"""

import os
import signal
import time
from threading import Thread
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from pipelines.machines.services import PAGES

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
LOOK_SECONDS = 60.0
"""Between two looks for the log."""


class OwnPageOnly:
    """Refuses what a browser sends on behalf of another page (`Origin`), or to a name that was bent to this machine (`Host`)."""

    def __init__(self, app: ASGIApp):
        self.app, self.pages = app, set(os.environ[PAGES].split(","))
        Thread(target=end_when_forgotten, daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._welcome(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="not from this page")(scope, receive, send)
        else:
            await PlainTextResponse("This server answers its own page and programs on this machine.\n", 403)(scope, receive, send)

    def _welcome(self, headers: Headers) -> bool:
        # programs name no origin; browsers do, except for visits, and for what a page shows of others: `cross-site`
        origin = headers.get("origin")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return False
        return urlsplit(f"//{headers.get('host', '')}").hostname in LOOPBACK and (origin is None or origin in self.pages)


def end_when_forgotten() -> None:
    """End this process when the log that it writes to is deleted, as where somebody removes `.sesame`: `sesame down` would not find it."""
    while os.fstat(1).st_nlink:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def mlflow() -> ASGIApp:
    """MLflow's app behind the check: `mlflow server --app-name sesame`, an entry point of pyproject.toml."""
    from mlflow.server.fastapi_app import app

    return OwnPageOnly(app)
