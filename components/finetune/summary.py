"""Scores over seeds as mean, spread and n."""

import statistics


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
