"""What the report says of models that were asked without being tuned."""

import pandas as pd

from components import params
from components.comparison import verdicts
from components.report.benchmarks import Metrics

EVERYTHING = "all"
COLUMNS = [
    "model", "evaluation", "group", "items", "accuracy", "error", "random", "random_std", "difference", "low", "high", "p", "verdict",
    "detectable", "unigram", "bigram", "trigram", "margin", "bigram_wrong", "bigram_wrong_items", "left_out", "protocol",
]  # fmt: skip


def table(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """A row for each model and evaluation, `all`, with a verdict after Holm's correction over these; behind it one for each group of
    items, without."""
    rows, whole = [], []
    for name in (f"{model}-{own}" for own in all_params.evaluate.evaluations for model in all_params.evaluate.models):
        measured = metrics["evaluate", name]
        model, _, evaluation = name.partition("-")
        about = {"model": model, "evaluation": evaluation, "protocol": measured["protocol"]}
        hard, gain = measured.get("bigram_wrong", {}), measured["gain"]
        rows.append(about | {
            "group": EVERYTHING, "items": measured["items"], "accuracy": measured["accuracy"], "error": measured["accuracy_error"],
            "random": measured["random"]["mean"], "random_std": measured["random"]["std"], **gain, **measured["references"],
            "margin": measured["margin"], "bigram_wrong": hard.get("accuracy"), "bigram_wrong_items": hard.get("items"),
            "left_out": measured["left_out"],
        })  # fmt: skip
        whole.append(rows[-1])
        rows += [about | {"group": group, **own} for group, own in measured["groups"].items()]
    for row, corrected in zip(whole, verdicts.holm([row["p"] for row in whole]), strict=True):
        beyond = corrected < verdicts.LEVEL
        row["verdict"] = "not beyond noise" if not beyond else "higher" if row["difference"] > 0 else "lower"
    return pd.DataFrame(rows, columns=COLUMNS)


def reading(frame: pd.DataFrame) -> str:
    """What the figures support, in a sentence or two."""
    whole = frame[frame["group"] == EVERYTHING]
    ahead = whole[whole["verdict"] == "higher"]
    named = ", ".join(f"{row.model} {row.accuracy:.3f} ({row.evaluation})" for row in ahead.itertuples())
    knows = whole[whole["accuracy"] - 2 * whole["error"] > whole[["unigram", "bigram", "trigram"]].max(axis=1)]
    said = f"Without any tuning, {len(ahead)} of {len(whole)} are beyond noise above random weights of the same architecture"
    better = ", ".join(f"{row.model} on {row.evaluation}" for row in knows.itertuples())
    ngrams = "By more than two standard errors ahead of n-grams of words, counted on the same text"
    return f"{said}{f': {named}' if named else ''}. {ngrams}: {better or 'none'}."
