"""Tables in the layout of papers: the tasks of a benchmark, tuning against freezing, with published rows."""

from pathlib import Path

import pandas as pd
from ruamel.yaml import YAML

from components import params
from components.report import STARTS
from components.report.tables import named
from components.tasks.benchmarks import CONVENTIONS, Score

COLUMNS = {"glue": "glue_bert_paper", "superglue": "superglue"}
"""The convention of a benchmark's columns and mean."""
PUBLISHED = YAML(typ="safe").load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))

Metrics = dict[tuple[str, str], dict]


def columns(benchmark: str) -> dict[str, list[Score]]:
    """Name of a column -> the scores whose mean it is."""
    of_column = {}
    for scores in CONVENTIONS[COLUMNS[benchmark]]:
        task, split, _ = scores[0]
        of_column["mnli-mm" if split == "mismatched" else "mnli-m" if task == "mnli" else task] = list(scores)
    return of_column


def value(measured: dict, init: str, split: str, metric: str) -> float | None:
    """The mean over seeds, in percent; None where undefined or not measured."""
    scores = measured["baselines"].get(init, {}) if "baselines" in measured else measured.get(init, {})
    mean = scores.get(measured["split"] if split == "eval" else split, {}).get(metric, {}).get("mean")
    return None if mean is None else 100 * mean


def benchmark(all_params: params.Params, metrics: Metrics, name: str) -> pd.DataFrame | None:
    """One row per system, one column per task, in percent, ours before the published ones; None with fewer than two of its tasks."""
    wanted = columns(name)
    if sum(task in all_params.finetune.tasks for task in {scores[0][0] for scores in wanted.values()}) < 2:
        return None
    systems = [("finetune", f"{model}-{{}}", init, model) for init in all_params.finetune.inits for model in all_params.finetune.models]
    systems += [("baseline", "{}", method, method) for method in all_params.baselines.methods]
    rows = [_ours(metrics, wanted, *system) for system in systems]
    published = PUBLISHED[name]
    for system, figures in published["rows"].items():
        rows.append({"system": system} | {column: figures.get(column) for column in (*wanted, "mean")} | {"from": published["source"]})
    return pd.DataFrame(rows).astype({column: float for column in (*wanted, "mean")})


def _ours(metrics: Metrics, wanted: dict[str, list[Score]], stage: str, pattern: str, init: str, system: str) -> dict:
    """The row of a system of ours; `pattern` gives the name of its stage for a task."""
    row, splits = {"system": system}, set()
    for column, scores in wanted.items():
        measured = metrics.get((stage, pattern.format(scores[0][0])))
        values = [value(measured, init, split, metric) if measured else None for _, split, metric in scores]
        row[column] = None if None in values else sum(values) / len(values)
        if measured:
            splits.add(measured["split"])
            row["system"] = (named(measured) if stage == "finetune" else system) + (f", {STARTS[init]}" if init in STARTS else "")
    values = [row[column] for column in wanted]
    # a mean over some of the tasks would be misleading; the split is shown, since dev is not test
    return row | {"mean": None if None in values else sum(values) / len(values), "from": f"ours, {' and '.join(sorted(splits))}"}


def long(papers: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The benchmarks' tables in long form: benchmark, system, from, column, percent."""
    frames = [
        frame.melt(["system", "from"], var_name="column", value_name="percent").assign(benchmark=name)
        for name, frame in papers.items()
        if name in COLUMNS
    ]
    names = ["benchmark", "system", "from", "column", "percent"]
    return pd.concat(frames)[names] if frames else pd.DataFrame(columns=names)


def tune_or_freeze(all_params: params.Params, metrics: Metrics) -> pd.DataFrame | None:
    """One row per model and method, one column per task (main metric, mean and deviation over seeds), and the costs.

    None without results.
    """
    finetune, adapt = all_params.finetune, all_params.adapt
    tasks = [task for task in finetune.tasks if task in adapt.tasks] + [task for task in adapt.tasks if task not in finetune.tasks]
    if not (adapt.models and adapt.methods and tasks):
        return None
    ways = [(finetune.recipes[model].method, "finetune", f"{model}-{{}}") for model in finetune.models if model in adapt.models]
    ways += [(method, "adapt", f"{model}-{method}-{{}}") for model in adapt.models for method in adapt.methods]
    rows = []
    for method, stage, pattern in ways:
        measured = {task: metrics[stage, pattern.format(task)] for task in tasks if (stage, pattern.format(task)) in metrics}
        if not measured:
            continue
        pairs = next((one["pair"] for one in measured.values() if one.get("pair")), None)
        row = {"model": named(next(iter(measured.values()))), "method": method, "pairs": pairs, "stage": stage}
        for task in tasks:
            result = measured.get(task)
            scores = result["pretrained"][result["split"]][result["metric"]] if result else {}
            row[f"{task} {all_params.tasks[task].metric}"] = scores.get("mean")
            row[f"{task} std"] = scores.get("std")
        rows.append(row | _cost(list(measured.values())))
    return pd.DataFrame(rows)


def _cost(measured: list[dict]) -> dict[str, float]:
    """The cost over the tasks: the most parameters and memory of one, which a machine needs, and the sum of the seconds."""
    trainings = [of_task["costs"]["pretrained"] for of_task in measured]
    return {
        "trainable_parameters": max(of_task["trainable_parameters"] for of_task in measured),
        "trainable_share": max(of_task["trainable_share"] for of_task in measured),
        "memory_mib": max(of_task["memory_mib"] for of_task in measured),
        "seconds": sum(training["seconds"] for training in trainings),
    }
