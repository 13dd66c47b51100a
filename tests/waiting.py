"""Waits for what other processes do."""

import math
import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = math.inf) -> None:
    """Wait, as long as pytest-timeout lets a slow machine; `seconds` are for what has to be quick."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
