"""Energy of a flow by the machine's counters: RAPL (CPU packages and their memory) and NVML (NVIDIA's GPUs).

They count for the whole machine, whatever else it does, so they are shown next to the stages' estimates and never
replace them. RAPL is read if the kernel has it and this user may read it (by default only root); most virtual machines
have none.
"""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
NVML = "libnvidia-ml.so.1"
EVERY = 60.0
"""Seconds between readings: a package's counter begins again after some 262 kJ, which at 1 kW are four minutes."""
CPU, GPU = "cpu", "gpu"


@dataclass
class Counter:
    """One counter; it only grows, but for beginning again at `wraps`."""

    kind: str
    read: Callable[[], int]
    """Raises OSError where it can't be read any more."""
    joules: float
    """Joules of one unit of the counter."""
    wraps: int = 0
    """In its units; 0: never."""


class Meter:
    """Joules since it was made, by kind."""

    def __init__(self, counters: list[Counter]):
        self.joules: dict[str, float] = defaultdict(float)
        self._counters = [(counter, counter.read()) for counter in counters]
        self._lock = threading.Lock()

    def update(self) -> None:
        """Read all counters and add what came since the last reading; one that can't be read any more is left where it was."""
        with self._lock:
            for i, (counter, before) in enumerate(self._counters):
                try:
                    now = counter.read()
                except OSError:
                    continue
                since = (now - before) % counter.wraps if counter.wraps else now - before
                self.joules[counter.kind] += since * counter.joules
                self._counters[i] = counter, now

    def kwh(self, pue: float) -> dict[str, float]:
        """By kind, PUE included; empty without counters."""
        self.update()
        return {kind: pue * joules / 3.6e6 for kind, joules in self.joules.items()}


@contextmanager
def running() -> Iterator[Meter]:
    """A meter that is read often enough for as long as it is open."""
    meter, over = Meter(counters()), threading.Event()

    def watch() -> None:
        while not over.wait(EVERY):
            meter.update()

    if meter._counters:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield meter
    finally:
        over.set()


def counters() -> list[Counter]:
    """Those of this machine that can be read."""
    return [*_rapl(), *_nvml()]


def _rapl() -> Iterator[Counter]:
    """Packages and their DRAM: a package has its cores in it, and `psys` would have the packages in it."""
    for zone in sorted(POWERCAP.glob("intel-rapl:*")):  # AMD's, too
        try:
            name = (zone / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                energy = zone / "energy_uj"
                energy.read_text()
                wraps = int((zone / "max_energy_range_uj").read_text())
                yield Counter(CPU, lambda energy=energy: int(energy.read_text()), 1e-6, wraps)
        except (OSError, ValueError):  # not for this user, or not there
            continue


def _nvml() -> Iterator[Counter]:
    """GPUs of Volta and later, in millijoules."""
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue

        def read(handle: ctypes.c_void_p = handle) -> int:
            energy = ctypes.c_ulonglong()
            if error := nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)):
                raise OSError(f"NVML: error {error}")
            return energy.value

        try:
            read()
        except OSError:
            continue
        yield Counter(GPU, read, 1e-3)


def why_not() -> str:
    """Why this machine measures nothing; empty where it does."""
    if counters():
        return ""
    zones = list(POWERCAP.glob("intel-rapl:*"))
    rapl = f"only root may read RAPL ({zones[0]}/energy_uj)" if zones else f"no RAPL in {POWERCAP}"
    return f"{rapl}, and no NVIDIA GPU whose energy is counted"
