"""What the report says of models that were asked without being tuned."""

from statistics import stdev

import pandas as pd

from components import params
from components.comparison import verdicts
from components.evaluations.config import LOWER_IS_BETTER
from components.report.benchmarks import Metrics

EVERYTHING = "all"
COLUMNS = [
    "model", "evaluation", "measure", "group", "items", "score", "error", "random", "random_std", "difference", "low", "high", "p",
    "verdict", "detectable", "pretrainings", "std", "margin", "bigram_wrong", "bigram_wrong_items", "left_out", "protocol",
]  # fmt: skip

LAYERS = ["model", "evaluation", "layer", "score", "random_score", "control", "selectivity", "compression"]


def table(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """A row for each model and evaluation, `all`, with a verdict after Holm's correction over these; behind it one for each group of
    items, without."""
    rows, whole, references = [], [], {}
    for model, evaluation in all_params.asked:
        measured = metrics["evaluate", f"{model}-{evaluation}"]
        about = {key: measured[key] for key in ("protocol", "measure")} | {"model": model, "evaluation": evaluation}
        hard, gain = measured.get("bigram_wrong", {}), measured["gain"]
        runs = measured["pretrainings"]
        rows.append(about | {
            "group": EVERYTHING, "items": measured["items"], "score": measured["score"], "error": measured["error"],
            "random": measured["random"]["mean"], "random_std": measured["random"]["std"], **gain, **measured.get("references", {}),
            "margin": measured.get("margin"), "bigram_wrong": hard.get("accuracy"), "bigram_wrong_items": hard.get("items"),
            "left_out": measured["left_out"],
            "pretrainings": len(runs), "std": stdev(runs) if len(runs) > 1 else None,
        })  # fmt: skip
        whole.append(rows[-1])
        references |= measured.get("references", {})
        rows += [about | {"group": group, **own} for group, own in measured["groups"].items()]
    for row, corrected in zip(whole, verdicts.holm([row["p"] for row in whole]), strict=True):
        beyond = corrected < verdicts.LEVEL
        row["verdict"] = "not beyond noise" if not beyond else "higher" if row["difference"] > 0 else "lower"
    return pd.DataFrame(rows, columns=[*COLUMNS, *references])


def reading(frame: pd.DataFrame) -> str:
    """What the figures support, in a sentence or two."""
    whole = frame[frame["group"] == EVERYTHING]
    ahead = whole[(whole["verdict"] != "not beyond noise") & (whole["difference"] * whole["measure"].map(better) > 0)]
    named = ", ".join(f"{row.model} {row.score:.3f} ({row.evaluation})" for row in ahead.itertuples())
    said = f"Without any tuning, {len(ahead)} of {len(whole)} are beyond noise better than random weights of the same architecture"
    names = references_of(frame)
    signs = whole["measure"].map(better)
    judged = whole[names].notna().any(axis=1)
    best = whole[names].mul(signs, axis=0).max(axis=1)
    knows = whole[judged & (signs * whole["score"] - 2 * whole["error"] > best)]
    listed = ", ".join(f"{row.model} on {row.evaluation}" for row in knows.itertuples())
    ahead_of = f"By more than two standard errors ahead of the best of {', '.join(names).replace('_', ' ')}: {listed or 'none'}."
    return f"{said}{f': {named}' if named else ''}.{f' {ahead_of}' if judged.any() else ''}"


def once(frame: pd.DataFrame) -> list[str]:
    """The models with a single pre-training."""
    return list(dict.fromkeys(frame.loc[frame["pretrainings"] == 1, "model"]))


def references_of(frame: pd.DataFrame) -> list[str]:
    """The columns with scores of what is no model."""
    return [column for column in frame.columns if column not in COLUMNS]


def layers(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """A row for each layer that an evaluation read by itself."""
    rows = []
    for model, evaluation in all_params.asked:
        for place, layer in enumerate(metrics["evaluate", f"{model}-{evaluation}"].get("layers", ())):
            rows.append({"model": model, "evaluation": evaluation, "layer": place, **layer})
    return pd.DataFrame(rows, columns=LAYERS)


def better(measure: str) -> int:
    """1 where more of a measure is better, else -1."""
    return -1 if measure in LOWER_IS_BETTER else 1
