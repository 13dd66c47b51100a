"""The cost of past runs of stages: from the metrics of results, and from MLflow, which also has runs that failed, were
stopped or repeated."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from components import params
from components.comparison import price
from components.comparison.price import Price
from components.core import tracking
from components.core.errors import SesameError
from components.stages.cost import energy_kwh
from components.stages.outputs import read_json, rows
from components.studies.folders import LAST, REPORTS
from pipelines.execution import graph, ledger
from pipelines.money import estimates

UNSUCCESSFUL = {"FAILED": "failed", "KILLED": "stopped"}
ELSEWHERE = "elsewhere"
OF_VARIANTS = ("variant", "rate_trial", "variant_at_rate", "further", "intermediate", "transfer")
"""Stages of one training of a study's variant."""


@dataclass(frozen=True)
class StageRun:
    """A run of a stage."""

    stage: str
    state: str
    """FINISHED, FAILED or KILLED in MLflow; `elsewhere`: its result is here, and MLflow has no run of it."""
    price: Price

    @property
    def group(self) -> str:
        return self.stage.partition("@")[0]


@dataclass(frozen=True)
class Usage:
    """All known runs of stages."""

    runs: list[StageRun]
    missing: str
    """Why MLflow has no records; empty if it has."""
    without_end: int = 0
    """Runs that are active or were killed by -9: MLflow has no end of them, and they are not counted."""
    flows: Sequence[Mapping[str, float]] = ()
    """kWh (PUE included) of each flow whose energy was measured: by kind of counter, and `estimated` for its stages."""


def read(all_params: params.Params) -> Usage:
    """Every run that MLflow or a result here has a record of."""
    results = {name: metrics["cost"] for name, metrics in estimates.lasting(graph.lock_entries()).items()}
    local = {name: StageRun(name, ELSEWHERE, price.run_price(all_params, name.partition("@")[0], cost)) for name, cost in results.items()}
    if missing := why_no_mlflow():
        of_tables = (run for name in all_params.studies for run in runs_of_table(all_params, name, local))
        return Usage([*local.values(), *of_tables], missing)
    runs, without_end, flows = runs_in_mlflow(all_params)
    finished = defaultdict(list)
    for run in runs:
        if run.state == "FINISHED":
            finished[run.stage].append(run.price.seconds)
    # a result is that of a run in MLflow if their seconds are the same
    unknown = [
        run for run in local.values()
        if not any(math.isclose(run.price.seconds, past) for past in finished[run.stage])
    ]  # fmt: skip
    for name in all_params.studies:
        unknown += runs_of_table(all_params, name, local.keys() | finished.keys())
    return Usage([*runs, *unknown], "", without_end, flows)


def why_no_mlflow() -> str:
    """Why MLflow has no records; empty if it has. Creates no database."""
    if tracking.is_off():
        return f"{tracking.OFF}=off"
    if (database := tracking.database()) and not database.exists():
        return f"{database} is not there"
    try:
        tracking.connected()
    except SesameError as error:
        return str(error)
    return ""


def runs_in_mlflow(all_params: params.Params) -> tuple[list[StageRun], int, list[dict[str, float]]]:
    """Runs of stages, the number of runs without an end, and the kWh of each measured flow by counters and by estimates.

    A run that failed, was stopped or lost the connection to MLflow has recorded no cost. Its seconds are those from start
    to end in MLflow, without the time between its attempts; its power is the mean of the finished runs of its group, or
    that of one core; its FLOPs are not known.
    """
    client = tracking.client()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
    finished, without_cost, without_end, flows, by_flow = [], [], 0, {}, defaultdict(float)
    token = None
    while token != "":
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        for run in page:
            tags, cost = run.data.tags, _below("cost.", run.data.metrics)
            if kwh := _below(f"{ledger.MEASURED}.", run.data.metrics):
                flows[run.info.run_id] = {key.removesuffix("_kwh"): value for key, value in kwh.items()}
            if "stage" not in tags or "name" not in tags:  # a flow; or a seed, trial or variant, which the run of its stage includes
                continue
            if run.info.status == "FINISHED" and {"seconds", "kwh"} <= cost.keys():
                finished.append(StageRun(run.info.run_name, "FINISHED", price.run_price(all_params, tags["stage"], cost)))
                by_flow[tags.get(tracking.FLOW, "")] += cost["kwh"]
            elif run.info.end_time is None or run.info.status == "RUNNING":  # a resumed run has the end of its last attempt
                without_end += 1
            else:
                seconds = (run.info.end_time - run.info.start_time) / 1000 - float(tags.get(tracking.IDLE, 0))
                without_cost.append((run.info.run_name, run.info.status, seconds))
        token = page.token or ""
    watts = _watts(finished)
    for name, state, seconds in without_cost:
        group = name.partition("@")[0]
        kwh = watts[group] * seconds / 3.6e6 if group in watts else energy_kwh(all_params.energy, seconds, seconds, 0, 0)
        finished.append(StageRun(name, state, price.run_price(all_params, group, {"seconds": seconds, "kwh": kwh})))
    return finished, without_end, [kwh | {"estimated": by_flow[flow]} for flow, kwh in flows.items()]


def _below(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}


def _watts(runs: Iterable[StageRun]) -> dict[str, float]:
    """Mean power of the runs of each group, PUE included."""
    together: dict[str, Price] = defaultdict(Price)
    for run in runs:
        together[run.group] += run.price
    return {group: 3.6e6 * total.kwh / total.seconds for group, total in together.items() if total.seconds}


def runs_of_table(all_params: params.Params, name: str, known: Collection[str]) -> list[StageRun]:
    """The trainings and fine-tunings of those variants of a study that have no stage among the `known` ones.

    By the study's table, which is in git: one core for the seconds of each.
    """
    path, study = REPORTS / f"{name}.csv", all_params.studies[name]
    if not path.exists():
        return []
    members = params.members({name: study})
    there = {member.variant for member in members if any(f"{group}@{member.name}" in known for group in OF_VARIANTS)}
    table = [row for row in rows(path) if row["variant"] in study.variants and row["variant"] not in there]
    last, runs = {row["variant"]: row for row in table if row.get("milestone", LAST) == LAST}, []

    def add(kind: str, row: dict, seconds: float, flops: float) -> None:
        seconds, flops = seconds * int(row["n"]), flops * int(row["n"])
        kwh = energy_kwh(all_params.energy, seconds, seconds, 0, 0)
        cost = price.run_price(all_params, kind, {"seconds": seconds, "kwh": kwh, "flops": flops})
        runs.append(StageRun(f"{kind}@{name}-{row['variant']}", ELSEWHERE, cost))

    for variant, row in last.items():
        if not study.variants[variant].only_tuned:  # the figures of the table include the trainings before
            before = last.get(params.begun_by(study, variant))
            alone = {key: float(row[key]) - (float(before[key]) if before else 0.0) for key in ("seconds", "flops")}
            kind = "intermediate" if study.variants[variant].by else "further" if before else "variant"
            add(kind, row, alone["seconds"], alone["flops"])
    for row in table:
        add("transfer", row, float(row["finetune_seconds"] or 0), 0.0)
    figures = path.with_suffix(".json")
    tried = read_json(figures).get("learning_rates", {}) if figures.exists() else {}
    for variant in sorted(tried.keys() & last.keys()):  # trainings beside those of the table's rows
        add("rate_trial", {"n": 1, "variant": variant}, tried[variant]["seconds"], tried[variant]["flops"])
    return runs
