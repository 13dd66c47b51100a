"""Prefect's server as `sesame up` starts it: for its own page and for programs on this machine, with SQLite in turns.

On SQLite its transactions read first and write later, which SQLite refuses at once where another one writes. Prefect answers 503,
upon which its clients wait for seconds. Here they take turns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from prefect.server.api import server
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import provide_database_interface, set_database_config
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from starlette.types import ASGIApp

from pipelines.machines.mlflow_app import OwnPageOnly


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
    return OwnPageOnly(for_network())


def for_network() -> ASGIApp:
    """For whoever reaches it, in place of `prefect server start`: with a password, by PREFECT_SERVER_API_AUTH_STRING."""
    database = provide_database_interface().database_config
    if isinstance(database, AioSqliteConfiguration):
        set_database_config(SqliteInTurns(database.connection_url))
    return server.create_app()
