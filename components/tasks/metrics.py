"""Metrics of a task, computed once on the whole split (never averaged over batches), and their spread over seeds."""

import statistics

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from components import params


def _correlation(function, predicted: np.ndarray, gold: np.ndarray) -> float | None:
    """None where a constant makes the correlation undefined: reported, not faked."""
    if np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return None
    return float(function(predicted, gold).statistic)


def evaluate(task: params.Task, predicted: list[str] | list[float], gold: list[str] | list[float]) -> dict[str, float | None]:
    """Every metric that fits the task, as fractions: accuracy, f1, matthews_correlation, or pearson, spearman.

    Regression predictions are clipped to the task's range. F1 is that of the second label of two, else the macro average.
    """
    if task.kind == "regression":
        values = np.clip(np.array(predicted, dtype=float), *(task.range or (-np.inf, np.inf)))
        truth = np.array(gold, dtype=float)
        return {"pearson": _correlation(pearsonr, values, truth), "spearman": _correlation(spearmanr, values, truth)}
    if len(task.labels) == 2:
        f1 = f1_score(gold, predicted, pos_label=task.labels[1], zero_division=0.0)
    else:
        f1 = f1_score(gold, predicted, labels=task.labels, average="macro", zero_division=0.0)
    undefined = len(set(predicted)) == 1 or len(set(gold)) == 1
    return {
        "accuracy": float(accuracy_score(gold, predicted)),
        "f1": float(f1),
        "matthews_correlation": None if undefined else float(matthews_corrcoef(gold, predicted)),
    }


def summary(scores: list[dict[str, float | None]]) -> dict[str, dict]:
    """Each metric's mean, sample standard deviation (None for one seed), n and values; a mean over an undefined value is undefined."""
    result = {}
    for metric in scores[0]:
        values = [score[metric] for score in scores]
        defined = None not in values
        result[metric] = {
            "mean": statistics.fmean(values) if defined else None,
            "std": statistics.stdev(values) if defined and len(values) > 1 else None,
            "n": len(values),
            "values": values,
        }
    return result


def protocol(selection: str, train: int, test: int) -> str:
    """How a score came about, for every table that shows it."""
    return f"test split ({test} examples); {selection}, nothing selected on dev; {train} labelled examples"


def shown(value: float | None) -> str:
    """A score for the terminal."""
    return "undefined (constant predictions)" if value is None else f"{value:.3f}"
