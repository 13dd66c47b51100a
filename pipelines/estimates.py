"""What a run will take, before it runs: seconds, memory, disk, files to fetch. What can't fit is refused, with the estimate.

A stage that has run before takes what it took: here, as the ledger has it, else elsewhere, as its committed metrics say, in
proportion where it has more or less to do. Of a training that has not, FLOPs are counted and held against this machine's matmul.
"""

import heapq
import math
import os
import shutil
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from components import params, stage, tracking
from components.errors import SesameError
from components.sources import download
from pipelines import graph, sources, terminal, trainings

JOBS = min(4, max(2, os.cpu_count() or 2))
"""How many stages run side by side unless told; as in the flow."""
YEAR = 365.25 * 86_400
"""Seconds; a stage that would take longer is refused."""
START, TUNING_START = 25.0, 12.0
"""Seconds of a pre-training and of a fine-tuning that are not training: imports, validation, samples, writing."""
SHARES = {"32-true": 0.5, "bf16-mixed": 0.04}
"""Share of the matmul peak that small trainings reach where no past one has told (`peak_share`): the default models, on CPUs without and with AMX."""
RESIDENT = 700 * 2**20
"""Bytes of Python, torch and Lightning: what the smallest training takes."""
TRAINED_ON = ("tokenizer", "encode", "pretrain")
"""Stages whose params make a fine-tuning another one."""
HERE, ELSEWHERE, COUNTED = "past runs here", "past runs elsewhere", "counted FLOPs"


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


@dataclass(frozen=True)
class Past:
    """What a stage took when it ran last."""

    cost: Mapping[str, float]
    metrics: Mapping
    source: str


def _ledger(names: Collection[str]) -> dict[str, list[dict[str, float]]]:
    """Costs of the finished runs of stages, the newest first. Empty without a ledger: one that can't be reached is told when the run begins."""
    address = tracking.uri()
    there = Path(address.removeprefix("sqlite:///")).exists() if address.startswith("sqlite:///") else True
    if os.environ.get(tracking.OFF) == "off" or not there:
        return {}
    found = {}
    try:
        client = tracking.client()
        experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
        for name in names:
            wanted = f"attributes.run_name = '{name}' and attributes.status = 'FINISHED'"
            runs = client.search_runs([experiment], wanted, max_results=10, order_by=["attributes.start_time DESC"])
            costs = [{key.removeprefix("cost."): value for key, value in run.data.metrics.items() if key.startswith("cost.")} for run in runs]
            found[name] = [cost for cost in costs if "seconds" in cost]
    except Exception:  # whatever the ledger's client raises
        return {}
    return found


def _past(name: str, entry: Mapping, recorded: Sequence[Mapping[str, float]]) -> Past | None:
    """The newest run of the ledger that did what the stage's metrics tell of, else those metrics."""
    metrics: dict = {}
    for path in (Path(out["path"]) for out in entry.get("outs", [])):
        file = path if path.suffix == ".json" else path / "metrics.json"
        read = stage.read_json(file) if file.exists() else {}
        if isinstance(read, dict) and "seconds" in read.get("cost", {}):
            metrics = read
    cost = metrics.get("cost", {})
    for run in recorded:
        if all(math.isclose(run.get(key, 0), cost.get(key, run.get(key, 0)), rel_tol=1e-3) for key in ("tokens", "flops")):
            return Past(run, metrics, HERE)
    return Past(cost, metrics, ELSEWHERE) if cost else None


def _then(all_params: params.Params, entries: Mapping[str, Mapping], name: str) -> params.Params | None:
    """params.yaml as it was when a stage and the models it may be about ran last; None where it does not fit any more."""
    raw = all_params.model_dump(mode="json", exclude_unset=True)
    for entry in (*(entry for other, entry in entries.items() if other.partition("@")[0] in TRAINED_ON), entries[name]):
        for values in entry.get("params", {}).values():
            for key, value in values.items():
                *path, last = key.split(".")
                block = raw
                for part in path:
                    block = block.setdefault(part, {})
                block[last] = value
    try:
        return params.Params.model_validate(raw)
    except ValidationError:
        return None




def _again(name: str, all_params: params.Params, entries: Mapping[str, Mapping], past: Past, work: trainings.Training | None) -> Estimate | None:
    """A stage as it was in the past, in proportion to its tokens; None for a training of another shape."""
    ratio, fixed = 1.0, None
    if work:
        then = _then(all_params, entries, name) if name in entries else None
        before = then and trainings.of(name, then)
        if before is None or before.shape != work.shape:
            return None
        read = past.cost.get("tokens", 0)
        steps = past.metrics.get("steps", 0)
        now = work.tokens(past.cost["flops"] / read if read else 1.0, read / steps if steps else 1.0)
        if now is None:
            fixed = START + 60 * work.model.budget.minutes * work.runs
        elif work.tuning:
            ratio = now / before.tokens(1.0, 1.0)
        elif read:
            ratio = now / read
    weights = past.metrics.get("parameters", 0)
    told = [cost["memory_mib"] * 2**20 for cost in (past.cost, *past.metrics.get("costs", {}).values()) if "memory_mib" in cost]
    memory = max(told, default=RESIDENT + 16 * weights if work else None)
    disk = sum(out.get("size", 0) for out in entries.get(name, {}).get("outs", [])) + 12 * weights  # a checkpoint has Adam's moments, too
    return Estimate(fixed or past.cost["seconds"] * ratio, memory, disk, past.source)


def _counted(work: trainings.Training) -> Estimate:
    """A training that has no past: its FLOPs, by what small trainings reach of the matmul's speed."""
    from components import sizing  # torch: 2 s, only where something is to be counted

    settings = work.settings
    size = sizing.size(work.model, work.vocab_size)
    machine = sizing.machine(settings.accelerator, settings.precision, settings.threads)
    if work.model.budget.minutes and not work.tuning:
        seconds = START + 60 * work.model.budget.minutes * work.runs
    else:
        tokens = work.tokens(size.flops, work.model.batch_size * work.model.architecture.max_length)
        speed = machine.peak * _share(machine.precision) * work.devices
        seconds = (TUNING_START if work.tuning else START) + tokens * size.flops / speed
    sharded = work.devices if settings is work.model.trainer and settings.strategy == "fsdp" else 1
    memory = size.memory(work.rows, sharded, machine.precision) + (0 if machine.gpu_memory else RESIDENT)
    disk = 0 if work.tuning else (4 * work.runs + 12) * size.parameters
    return Estimate(seconds, memory, disk, COUNTED, machine.gpu_memory)


def _share(precision: str) -> float:
    """The median of past pre-trainings in this precision."""
    past = [stage.read_json(path) for path in sorted(Path("data/metrics/pretrain").glob("*.json"))]
    known = [metrics["peak_share"] for metrics in past if metrics.get("precision") == precision and metrics.get("peak_share")]
    return statistics.median(known) if known else SHARES.get(precision, SHARES["32-true"])


def of(names: Collection[str], all_params: params.Params) -> dict[str, Estimate]:
    """What each of these stages will take."""
    entries, recorded, found = graph.lock_entries(), _ledger(names), {}
    for name in names:
        work = trainings.of(name, all_params)
        past = _past(name, entries.get(name, {}), recorded.get(name, []))
        found[name] = (past and _again(name, all_params, entries, past, work)) or (_counted(work) if work else Estimate())
    return found


@dataclass(frozen=True)
class Forecast:
    """What a run of a plan will take."""

    plan: Sequence[graph.Stage]
    states: Mapping[str, str]
    """Of `graph.states`."""
    estimates: Mapping[str, Estimate]
    """Of the stages that run or may run."""
    files: int
    """To fetch."""
    jobs: int

    def seconds(self, states: Collection[str]) -> float:
        """Wall clock of the stages in these states, begun as the flow does: in the plan's order, each when what it needs is done and a job and
        its resource are free."""
        takes = {name: estimate.seconds or 0.0 for name, estimate in self.estimates.items() if self.states[name] in states}
        waiting, done, running, now = list(self.plan), set(), [], 0.0
        while waiting or running:
            for each in list(waiting):
                taken = {other.meta.resource for _, _, other in running} - {None}
                if done.issuperset(each.upstream) and len(running) < self.jobs and each.meta.resource not in taken:
                    waiting.remove(each)
                    heapq.heappush(running, (now + takes.get(each.name, 0.0), each.name, each))
            now, name, _ = heapq.heappop(running)
            done.add(name)
        return now

    @property
    def memory(self) -> float:
        """Bytes of the heaviest stages that can run side by side."""
        heaviest: dict[str, float] = {}
        for each in self.plan:
            if each.name in self.estimates:
                turn = each.meta.resource or each.name
                heaviest[turn] = max(heaviest.get(turn, 0.0), self.estimates[each.name].memory or 0.0)
        return sum(sorted(heaviest.values())[-self.jobs :])

    @property
    def disk(self) -> float:
        """Bytes that all of them write."""
        return sum(estimate.disk for estimate in self.estimates.values())

    def summary(self) -> str:
        """All of it in a line."""
        count, known = Counter(self.states.values()), Counter(estimate.source for estimate in self.estimates.values())
        if not self.estimates:
            return f"{number(len(self.plan), 'stage')}, all unchanged"
        parts = [f"{number(count['to run'], 'stage')} to run, about {duration(self.seconds(['to run']))} on {number(self.jobs, 'job')}"]
        if count["may run"]:
            whole = duration(self.seconds(["to run", "may run"]))
            parts.append(f"{count['may run']} may run, if what they read comes out another, then about {whole} in all")
        room = psutil.virtual_memory().total
        short = f" (there are {amount(room)}: fewer jobs)" if self.memory > room else ""
        parts.append(f"{amount(self.memory)} of memory{short}, {amount(self.disk)} of disk, {number(self.files, 'file')} to fetch")
        told = [f"{source} ({known[source]})" for source in (HERE, ELSEWHERE, COUNTED) if known[source]]
        parts.append("seconds from " + ", ".join(told) + f", unknown ({known['']})" * (known[""] > 0) if told else "nothing is known of the seconds")
        return "; ".join(parts)

    def check(self) -> None:
        """Raises SesameError, with the estimate, for a stage that needs more memory than there is or longer than a year, and for a full disk."""
        for name, estimate in self.estimates.items():
            room = estimate.gpu_memory or psutil.virtual_memory().total
            if (estimate.memory or 0) > room:
                place = "the GPU" if estimate.gpu_memory else "this machine"
                raise SesameError(
                    f"{name} needs {amount(estimate.memory)} of memory or more, and {place} has {amount(room)}; "
                    "make its model, its batch_size or its max_length smaller"
                )
            if (estimate.seconds or 0) > YEAR:
                raise SesameError(f"{name} takes about {duration(estimate.seconds)} (from {estimate.source}); lower its budget, or make its model smaller")
        if self.disk > (free := shutil.disk_usage(".").free):
            raise SesameError(f"the stages to run write about {amount(self.disk)}, and {amount(free)} of disk are free; free some, or make the models smaller")


def forecast(plan: Sequence[graph.Stage], states: Mapping[str, str], all_params: params.Params, jobs: int | None) -> Forecast:
    """What a run of a plan will take, given what it would do with each stage."""
    names = [name for name, state in states.items() if state != "unchanged"]
    return Forecast(plan, states, of(names, all_params) if names else {}, len(_to_fetch(names, all_params)), jobs or JOBS)


def _to_fetch(names: Collection[str], all_params: params.Params) -> set[str]:
    """Pinned files that are not kept from before, and sets of the hub, that these stages read."""
    section = {kind: key for key, kind in sources.STAGES.items()}
    found: set[str] = set()

    def look(value: object) -> None:
        if isinstance(value, params.PypiSource | params.UrlSource):
            folder = download.kept("", value.sha256)
            if not any(path.suffix != ".part" for path in folder.glob("*")):
                found.add(value.sha256)
        elif isinstance(value, params.HubSource | params.HubModelSource):
            found.add(value.model_dump_json())
        else:
            for part in dict(value).values() if isinstance(value, BaseModel | dict) else value if isinstance(value, list) else ():
                look(part)

    for kind, _, name in (name.partition("@") for name in names):
        look(getattr(all_params, section[kind]).get(name) if kind in section else None)
    return found


def announce(targets: Sequence[str], force: bool, recheck: bool, jobs: int | None) -> None:
    """Say in a line what a run of `targets` will take; nothing where nothing is to be done. Raises SesameError for wrong targets, and where it can't fit."""
    all_params = params.load()
    stage.STATE.mkdir(exist_ok=True)
    try:
        with FileLock(stage.STATE / "flow.lock").acquire(timeout=0), graph.at_once():
            plan = graph.plan(targets)
            forced = {each.name for each in plan} if force else sources.unfixed(all_params) if recheck else set()
            states = graph.states(plan, forced)
    except Timeout:
        graph.plan(targets)
        return  # another flow is at work: what it leaves to be done isn't known yet
    if any(state != "unchanged" for state in states.values()):
        found = forecast(plan, states, all_params, jobs)
        found.check()
        terminal.say(found.summary())


def number(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def duration(seconds: float | None) -> str:
    """`45 s`, `7.5 min`, `14 min`, `2.3 h`, `3.1 days`, `12,000 years`; `?` where it is not known."""
    if seconds is None:
        return "?"
    for unit, length, limit in (("s", 1, 100), ("min", 60, 100 * 60), ("h", 3600, 48 * 3600), ("days", 86_400, YEAR)):
        if seconds < limit:
            return f"{_digits(seconds / length) if length > 1 else round(seconds)} {unit}"
    return f"{_digits(seconds / YEAR)} years"


def amount(size: float | None) -> str:
    """Bytes: `650 MiB`, `1.1 GiB`, `32 EiB`; `?` where it is not known."""
    if size is None:
        return "?"
    for power, unit in ((20, "MiB"), (30, "GiB"), (40, "TiB"), (50, "PiB")):
        if size < 1000 * 2**power:
            return f"{_digits(size / 2**power) if power > 20 else round(size / 2**power)} {unit}"
    return f"{_digits(size / 2**60)} EiB"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"
