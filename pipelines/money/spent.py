"""The cost of past runs of stages: from the metrics of results, and from MLflow, which also has runs that failed, were
stopped or repeated."""

import csv
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components import params
from components.comparison import price
from components.comparison.price import Price
from components.core import tracking
from components.core.errors import SesameError
from components.stages import stage
from components.studies.folders import LAST, REPORTS
from pipelines.execution import graph, ledger
from pipelines.money import estimates

NOT_SO_WELL = {"FAILED": "failed", "KILLED": "stopped"}
ELSEWHERE = "elsewhere"
OF_VARIANTS = ("variant", "further", "intermediate", "transfer")
"""Stages of one seed of a study's variant."""


@dataclass(frozen=True)
class Spent:
    """A run of a stage."""

    stage: str
    state: str
    """FINISHED, FAILED or KILLED in the ledger; `elsewhere`: its result lies here, and the ledger has no run of it."""
    price: Price

    @property
    def group(self) -> str:
        return self.stage.partition("@")[0]


@dataclass(frozen=True)
class Book:
    """All runs that are known of."""

    runs: list[Spent]
    missing: str
    """Why there is no ledger; empty where there is one."""
    endless: int = 0
    """Runs that are at work or were killed hard: the ledger has no end of them, and they are not counted."""
    flows: Sequence[Mapping[str, float]] = ()
    """Of each flow whose energy was measured the kWh with the PUE: by the machine's counters, by kind, and `estimated` by its stages."""


def read(all_params: params.Params) -> Book:
    """Every run that the ledger or a result tells of."""
    results = {name: metrics["cost"] for name, metrics in estimates.lasting(graph.lock_entries()).items()}
    made = {name: Spent(name, ELSEWHERE, price.run_price(all_params, name.partition("@")[0], cost)) for name, cost in results.items()}
    if missing := no_ledger():
        return Book([*made.values(), *(own for name in all_params.studies for own in of_table(all_params, name, made))], missing)
    runs, endless, flows = of_ledger(all_params)
    finished = defaultdict(list)
    for run in runs:
        if run.state == "FINISHED":
            finished[run.stage].append(run.price.seconds)
    # a result whose seconds are those of a run is of that run
    unknown = [own for own in made.values() if not any(math.isclose(own.price.seconds, past) for past in finished.get(own.stage, ()))]
    unknown += [own for name in all_params.studies for own in of_table(all_params, name, made.keys() | finished.keys())]
    return Book([*runs, *unknown], "", endless, flows)


def no_ledger() -> str:
    """Why there is no ledger to ask; empty where there is one. Makes none."""
    if os.environ.get(tracking.OFF) == "off":
        return f"{tracking.OFF}=off"
    if tracking.uri().startswith("sqlite:///") and not Path(tracking.uri().removeprefix("sqlite:///")).exists():
        return f"{tracking.uri().removeprefix('sqlite:///')} is not there"
    try:
        tracking.connected()
    except SesameError as error:
        return str(error)
    return ""


def of_ledger(all_params: params.Params) -> tuple[list[Spent], int, list[dict[str, float]]]:
    """Runs of stages, how many have no end, and of the flows that were measured the kWh by counters and by estimates.

    What failed or was stopped, or lost the ledger on its way, has kept no cost: its seconds are the ledger's, from the
    start to the end but for the time between its attempts, and its power is that of the finished runs of its group, or
    of a core. Its FLOPs are not known.
    """
    client = tracking.client()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
    finished, without_cost, endless, flows, by_flow = [], [], 0, {}, defaultdict(float)
    token = None
    while token != "":
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        for run in page:
            tags, cost = run.data.tags, {key.removeprefix("cost."): own for key, own in run.data.metrics.items() if key.startswith("cost.")}
            if kinds := {key: own for key, own in run.data.metrics.items() if key.startswith(f"{ledger.MEASURED}.")}:
                flows[run.info.run_id] = {key.removeprefix(f"{ledger.MEASURED}.").removesuffix("_kwh"): own for key, own in kinds.items()}
            if "stage" not in tags or "name" not in tags:  # a flow, or one seed, trial or variant of a stage, whose run has it all
                continue
            if run.info.status == "FINISHED" and {"seconds", "kwh"} <= cost.keys():
                finished.append(Spent(run.info.run_name, "FINISHED", price.run_price(all_params, tags["stage"], cost)))
                by_flow[tags.get(tracking.FLOW, "")] += cost["kwh"]
            elif run.info.end_time is None or run.info.status == "RUNNING":  # it has the end of its last attempt
                endless += 1
            else:
                seconds = (run.info.end_time - run.info.start_time) / 1000 - float(tags.get(tracking.IDLE, 0))
                without_cost.append((run.info.run_name, run.info.status, seconds))
        token = page.token or ""
    watts = _watts(finished)
    for name, state, seconds in without_cost:
        group = name.partition("@")[0]
        kwh = watts[group] * seconds / 3.6e6 if group in watts else stage.energy_kwh(all_params.energy, seconds, seconds, 0, 0)
        finished.append(Spent(name, state, price.run_price(all_params, group, {"seconds": seconds, "kwh": kwh})))
    return finished, endless, [own | {"estimated": by_flow[flow]} for flow, own in flows.items()]


def _watts(runs: Iterable[Spent]) -> dict[str, float]:
    """Of each group, PUE included."""
    together: dict[str, Price] = defaultdict(Price)
    for run in runs:
        together[run.group] += run.price
    return {group: 3.6e6 * own.kwh / own.seconds for group, own in together.items() if own.seconds}


def of_table(all_params: params.Params, name: str, known: Collection[str]) -> list[Spent]:
    """Of a study the variants without a stage among the `known` ones, by its table, which git has: a core for the seconds of each
    training and fine-tuning."""
    path, study = REPORTS / f"{name}.csv", all_params.studies[name]
    if not path.exists():
        return []
    stages = {kind: own for own in params.members({name: study}) for kind in (f"{group}@{own.name}" for group in OF_VARIANTS)}
    there = {own.variant for each, own in stages.items() if each in known}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["variant"] in study.variants and row["variant"] not in there]
    last, spent = {row["variant"]: row for row in rows if row.get("milestone", LAST) == LAST}, []

    def add(kind: str, row: dict, seconds: float, flops: float) -> None:
        seconds, flops = seconds * int(row["n"]), flops * int(row["n"])
        kwh = stage.energy_kwh(all_params.energy, seconds, seconds, 0, 0)
        own = price.run_price(all_params, kind, {"seconds": seconds, "kwh": kwh, "flops": flops})
        spent.append(Spent(f"{kind}@{name}-{row['variant']}", ELSEWHERE, own))

    for variant, row in last.items():
        if not study.variants[variant].only_tuned:  # its figures are those of all trainings that the model went through
            before = last.get(params.begun_by(study, variant))
            own = {key: float(row[key]) - (float(before[key]) if before else 0.0) for key in ("seconds", "flops")}
            kind = "intermediate" if study.variants[variant].by else "further" if before else "variant"
            add(kind, row, own["seconds"], own["flops"])
    for row in rows:
        add("transfer", row, float(row["finetune_seconds"] or 0), 0.0)
    return spent
