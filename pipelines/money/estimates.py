"""Estimates of what a stage will take: seconds, memory, disk.

A stage that has run before: what it took, by the ledger of this machine, else by its committed metrics, in proportion
to its tokens. A training that has not: its FLOPs, compared with this machine's matmul. An evaluation that has not: the
median of the same evaluation on models of the same family.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from components import params
from components.core import tracking
from components.core.errors import SesameError
from components.stages.outputs import committed_metrics, read_json
from pipelines.execution import graph
from pipelines.money import trainings

START, TUNING_START = 25.0, 12.0
"""Seconds of a pre-training and of a fine-tuning that are not training: imports, validation, samples, writing."""
RECOMPUTED = 4 / 3
"""With `trainer.recompute`, for one without it: two of six FLOPs are the forward pass, which is computed twice."""
SHARES = {"32-true": 0.5, "bf16-mixed": 0.04}
"""Share of the matmul peak where no past training has told its `peak_share`: that of the default's GPT, on CPUs without and with AMX."""
SHARES_FLOPS, HIGHEST_SHARE = 4e6, 0.5
"""FLOPs of a token in that GPT. The share grows with their square root, up to a half: of small models memory traffic takes most of a step.
On a CPU with AMX it was .04 and .03 for GPT and BERT of 2 x 128, .12 and .09 for those of 6 x 256."""
RESIDENT = 700 * 2**20
"""Bytes of Python, torch and Lightning: what the smallest training takes."""
HERE, ELSEWHERE, ALIKE, COUNTED = "past runs here", "past runs on other machines", "runs of like models", "counted FLOPs"


@dataclass(frozen=True)
class Estimate:
    """What one stage takes; None and no source where nothing is known."""

    seconds: float | None = None
    memory: float | None = None
    """Bytes."""
    disk: float = 0.0
    """Bytes that it writes."""
    source: str = ""
    gpu_memory: int | None = None
    """Bytes that the GPU has, where it is trained there."""
    no_gpu: bool = False
    """It asks for one, and this machine has none."""


@dataclass(frozen=True)
class Past:
    """What a stage took when it ran last."""

    cost: Mapping[str, float]
    metrics: Mapping
    source: str


def _ledger(names: Collection[str]) -> dict[str, list[dict[str, float]]]:
    """Costs of the finished runs of stages, the newest first, by the ledger on this machine: one elsewhere has other machines' runs."""
    database = tracking.database()
    if tracking.is_off() or database is None or not database.exists():
        return {}
    recorded = {}
    try:
        client = tracking.client()
        experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
        for name in names:
            wanted = f"attributes.run_name = '{name}' and attributes.status = 'FINISHED'"
            runs = client.search_runs([experiment], wanted, max_results=10, order_by=["attributes.start_time DESC"])
            costs = [
                {key.removeprefix("cost."): value for key, value in run.data.metrics.items() if key.startswith("cost.")} for run in runs
            ]
            recorded[name] = [cost for cost in costs if "seconds" in cost]
    except Exception:  # whatever the ledger's client raises; the run itself says so
        return {}
    return recorded


def left(name: str, entry: Mapping, committed: Mapping[str, dict]) -> dict:
    """The metrics that a stage left when it ran last, by its lock entry, else those that git has; empty where there are none.

    A damaged file counts as missing: it must not keep its stage from running again.
    """
    for path in (Path(out["path"]) for out in entry.get("outs", [])):
        with suppress(SesameError):
            read = read_json(path if path.suffix == ".json" else path / "metrics.json")
            if isinstance(read, dict) and "seconds" in read.get("cost", {}):
                return read
    return committed.get(name, {})


def lasting(entries: Mapping[str, Mapping]) -> dict[str, dict]:
    """Of each stage that has any the metrics of its last run, by the lock entries."""
    kept = {name: metrics for name, metrics in committed_metrics().items() if "seconds" in metrics.get("cost", {})}
    return {name: metrics for name in {**entries, **kept} if (metrics := left(name, entries.get(name, {}), kept))}


def _past(metrics: dict, recorded: Sequence[Mapping[str, float]]) -> Past | None:
    """The newest run of the ledger that did what the stage's metrics tell of, else those metrics."""
    cost = metrics.get("cost", {})
    for run in recorded:
        if all(math.isclose(run.get(key, 0), cost.get(key, run.get(key, 0)), rel_tol=1e-3) for key in ("tokens", "flops")):
            return Past(run, metrics, HERE)
    return Past(cost, metrics, ELSEWHERE) if cost else None


def _again(
    name: str, all_params: params.Params, lefts: Mapping[str, dict], entry: Mapping, past: Past, work: trainings.Training | None
) -> Estimate | None:
    """A stage as it was in the past, in proportion to its tokens; None for a training of another shape."""
    ratio, fixed = 1.0, None
    if work:
        models = {other.partition("@")[2]: metrics.get("settings", {}) for other, metrics in lefts.items() if other.startswith("pretrain@")}
        settings = past.metrics.get("settings")
        before = trainings.past(name, settings, models, work, all_params) if settings else None
        if before is None or before.shape != work.shape:
            return None
        read = past.cost.get("tokens", 0)
        steps = past.metrics.get("steps", 0)
        now = work.tokens(past.cost.get("flops", 0) / read if read else 1.0, read / steps if steps else 1.0)
        if now is None:
            fixed = START + 60 * work.model.budget.minutes * work.runs
        elif work.tuning:
            ratio = now / before.tokens(1.0, 1.0)
        elif read:
            ratio = now / read
    weights = past.metrics.get("parameters", 0)
    peaks = [measured["memory_mib"] * 2**20 for measured in (past.cost, past.metrics) if "memory_mib" in measured]
    memory = max(peaks, default=RESIDENT + 16 * weights if work else None)
    disk = sum(out.get("size", 0) for out in entry.get("outs", [])) + 12 * weights  # a checkpoint has Adam's moments, too
    return Estimate(fixed or past.cost["seconds"] * ratio, memory, disk, past.source)


def _alike(names: Collection[str], lefts: Mapping[str, dict], all_params: params.Params) -> dict[str, Estimate]:
    """Those of the stages that only ask models: each as the median of those that asked models of the same family the same, or, where none
    did, evaluations of the same kinds."""
    wanted = {name: workload for name in names if (workload := trainings.workload(name, all_params))}
    costs, estimates, kinds = defaultdict(list), {}, {workload[0] for workload in wanted.values()}
    for name, metrics in lefts.items():
        # the first condition is quick, and hundreds of others may have run
        if name.partition("@")[0] in kinds and (workload := trainings.workload(name, all_params)):
            costs[workload].append(metrics["cost"])
            costs[trainings.of_kinds(workload, all_params)].append(metrics["cost"])
    for name, workload in wanted.items():
        if like := costs[workload] or costs[trainings.of_kinds(workload, all_params)]:
            memory = max((cost["memory_mib"] * 2**20 for cost in like if "memory_mib" in cost), default=None)
            estimates[name] = Estimate(statistics.median(cost["seconds"] for cost in like), memory, source=ALIKE)
    return estimates


def _counted(work: trainings.Training, lefts: Mapping[str, dict]) -> Estimate:
    """A training that has no past: its FLOPs, by what small trainings reach of the matmul's speed."""
    from components.pretrain import sizing  # torch: 2 s, only where something is to be counted

    size = sizing.size(work.model, work.vocab_size)
    machine = sizing.machine(*work.where)
    if work.model.budget.minutes and not work.tuning:
        seconds = START + 60 * work.model.budget.minutes * work.runs
    else:
        tokens = work.tokens(size.flops, work.step_tokens)
        speed = machine.peak * _share(machine.precision, lefts, size.flops) * work.devices
        again = RECOMPUTED if work.model.trainer.recompute and not work.tuning else 1
        seconds = (TUNING_START if work.tuning else START) + tokens * size.flops * again / speed
    sharded = work.devices if not work.tuning and work.model.run.strategy == "fsdp" else 1
    memory = size.memory(work.rows, sharded, machine.precision) + (0 if machine.gpu_memory else RESIDENT)
    disk = 0 if work.tuning else (4 * work.runs + 12) * size.parameters
    return Estimate(seconds, memory, disk, COUNTED, machine.gpu_memory)


def _share(precision: str, lefts: Mapping[str, dict], flops: float) -> float:
    """Share of the matmul peak that a model with so many FLOPs a token reaches: the median of the predictions by past
    pre-trainings in this precision."""
    past = [metrics for name, metrics in sorted(lefts.items()) if name.startswith("pretrain@") and metrics.get("precision") == precision]
    known = [
        metrics["peak_share"] * (flops * metrics["cost"]["tokens"] / metrics["cost"]["flops"]) ** 0.5
        for metrics in past if metrics.get("peak_share") and metrics["cost"].get("flops")
    ]  # fmt: skip
    assumed = SHARES.get(precision, SHARES["32-true"]) * (flops / SHARES_FLOPS) ** 0.5
    return min(HIGHEST_SHARE, statistics.median(known) if known else assumed)


def of(names: Collection[str], all_params: params.Params) -> dict[str, Estimate]:
    """What each of these stages will take."""
    entries, recorded, estimates = graph.lock_entries(), _ledger(names), {}
    lefts = lasting(entries)
    for name in names:
        work, entry = trainings.of(name, all_params), entries.get(name, {})
        past = _past(lefts.get(name, {}), recorded.get(name, []))
        estimate = (past and _again(name, all_params, lefts, entry, past, work)) or (_counted(work, lefts) if work else Estimate())
        estimates[name] = replace(estimate, no_gpu=work.where[0] == "gpu" and not _gpu()) if work else estimate
    unknown = [name for name, estimate in estimates.items() if not estimate.source]
    return estimates | _alike(unknown, lefts, all_params)


def _gpu() -> bool:
    from lightning.fabric.accelerators import CUDAAccelerator, MPSAccelerator  # seconds, only where a GPU is asked for

    return CUDAAccelerator.is_available() or MPSAccelerator.is_available()
