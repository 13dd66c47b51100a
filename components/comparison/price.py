"""The cost of runs besides time: devices, CO2e and money, from the `cost` in each stage's metrics.

All of it is *estimated*: the kWh by `stages.cost.energy_kwh` from the watts in params.yaml, and everything derived from them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from components import params
from components.stages import registry

KG_PER_LB = 0.45359237


@dataclass(frozen=True)
class Price:
    """The cost of one or several runs."""

    seconds: float = 0.0
    """Wall clock time, summed over runs."""
    core_hours: float = 0.0
    """Of runs without a GPU, whose price includes its host: at least one core for the duration of a run."""
    gpu_hours: float = 0.0
    flops: float = 0.0
    """Of training."""
    kwh: float = 0.0
    """Including PUE."""
    co2e_kg: float = 0.0
    usd_preemptible: float = 0.0
    usd_on_demand: float = 0.0

    def __add__(self, other: "Price") -> "Price":
        return Price(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __mul__(self, factor: float) -> "Price":
        return Price(*(getattr(self, field.name) * factor for field in fields(self)))

    @property
    def co2e_lb(self) -> float:
        return self.co2e_kg / KG_PER_LB


def total(prices: Iterable[Price]) -> Price:
    """The sum of prices."""
    return sum(prices, start=Price())


def devices(energy: params.Energy, cost: Mapping[str, float], on_gpu: bool) -> tuple[float, int]:
    """The mean number of busy cores, and of GPUs, from which a kWh figure was estimated: the inverse of `stages.cost.energy_kwh`.

    Correct while `energy` is unchanged. Costs of before 2026-12 and of runs that failed have no `gpus`: for a stage that
    may have had some (`on_gpu`) they are read off the watts, which is right for less than 30 busy cores by default, the
    draw of a GPU.
    """
    if not cost["seconds"]:
        return 0.0, 0
    memory = cost.get("memory_mib", 0.0) / 2**10 * energy.watts_per_gib
    watts = max(0.0, 3.6e6 * cost["kwh"] / energy.pue / cost["seconds"] - memory)
    gpus = int(cost["gpus"]) if "gpus" in cost else math.floor(watts / energy.watts_per_gpu) if on_gpu else 0
    return (watts - gpus * energy.watts_per_gpu) / energy.watts_per_core, gpus


def run_price(all_params: params.Params, group: str, cost: Mapping[str, float]) -> Price:
    """The price of one run of a stage of a group (`pretrain`), from its `cost`: seconds, kwh, memory_mib, flops."""
    cores, gpus = devices(all_params.energy, cost, registry.trains(group))
    hours, price = cost["seconds"] / 3600, all_params.price
    core_hours, gpu_hours = 0.0 if gpus else hours * max(1.0, cores), hours * gpus
    rents = {
        kind: core_hours * getattr(price.core_hour, kind) + gpu_hours * getattr(price.gpu_hour, kind)
        for kind in ("preemptible", "on_demand")
    }
    return Price(
        cost["seconds"], core_hours, gpu_hours, cost.get("flops", 0), cost["kwh"], cost["kwh"] * price.intensity,
        rents["preemptible"], rents["on_demand"],
    )  # fmt: skip


def short(value: float) -> str:
    """Three digits, with an exponent only for very small values: `656,000`, `1,420`, `12.3`, `0.00052`, `3.1e-06`."""
    if not value or not math.isfinite(value):
        return "0" if value == 0 else "–"
    digits = 2 - math.floor(math.log10(abs(value)))
    if digits > 6:
        return f"{value:.2g}"
    return f"{round(value, digits):,.{max(0, digits)}f}"


def ratio(ours: float, theirs: float) -> str:
    """`1/20,200 of`, `3.20 times`, `none of`."""
    if not ours:  # of the sun, or where no power was measured
        return "none of"
    return f"{short(ours / theirs)} times" if ours >= theirs else f"1/{short(theirs / ours)} of"
