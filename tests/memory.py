"""Memory of a computation, as a CPU's allocator counts it."""

from collections.abc import Callable

import torch


def peak_bytes(step: Callable[[], None]) -> int:
    """The most that a step has allocated at once, beside what was there before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    now = most = 0
    for event in profiled.profiler.kineto_results.events():
        now += event.nbytes() if event.name() == "[memory]" else 0
        most = max(most, now)
    return most
