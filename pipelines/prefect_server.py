"""Prefect's server as `sesame up` starts it: for its own page and for programs on this machine, not for other web pages.

Prefect answers whoever asks, whatever page the question comes from. A page that a user happens to visit could so read and change
runs, and start some under `sesame serve`. The check stands before Prefect, whose own setting of allowed origins only hides answers.

On SQLite its transactions read first and write later, which SQLite refuses at once where another one writes. Prefect answers 503,
upon which its clients wait for seconds. Here they take turns.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from urllib.parse import urlsplit

from prefect.server.api import server
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import provide_database_interface, set_database_config
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from pipelines.services import PAGES

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class OwnPageOnly:
    """Refuses what a browser sends on behalf of another page (`Origin`), or to a name that was bent to this machine (`Host`)."""

    def __init__(self, app: ASGIApp, pages: set[str]):
        self.app, self.pages = app, pages

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


class SqliteInTurns(AioSqliteConfiguration):
    """One transaction of this server at a time, which may write from its begin on: none is refused, and none waits inside SQLite,
    where a wait can hold up the thread that all requests share, the one waited for among them, until SQLite gives up after 60 s."""

    def __init__(self, connection_url: str):
        super().__init__(connection_url=connection_url)
        self.turn, self.task = asyncio.Lock(), None

    @asynccontextmanager
    async def begin_transaction(self, session: AsyncSession, with_for_update: bool = False) -> AsyncIterator[AsyncSessionTransaction]:
        inner = self.task is asyncio.current_task()  # which would wait for itself
        async with nullcontext() if inner else self.turn:
            outer, self.task = self.task, asyncio.current_task()
            try:
                async with super().begin_transaction(session, with_for_update=True) as transaction:
                    yield transaction
            finally:
                self.task = outer


def create_app() -> ASGIApp:
    """What `sesame up` starts, for uvicorn's `--factory`, as Prefect's own command starts its server."""
    return OwnPageOnly(for_network(), set(os.environ[PAGES].split(",")))


def for_network() -> ASGIApp:
    """For whoever reaches it, in place of `prefect server start`: with a password, by PREFECT_SERVER_API_AUTH_STRING."""
    database = provide_database_interface().database_config
    if isinstance(database, AioSqliteConfiguration):
        set_database_config(SqliteInTurns(database.connection_url))
    return server.create_app()
