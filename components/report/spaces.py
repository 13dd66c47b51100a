"""Results on vector spaces: alignments, words that moved, histories, groups of writers."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from components import params
from components.comparison import plots, verdicts
from components.report.benchmarks import Metrics
from components.report.tables import csv

WORDS = 20
"""Rows of a list that are shown."""
NORMAL = 0.635
"""Of normal deviations the mean logarithm of the absolute value is so much less than that of the standard deviation."""
ALIGNMENT = [
    "pair", "method", "retrieval", "p1", "p1_low", "p1_high", "less_first", "less_low", "less_high", "p5", "p10", "mrr", "mutual",
    "p1_mutual", "p1_unseen", "queries_unseen", "hub_skew", "top_hub", "seed_pairs", "pairs", "rounds", "coverage", "queries",
]  # fmt: skip


def section(all_params: params.Params, metrics: Metrics) -> dict[str, Any]:
    """The page's section of vector spaces."""
    changed = {pair: moved(all_params, pair) for pair in all_params.alignments}
    return {
        "word_vectors": word_vectors(all_params, metrics), "alignment": alignment_table(alignment(all_params)),
        "lookups": {pair: lookups(pair) for pair in languages(all_params)}, "views": views(all_params),
        "moved": {pair: (words, facts) for pair, (words, facts) in changed.items() if facts},
        "histories": histories(all_params, metrics), "groups": groups(all_params, metrics),
    }  # fmt: skip


def figures(all_params: params.Params) -> dict[str, Figure]:
    """The plots for which there are results."""
    drawn = {}
    if len(table := seed_curves(all_params)):
        drawn["seed_pairs"] = plots.seed_pairs(table)
    if len(table := hubs(all_params)):
        drawn["hubs"] = plots.hubs(table)
    for name, history in all_params.histories.items():
        # none of the words may be frequent in every period
        if history.words and len(places := csv(Path("data/align", name, "places.csv"))):
            drawn[f"history_{name}"] = plots.trajectories(places, history.periods)
    return drawn


def languages(all_params: params.Params) -> list[str]:
    """Pairs of spaces of two languages."""
    return [name for name, pair in all_params.alignments.items() if pair.dictionary.kind != "identical"]


def word_vectors(all_params: params.Params, metrics: Metrics) -> pd.DataFrame:
    """One row per space of word vectors with its intrinsic tests: correlation or accuracy, and the share of the test that was covered."""
    rows = []
    kinds = {name: ("vectors", block.kind) for name, block in all_params.vectors.items()}
    kinds |= {name: ("published_vectors", "published") for name in all_params.published_vectors}
    kinds |= {name: ("contextual_vectors", f"in context, {block.model}") for name, block in all_params.contextual_vectors.items()}
    for name, (group, kind) in kinds.items():
        measured = metrics[group, name]
        row = {"name": name, "kind": kind, "words of text": measured.get("words"), "words": measured["vocabulary"]}
        for test, figures in measured.get("intrinsic", {}).items():
            for key in ("spearman", "add", "multiply"):
                if figures.get(key) is not None:
                    row[test if key == "spearman" else f"{test}, {key}"] = f"{figures[key]:.3f} ({figures['coverage']:.0%})"
        rows.append(row)
    return pd.DataFrame(rows).astype(object)


def alignment(all_params: params.Params) -> pd.DataFrame:
    """One row per pair of spaces, method and retrieval."""
    frames = [csv(Path("data/align", pair, "scores.csv")).assign(pair=pair) for pair in all_params.alignments]
    return pd.concat(frames, ignore_index=True)[ALIGNMENT] if frames else pd.DataFrame(columns=ALIGNMENT)


def lookups(pair: str, words: int = 12) -> tuple[str, pd.DataFrame]:
    """Held-out words and the words found for them by the method and retrieval with the best P@1, with its name."""
    scores, table = (csv(Path("data/align", pair, f"{name}.csv")) for name in ("scores", "examples"))
    best = scores.loc[scores["p1"].idxmax()]
    rows = table[(table["method"] == best["method"]) & (table["retrieval"] == best["retrieval"])]
    return f"{best['method']}, {best['retrieval']}", rows.head(words)[["word", "gold", "found"]]


def seed_curves(all_params: params.Params) -> pd.DataFrame:
    """P@1 against seed pairs, for the pairs of spaces with a `curve`."""
    frames = [csv(Path("data/align", name, "curve.csv")).assign(pair=name) for name, pair in all_params.alignments.items() if pair.curve]
    return pd.concat(frames) if frames else pd.DataFrame(columns=["pair", "method", "seed_pairs", "p1"])


def views(all_params: params.Params) -> dict[str, list[dict]]:
    """For each pair of two languages the positions of some words and their translations, before and after the alignment."""
    return {name: csv(Path("data/align", name, "view.csv")).to_dict("records") for name in languages(all_params)}


def hubs(all_params: params.Params) -> pd.DataFrame:
    """How often targets are found, for each pair of languages with the method with the best P@1."""
    frames = []
    for pair in languages(all_params):
        scores = csv(Path("data/align", pair, "scores.csv"))
        best = scores.loc[scores["p1"].idxmax(), "method"]
        table = csv(Path("data/align", pair, "hubs.csv"))
        frames.append(table[table["method"] == best].assign(pair=pair))
    return pd.concat(frames) if frames else pd.DataFrame(columns=["pair", "method", "retrieval", "times", "targets"])


def moved(all_params: params.Params, pair: str, words: int = WORDS) -> tuple[pd.DataFrame, dict]:
    """The words that moved most, beyond words of the same frequency between two halves of one period; nothing without such controls.

    Rare words are far from themselves in any two texts, and by amounts that differ more: the mean distance falls with the logarithm of the
    frequency, and so does its spread (Dubossarsky et al. 2017). A word's `change` is its distance minus that of a fitted line, and its
    `score` is the change in units of the spread at its frequency. It is beyond a control if its score is larger than 95 % of the control's;
    `falsely` is the false discovery rate among the words with as high a score, with the controls' words as the null distribution.
    """
    controls = all_params.alignments[pair].controls
    if not controls:
        return pd.DataFrame(), {}
    table, floors = _moved(pair), {control: _moved(control) for control in controls}
    pooled = pd.concat(floors.values())
    line = np.polyfit(pooled["rarity"], pooled["distance"], 1)
    off = np.abs(pooled["distance"] - np.polyval(line, pooled["rarity"])).clip(lower=1e-6)
    spread = np.polyfit(pooled["rarity"], np.log(off), 1)

    def score(words: pd.DataFrame) -> pd.Series:
        return (words["distance"] - np.polyval(line, words["rarity"])) / np.exp(np.polyval(spread, words["rarity"]) + NORMAL)

    limits = {name: float(score(floor).quantile(0.95)) for name, floor in floors.items()}
    table["control"] = np.polyval(line, table["rarity"])
    table["change"] = table["distance"] - table["control"]
    table["score"] = score(table)
    table["falsely"] = verdicts.false_discovery_rates(table["score"].to_numpy(), score(pooled).to_numpy())
    facts = {
        "words": len(table), "controls": list(floors),
        "mean": float(table["distance"].mean()), "control_mean": float(pooled["distance"].mean()),
        "changed": int((table["falsely"] <= verdicts.LEVEL).sum()),
        "beyond": {name: float((table["score"] > limit).mean()) for name, limit in limits.items()},
    }  # fmt: skip
    return table.drop(columns="rarity").sort_values("score", ascending=False).head(words), facts


def _moved(pair: str) -> pd.DataFrame:
    """How far each word moved, and its rarity: minus the logarithm of its frequency in the text where it is rarer."""
    table = csv(Path("data/align", pair, "moved.csv"))
    return table.assign(rarity=-np.log(table[["source_count", "target_count"]].min(axis=1)))


def alignment_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The scores of alignments for the page, intervals in brackets."""

    def interval(form: str, *columns: str) -> list[str]:
        return [f"{form} [{form}, {form}]" % tuple(row[column] for column in columns) for _, row in frame.iterrows()]

    shown = frame[["pair", "method", "retrieval"]].assign(**{"P@1": interval("%.3f", "p1", "p1_low", "p1_high")})
    shown["minus the first method"] = interval("%+.3f", "less_first", "less_low", "less_high")
    others = {
        "p5": "P@5", "p10": "P@10", "mrr": "MRR", "mutual": "mutual", "p1_mutual": "P@1 mutual",
        "p1_unseen": "P@1 untaught", "queries_unseen": "of", "hub_skew": "hub skew",
        "top_hub": "top hub", "seed_pairs": "seed pairs", "pairs": "learned from", "rounds": "rounds", "coverage": "coverage",
        "queries": "queries",
    }  # fmt: skip
    return shown.join(frame[list(others)].rename(columns=others))


def histories(all_params: params.Params, metrics: Metrics) -> dict[str, dict]:
    """For each history the chosen words in each period, the words that moved most, and the known shifts."""
    shown = {}
    for name, history in all_params.histories.items():
        folder = Path("data/align", name)
        shown[name] = {
            "trajectories": csv(folder / "trajectories.csv"), "periods": history.periods,
            "changed": csv(folder / "changed.csv").head(WORDS),
            "known": csv(folder / "known.csv") if history.known else None, "figures": metrics["history", name],
        }  # fmt: skip
    return shown


def groups(all_params: params.Params, metrics: Metrics) -> dict[str, dict]:
    """For each two sets of writers the words that they use most differently, and their number."""
    return {
        name: {"used": csv(Path("data/align", name, "used.csv")).head(WORDS), "figures": metrics["group", name], "settings": settings}
        for name, settings in all_params.groups.items()
    }
