"""Paired bootstrap between two sets of predictions on the same examples (Efron and Tibshirani 1993, chapter 16; Koehn 2004)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components import params, stage, tasks
from components.errors import SesameError
from components.tasks import metrics


@dataclass(frozen=True)
class Difference:
    """A less B in a task's headline metric."""

    metric: str
    examples: int
    a: float
    """Mean over A's seeds."""
    b: float
    difference: float
    low: float
    """Of the 95 % interval over resampled examples; the spread over seeds is not in it."""
    high: float
    undefined: int
    """Resamples in which the metric was undefined."""


def read(folder: Path, split: str, init: str) -> dict[int, dict[str, object]]:
    """seed -> id -> prediction, out of `predictions.jsonl`. Raises SesameError where there are none."""
    found: dict[int, dict[str, object]] = {}
    with stage.reading(file := folder / "predictions.jsonl"):
        for row in stage.read_lines(file):
            if row["split"] == split and row["init"] == init:
                found.setdefault(row["seed"], {})[row["id"]] = row["prediction"]
    if not found:
        raise SesameError(f"{folder} has no predictions for the {split} split from {init} weights")
    return found


def paired(all_params: params.Params, name: str, split: str, a: tuple[str, str], b: tuple[str, str], resamples: int = 1000) -> Difference:
    """Compare (model, init) `a` with `b` on a task: the examples are drawn anew, the same for both, and the metric taken on each draw."""
    task = all_params.tasks[name]
    block = task.splits[split]
    if not block.labelled:
        raise SesameError(f"the split {split} of {name} has no labels: it is for submission only")
    metric = (block.metrics or task.metrics)[0]
    judge = metrics.METRICS[task.kind][metric]
    sides = [read(Path("data/scores", model, name), split, init) for model, init in (a, b)]
    judged = [row for row in tasks.read(Path("data/tasks", name), split) if all(row.id in found for side in sides for found in side.values())]
    if not judged:
        raise SesameError(f"{a[0]} and {b[0]} have no example of {name} {split} in common")
    predicted = [[[found[row.id] for row in judged] for found in side.values()] for side in sides]

    def scores(index: np.ndarray) -> list[float] | None:
        drawn, means = [judged[i] for i in index], []
        for side in predicted:
            found = [judge(task, drawn, [run[i] for i in index]) for run in side]
            if None in found:
                return None
            means.append(float(np.mean(found)))
        return means

    whole = scores(np.arange(len(judged)))
    if whole is None:
        raise SesameError(f"{metric} of {name} {split} is undefined: a side's predictions are constant")
    rng = np.random.default_rng(0)
    drawn = [scores(rng.integers(len(judged), size=len(judged))) for _ in range(resamples)]
    differences = [pair[0] - pair[1] for pair in drawn if pair is not None]
    low, high = np.percentile(differences, [2.5, 97.5])
    return Difference(metric, len(judged), whole[0], whole[1], whole[0] - whole[1], float(low), float(high), resamples - len(differences))
