"""Forecast of what a run will take: wall clock, memory, disk, files to fetch. Stages that can't fit are refused."""

import heapq
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psutil
from filelock import FileLock, Timeout

from components import params
from components.core import storage
from components.core.config import inside
from components.core.errors import SesameError
from components.stages import registry
from components.text.sources import download
from pipelines import terminal
from pipelines.execution import graph, repository, slots, sources, staleness
from pipelines.money import estimates
from pipelines.money.estimates import ALIKE, COUNTED, ELSEWHERE, HERE, Estimate
from pipelines.terminal import number

JOBS = min(4, max(2, os.cpu_count() or 2))
"""Default number of stages that run at once, as in the flow."""
YEAR = 365.25 * 86_400
"""In seconds. A stage that would take longer is refused."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a run of a plan."""

    plan: Sequence[graph.Stage]
    states: Mapping[str, str]
    """Stage -> state, from `staleness.states`."""
    estimates: Mapping[str, Estimate]
    """Estimates of the stages that run or may run."""
    files: int
    """Number of files to fetch."""
    jobs: int
    slots_of: Callable[[graph.Stage], int] = lambda stage: 1
    """How many of its resource a stage takes."""

    def seconds(self, states: Collection[str]) -> float:
        """Wall clock of the stages in these states, begun as by the flow:
        in the plan's order, each when what it needs is done, and a job and its resource are free."""
        takes = {name: estimate.seconds or 0.0 for name, estimate in self.estimates.items() if self.states[name] in states}
        waiting, done, running, now = list(self.plan), set(), [], 0.0
        while waiting or running:
            for each in list(waiting):
                resource = each.meta.resource
                taken = sum(self.slots_of(other) for _, _, other in running if other.meta.resource == resource)
                fits = resource is None or taken + self.slots_of(each) <= slots.capacity(resource)
                if done.issuperset(each.upstream) and len(running) < self.jobs and fits:
                    waiting.remove(each)
                    heapq.heappush(running, (now + takes.get(each.name, 0.0), each.name, each))
            now, name, _ = heapq.heappop(running)
            done.add(name)
        return now

    @property
    def memory(self) -> float:
        """Bytes of the heaviest stages that can run at once."""
        heaviest: dict[str, float] = {}
        for each in self.plan:
            if each.name in self.estimates:
                alone = slots.capacity(each.meta.resource) < 2 * self.slots_of(each)
                turn = each.meta.resource if each.meta.resource and alone else each.name
                heaviest[turn] = max(heaviest.get(turn, 0.0), self.estimates[each.name].memory or 0.0)
        return sum(sorted(heaviest.values())[-self.jobs :])

    @property
    def disk(self) -> float:
        """Bytes that all of them write."""
        return sum(estimate.disk for estimate in self.estimates.values())

    def summary(self) -> str:
        """The forecast in one line."""
        count, known = Counter(self.states.values()), Counter(estimate.source for estimate in self.estimates.values())
        cached = f"{count[staleness.IN_CACHE]} from the cache of earlier runs"
        if not self.estimates:
            rest = f"{cached}, the others unchanged" if count[staleness.IN_CACHE] else "all unchanged"
            return f"{number(len(self.plan), 'stage')}, {rest}"
        parts = [f"{number(count['to run'], 'stage')} to run", f"{count['may run']} may run, if their inputs change"]
        if known.keys() - {""}:
            by = " and ".join(source for source in (HERE, ELSEWHERE, ALIKE, COUNTED) if known[source])
            parts[0] += f", about {duration(self.seconds(['to run']))} on {number(self.jobs, 'job')}"
            parts[0] += f" (estimated from {by})"
            parts[1] += f", then about {duration(self.seconds(['to run', 'may run']))} in all"
            room = psutil.virtual_memory().total
            short = f" (there are only {amount(room)}: use fewer --jobs)" if self.memory > room else ""
            parts.append(f"{amount(self.memory)} of memory{short}, {amount(self.disk)} of disk")
        if self.files:
            parts.append(f"{number(self.files, 'file')} to fetch")
        if known[""]:
            parts.append(f"no time estimate for {number(known[''], 'stage')}")
        if not count["may run"]:
            del parts[1]
        if count[staleness.IN_CACHE]:
            parts.insert(1, cached)
        return "; ".join(parts)

    def check(self) -> None:
        """Raises SesameError if the run can't fit: a GPU is requested and there is none, a stage needs more memory than
        there is or more than a year, or the outputs need more than the free disk."""
        for name, estimate in self.estimates.items():
            if estimate.no_gpu:
                raise SesameError(f"{name} asks for accelerator: gpu, and this machine has none; write auto or cpu")
            room = estimate.gpu_memory or psutil.virtual_memory().total
            if (estimate.memory or 0) > room:
                place = "the GPU" if estimate.gpu_memory else "this machine"
                raise SesameError(
                    f"{name} needs {amount(estimate.memory)} of memory or more, and {place} has {amount(room)}; "
                    "make its model, its batch_size or its max_length smaller"
                )
            if (estimate.seconds or 0) > YEAR:
                years = duration(estimate.seconds)
                raise SesameError(f"{name} takes about {years} (from {estimate.source}); lower its budget, or make its model smaller")
        if self.disk > (free := shutil.disk_usage(".").free):
            raise SesameError(
                f"the stages to run write about {amount(self.disk)}, and only {amount(free)} of disk "
                "are free; free some, or make models smaller"
            )


def default_jobs(all_params: params.Params) -> int:
    """Default number of stages that run at once: a few, or one on each GPU."""
    return max(JOBS, slots.capacity(slots.GPU)) if slots.GPU in all_params.resources.model_dump().values() else JOBS


def forecast(plan: Sequence[graph.Stage], states: Mapping[str, str], all_params: params.Params, jobs: int | None) -> Forecast:
    """The forecast for a run of a plan, given the state of each stage."""
    names = [name for name, state in states.items() if state not in ("unchanged", staleness.IN_CACHE)]
    stage_estimates, files = estimates.of(names, all_params) if names else {}, len(_to_fetch(names, all_params))
    return Forecast(
        plan, states, stage_estimates, files, jobs or default_jobs(all_params), partial(slots.demand, all_params)
    )


def _to_fetch(names: Collection[str], all_params: params.Params) -> set[str]:
    """Pinned files that are not kept from before, and sets of the hub, that these stages read."""
    declared = [(registry.declared(kind), name) for kind, _, name in (name.partition("@") for name in names)]
    blocks = [getattr(all_params, stage.section).get(name) for stage, name in declared if stage.fetches]
    read = [each for block in blocks for each in inside(block)]
    pinned = {each.sha256 for each in read if isinstance(each, params.PypiSource | params.UrlSource)}
    kept = {each for each in pinned if any(path.suffix != ".part" for path in download.cached_path("", each).glob("*"))}
    of_hub = {each.model_dump_json() for each in read if isinstance(each, params.HubSource | params.HubModelSource)}
    return pinned - kept | of_hub


def announce(
    targets: Sequence[str], force: bool, recheck: bool, jobs: int | None, wait: bool, say: Callable[[str], None] = terminal.say
) -> tuple[list[graph.Stage], float | None]:  # fmt: skip
    """Say in a line what a run of `targets` will take, nothing where nothing is to be done; the plan of that run, and about how many
    seconds it takes, None where that is not known.

    `wait` for another DVC that is at work. Raises SesameError for wrong targets, and where it can't fit.
    """
    all_params = params.load()
    storage.STATE.mkdir(exist_ok=True)
    away = all_params.away
    try:
        with FileLock(storage.STATE / "flow.lock").acquire(timeout=0), repository.at_once(wait):
            plan = graph.plan(targets)
            forced = sources.forced(plan, all_params, force, recheck)
            states = staleness.states(plan, forced, away)
    except Timeout:
        return graph.plan(targets), None  # another flow is at work: what it leaves to be done isn't known yet
    if not recheck:
        for line in sources.edited(all_params, states):
            say(line)
    seconds = None
    if any(state != "unchanged" for state in states.values()):
        outlook = forecast(plan, states, all_params, jobs)
        if not away:  # what fits into a worker's machine is not known here
            outlook.check()
        say(outlook.summary())
        seconds = outlook.seconds(["to run"]) or None
    return plan, seconds


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
