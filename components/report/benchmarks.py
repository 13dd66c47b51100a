"""Tables in the layout of the papers: a benchmark's tasks side by side, tuning against freezing, published rows beside ours."""

from pathlib import Path

import pandas as pd
from ruamel.yaml import YAML

from components import params
from components.report.tables import named
from components.tasks.benchmarks import CONVENTIONS

COLUMNS = {"glue": "glue_bert_paper", "superglue": "superglue"}
"""The convention that gives a benchmark's columns and its mean."""
PUBLISHED = YAML(typ="safe").load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))

Metrics = dict[tuple[str, str], dict]


def columns(benchmark: str) -> dict[str, list[tuple[str, str, str]]]:
    """The column's name -> what it is the mean of: (task, split, metric)."""
    named = {}
    for part in CONVENTIONS[COLUMNS[benchmark]]:
        task, split, _ = part[0]
        named["mnli-mm" if split == "mismatched" else "mnli-m" if task == "mnli" else task] = list(part)
    return named


def value(found: dict, init: str, split: str, metric: str) -> float | None:
    """The mean over seeds, in percent; None where it is undefined or not measured."""
    scores = found["baselines"].get(init, {}) if "baselines" in found else found.get(init, {})
    mean = scores.get(found["split"] if split == "eval" else split, {}).get(metric, {}).get("mean")
    return None if mean is None else 100 * mean


def benchmark(all_params: params.Params, metrics: Metrics, name: str) -> pd.DataFrame | None:
    """A row a system, a column a task, in percent, ours before the published ones; None where fewer than two of its tasks were run."""
    wanted = columns(name)
    if sum(task in all_params.finetune.tasks for task in {parts[0][0] for parts in wanted.values()}) < 2:
        return None
    systems = [("finetune", f"{model}-{{}}", init, model) for init in all_params.finetune.inits for model in all_params.finetune.models]
    systems += [("baseline", "{}", method, method) for method in all_params.baselines.methods]
    rows = []
    for stage, pattern, init, system in systems:
        row, splits = {"system": system}, set()
        for column, parts in wanted.items():
            found = metrics.get((stage, pattern.format(parts[0][0])))
            values = [value(found, init, split, metric) if found else None for _, split, metric in parts]
            row[column] = None if None in values else sum(values) / len(values)
            if found:
                splits.add(found["split"])
                row["system"] = (named(found) if stage == "finetune" else system) + (", random weights" if init == "random" else "")
        scores = [row[column] for column in wanted]
        rows.append(row | {"mean": None if None in scores else sum(scores) / len(scores), "from": f"ours, {' and '.join(sorted(splits))}"})
    for system, figures in PUBLISHED[name]["rows"].items():
        rows.append({"system": system} | {column: figures.get(column) for column in (*wanted, "mean")} | {"from": PUBLISHED[name]["source"]})
    return pd.DataFrame(rows).astype({column: float for column in (*wanted, "mean")})


def long(papers: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The benchmarks' tables as one of fixed columns: benchmark, system, from, column, percent."""
    parts = [
        frame.melt(["system", "from"], var_name="column", value_name="percent").assign(benchmark=name) for name, frame in papers.items() if name in COLUMNS
    ]  # fmt: skip
    names = ["benchmark", "system", "from", "column", "percent"]
    return pd.concat(parts)[names] if parts else pd.DataFrame(columns=names)


def tune_or_freeze(all_params: params.Params, metrics: Metrics) -> pd.DataFrame | None:
    """A row a way to adapt a model, a column a task (its headline, mean and deviation over seeds), and what the way costs; None without ways."""
    adapt = all_params.adapt
    tasks = [task for task in all_params.finetune.tasks if task in adapt.tasks] + [task for task in adapt.tasks if task not in all_params.finetune.tasks]
    if not (adapt.models and adapt.methods and tasks):
        return None
    ways = [(all_params.finetune.recipes[model].method, "finetune", f"{model}-{{}}") for model in all_params.finetune.models if model in adapt.models]
    ways += [(method, "adapt", f"{model}-{method}-{{}}") for model in adapt.models for method in adapt.methods]
    rows = []
    for method, stage, pattern in ways:
        found = {task: metrics[stage, pattern.format(task)] for task in tasks if (stage, pattern.format(task)) in metrics}
        if not found:
            continue
        parts = list(found.values())
        costs = [part["costs"]["pretrained"] for part in parts]
        row = {"model": named(parts[0]), "method": method, "stage": stage}
        for task in tasks:
            scores = found[task]["pretrained"][found[task]["split"]][found[task]["metric"]] if task in found else {}
            row[f"{task} {all_params.tasks[task].metric}"] = scores.get("mean")
            row[f"{task} std"] = scores.get("std")
        rows.append(row | {
            "trainable_parameters": max(part["trainable_parameters"] for part in parts), "trainable_share": max(part["trainable_share"] for part in parts),
            "memory_mib": max(cost["memory_mib"] for cost in costs), "seconds": sum(cost["seconds"] for cost in costs),
        })  # fmt: skip
    return pd.DataFrame(rows)
