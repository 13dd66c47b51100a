"""Results on generated texts."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from components import params
from components.comparison import plots
from components.report.benchmarks import Metrics
from components.stages.outputs import read_json, read_lines

SHOWN = 6
"""Number of texts of each generation."""


def section(all_params: params.Params, metrics: Metrics) -> dict[str, Any]:
    """The page's section: one row per generation, some texts, and the metrics with their versions."""
    texts = {name: list(read_lines(Path("data/generated", name, "texts.jsonl")))[:SHOWN] for name in all_params.generations}
    signatures = {line for name in all_params.generations for line in _card(name)["signatures"].values()}
    return {"table": table(all_params, metrics), "texts": texts, "signatures": sorted(signatures)}


def figures(all_params: params.Params) -> dict[str, Figure]:
    """The attention of the first text of each generation to its source."""
    attention = {name: _card(name)["attention"] for name in all_params.generations}
    return {f"attention_{name}": plots.attention(weights) for name, weights in attention.items() if weights}


def table(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """One row per generation; new n-grams and copies next to those of texts by people."""
    rows = []
    for name, block in all_params.generations.items():
        measured = metrics["generate", name]
        row = {"name": name, "model": block.model, "search": describe(block.decoding), "texts": measured["texts"]}
        row |= {
            "BLEU": measured.get("bleu"),
            "±": measured.get("bleu_interval"),
            "word by word": measured.get("word_by_word", {}).get("bleu"),
        }
        by_any = measured.get("solved_by_any", {}).get(str(block.answers))
        answers = block.answers if by_any is not None else None
        row |= {"solved": measured.get("solved"), "answers": answers, "solved by any": by_any}
        row |= {"p": measured.get("bleu_p"), "chrF": measured.get("chrf")}
        for key, title in (("novel_4", "new 4-grams"), ("copy", "copied run")):
            row |= {title: measured.get("written", {}).get(key), f"{title}, people's": measured.get("by_people", {}).get(key)}
        rows.append(row | {"cut off": measured["unended"], "tokens/s": measured["tokens_per_second"]})
    return pd.DataFrame(rows).dropna(axis=1, how="all")


def describe(decoding: params.HowWritten) -> str:
    if decoding.kind == "beam":
        return f"{decoding.beams} beams, length penalty {decoding.length_penalty:g}"
    penalty = [f"repetition penalty {decoding.repetition_penalty:g}"] * (decoding.repetition_penalty != 1)
    if decoding.kind == "greedy":
        return ", ".join(["greedy", *penalty])
    chosen = [f"top {decoding.top_k}"] * bool(decoding.top_k) + [f"top p {decoding.top_p:g}"] * (decoding.top_p < 1)
    return ", ".join(["drawn", f"temperature {decoding.temperature:g}", *chosen, *penalty])


def _card(name: str) -> dict[str, Any]:
    return read_json(Path("data/generated", name, "card.json"))
