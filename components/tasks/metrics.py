"""Metrics of a task, computed once on the whole split (never averaged over batches)."""

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
