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
    predictions: dict[int, dict[str, object]] = {}
    with stage.reading(file := folder / "predictions.jsonl"):
        for row in stage.read_lines(file):
            if row["split"] == split and row["init"] == init:
                predictions.setdefault(row["seed"], {})[row["id"]] = row["prediction"]
    if not predictions:
        raise SesameError(f"{folder} has no predictions for the {split} split from {init} weights")
    return predictions


def paired(all_params: params.Params, name: str, split: str, a: tuple[str, str], b: tuple[str, str], resamples: int = 1000) -> Difference:
    """Compare (model, init) `a` with `b` on a task: the examples are drawn anew, the same for both, and the metric taken on each draw.

    Raises SesameError where the split has no labels, a side no predictions, both no example in common, or the metric is undefined.
    """
    task = all_params.tasks[name]
    declared = task.splits[split]
    if not declared.labelled:
        raise SesameError(f"the split {split} of {name} has no labels: it is for submission only")
    metric = (declared.metrics or task.metrics)[0]
    judge = metrics.METRICS[task.kind][metric]

    # Only examples that every seed of both sides has predicted can be compared; `predicted` is by side, seed, example.
    sides = [list(read(Path("data/scores", model, name), split, init).values()) for model, init in (a, b)]
    examples = tasks.read(Path("data/tasks", name), split)
    judged = [example for example in examples if all(example.id in by_id for side in sides for by_id in side)]
    if not judged:
        raise SesameError(f"{a[0]} and {b[0]} have no example of {name} {split} in common")
    predicted = [[[by_id[example.id] for example in judged] for by_id in side] for side in sides]

    def means(index: np.ndarray) -> list[float] | None:
        """Of both sides over their seeds, on the examples at `index`; None where a seed's metric is undefined on them."""
        drawn, of_sides = [judged[i] for i in index], []
        for side in predicted:
            scores = [judge(task, drawn, [predictions[i] for i in index]) for predictions in side]
            if None in scores:
                return None
            of_sides.append(float(np.mean(scores)))
        return of_sides

    whole = means(np.arange(len(judged)))
    if whole is None:
        raise SesameError(f"{metric} of {name} {split} is undefined: a side's predictions are constant")
    rng = np.random.default_rng(0)
    drawn = [means(rng.integers(len(judged), size=len(judged))) for _ in range(resamples)]
    differences = [pair[0] - pair[1] for pair in drawn if pair is not None]  # of a constant draw there is none; it is counted
    low, high = np.percentile(differences, [2.5, 97.5])
    undefined = resamples - len(differences)
    return Difference(metric, len(judged), whole[0], whole[1], whole[0] - whole[1], float(low), float(high), undefined)
