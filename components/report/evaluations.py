"""Results of evaluations without fine-tuning."""

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
    """One row per model and evaluation, `all`, with a verdict after Holm's correction over these; after it one per group of items,
    without a verdict."""
    rows, overall, references = [], [], {}
    for model, evaluation in all_params.asked:
        measured = metrics["evaluate", f"{model}-{evaluation}"]
        about = {key: measured[key] for key in ("protocol", "measure")} | {"model": model, "evaluation": evaluation}
        runs = measured["pretrainings"]
        rows.append(about | {
            "group": EVERYTHING, "items": measured["items"], "score": measured["score"], "error": measured["error"],
            "random": measured["random"]["mean"], "random_std": measured["random"]["std"], **measured["gain"],
            **measured.get("references", {}),
            **{key: measured.get(key) for key in ("margin", "bigram_wrong", "bigram_wrong_items")}, "left_out": measured["left_out"],
            "pretrainings": len(runs), "std": stdev(runs) if len(runs) > 1 else None,
        })  # fmt: skip
        if measured["gain"]["p"] is None:  # a single item
            rows[-1]["verdict"] = "undefined"
        else:
            overall.append(rows[-1])
        references |= measured.get("references", {})
        rows += [
            about | {"group": f"{group} (a group)" if group == EVERYTHING else group, **figures}
            for group, figures in measured["groups"].items()
        ]
    words = verdicts.beyond_noise([(row["difference"], row["p"]) for row in overall])
    for row, word in zip(overall, words, strict=True):
        row["verdict"] = word
    return pd.DataFrame(rows, columns=[*COLUMNS, *references]).astype({"error": float, "low": float, "high": float})


def reading(frame: pd.DataFrame) -> str:
    """Sentences on the models that are better than random weights, and than all references."""
    overall = frame[frame["group"] == EVERYTHING]
    signs = overall["measure"].map(better)
    ahead = overall[overall["verdict"].isin(["higher", "lower"]) & (overall["difference"] * signs > 0)]
    named = ", ".join(f"{row.model} {row.score:.3f} ({row.evaluation})" for row in ahead.itertuples())
    text = f"{len(ahead)} of {len(overall)} scores are better than those of random weights of the same architecture, beyond noise"
    names = references_of(frame)
    compared = overall[names].notna().any(axis=1)
    best = overall[names].mul(signs, axis=0).max(axis=1)
    above = overall[compared & (signs * overall["score"] - 2 * overall["error"] > best)]
    listed = ", ".join(f"{row.model} on {row.evaluation}" for row in above.itertuples())
    ahead_of = f"Ahead of the best of {', '.join(names).replace('_', ' ')} by more than two standard errors: {listed or 'none'}."
    return f"{text}{f': {named}' if named else ''}.{f' {ahead_of}' if compared.any() else ''}"


def once(frame: pd.DataFrame) -> list[str]:
    """The models with a single pre-training."""
    return list(dict.fromkeys(frame.loc[frame["pretrainings"] == 1, "model"]))


def references_of(frame: pd.DataFrame) -> list[str]:
    """The columns with scores of baselines."""
    return [column for column in frame.columns if column not in COLUMNS]


def layers(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """One row per layer, of evaluations of single layers."""
    rows = []
    for model, evaluation in all_params.asked:
        for number, layer in enumerate(metrics["evaluate", f"{model}-{evaluation}"].get("layers", ())):
            rows.append({"model": model, "evaluation": evaluation, "layer": number, **layer})
    return pd.DataFrame(rows, columns=LAYERS)


def attention_heads(all_params: params.Params, metrics: Metrics) -> list[dict]:
    """The attention head that finds the syntactic head of each relation most often: one row per model, evaluation and relation."""
    return [
        {"model": model, "evaluation": evaluation, "relation": relation, **head}
        for model, evaluation in all_params.asked
        for relation, head in metrics["evaluate", f"{model}-{evaluation}"].get("best", {}).items()
    ]


def better(measure: str) -> int:
    """1 where a higher value of a measure is better, else -1."""
    return -1 if measure in LOWER_IS_BETTER else 1
