"""The cost of a stage: seconds, tokens, FLOPs, estimated energy and memory."""

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from components.params import Energy, Params


def energy_kwh(energy: Energy, seconds: float, cpu_seconds: float, gib: float, gpus: int) -> float:
    """Estimated energy (Strubell et al. 2019, section 2): busy cores, resident memory and GPUs, times PUE.

    Not measured: the watts are those of `energy` in params.yaml.
    """
    joules = cpu_seconds * energy.watts_per_core + seconds * (gib * energy.watts_per_gib + gpus * energy.watts_per_gpu)
    return energy.pue * joules / 3.6e6


def process_start(pid: int | str = "self") -> float:
    """When a process started, in seconds since the boot of the machine: a clock that, unlike the time of day, is never set."""
    # field 22 of proc(5); the name of the process, in parentheses before it, may hold spaces
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def _seconds_asleep() -> float:
    """How long the machine slept since its boot: CLOCK_BOOTTIME counts this time, CLOCK_MONOTONIC does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


ASLEEP_BEFORE = _seconds_asleep()
"""Sleep before this process began to work. Later sleep is no working time and costs no energy."""


def _processes() -> int:
    """How many processes did the work: those of a training's process group, which lives as long as they do."""
    torch_distributed = sys.modules.get("torch.distributed")  # imported by all that train
    return torch_distributed.get_world_size() if torch_distributed and torch_distributed.is_initialized() else 1


def measured(params: Params, counted: dict[str, Any]) -> dict[str, float]:
    """The cost of a stage: seconds, tokens, flops, kwh, memory_mib, and of what trains gpus. A training with several
    `processes` says how many, and each counts as much as this one, since they do equal work.

    Args:
        counted: What the stage counted itself: tokens, flops, gpus, earlier_seconds (before a resume).
    """
    process, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = _processes()
    cpu_seconds = processes * (process.ru_utime + process.ru_stime + children.ru_utime + children.ru_stime)
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - process_start() - (_seconds_asleep() - ASLEEP_BEFORE)
    # in KiB on Linux; that of children is the largest child's
    gib = processes * max(process.ru_maxrss, children.ru_maxrss) / 2**20
    torch = sys.modules.get("torch")
    if "gpus" not in counted and torch and torch.cuda.is_initialized():  # a training that diverged has counted nothing
        counted = counted | {"gpus": processes}
    kwh = energy_kwh(params.energy, seconds, cpu_seconds, gib, counted.get("gpus", 0))
    earlier = counted.get("earlier_seconds", 0.0)
    if earlier:
        kwh *= (seconds + earlier) / seconds
    return {
        "seconds": round(seconds + earlier, 2), "tokens": counted.get("tokens", 0), "flops": counted.get("flops", 0),
        "kwh": float(f"{kwh:.4g}"), "memory_mib": round(gib * 2**10),
        **{key: counted[key] for key in ("gpus",) if key in counted}, **({"processes": processes} if processes > 1 else {}),
    }  # fmt: skip
