"""Noticing that a flow run was cancelled, on Prefect's page or by the flow that sent a stage; and switching off
Prefect's heartbeats."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

EVERY = 2.0
"""Seconds between two looks."""


@contextmanager
def when_cancelled(then: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that is set, and `then` called, when this flow run is cancelled. Prefect itself tells only runs in a
    pool, and misses the cancel when the worker's clock is ahead of the server's."""
    cancelled, over = threading.Event(), threading.Event()
    run_id = flow_run.id

    def watch() -> None:
        with get_client(sync_client=True) as client:
            while not cancelled.is_set() and not over.wait(EVERY):
                with suppress(Exception):  # a server that is away for a moment can't cancel
                    state = client.read_flow_run(run_id).state
                    if state and (state.is_cancelling() or state.is_cancelled()):
                        cancelled.set()
        if cancelled.is_set():
            then()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield cancelled
    finally:
        over.set()


def without_heartbeats() -> AbstractContextManager:
    """No signs of life of the flow run itself, which nobody here looks for: the thread that gives them is waited for at the end, up to a
    second."""
    return temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
