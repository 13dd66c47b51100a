"""`python -m components.report`: all results -> data/report/: index.html, CSV tables, figures.json, and summary.json for DVC."""

import statistics
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from components import params
from components.comparison import pages, plots, price
from components.core import storage
from components.core.tracking import Run
from components.report import STARTS, benchmarks, evaluations, spaces, tables, writing
from components.stages import leftovers, stage
from components.stages.outputs import METRICS

FOLDER = Path("data/report")


def report(all_params: params.Params, name: str, run: Run) -> dict:
    """Write the page, the tables and `summary.json`; returns the scores, the number of gains, and the costs.

    Raises SesameError with the name of a stage without results.
    """
    # after `git pull` and `dvc checkout` the files of a model's old name are still there, and `resolve` has nothing to do
    leftovers.remove(all_params)
    metrics = tables.read(all_params)
    frames = {
        "scores": tables.scores(metrics), "alignment": spaces.alignment(all_params), "costs": tables.costs(all_params, metrics),
        "pretraining": tables.pretraining(metrics), "learning_curve": tables.learning(all_params, metrics),
        "calibration": tables.calibration(metrics), "evaluations": evaluations.table(all_params, metrics),
        "layers": evaluations.layers(all_params, metrics),
    }  # fmt: skip
    compared = tables.comparisons(all_params, metrics)
    gains, papers = tables.gains(frames["scores"], compared), _papers(all_params, metrics)
    frames["gains"] = tables.comparison_table(frames["scores"], compared)
    figures = _figures(all_params, frames, gains)
    if bins := tables.reliability(all_params, metrics):
        figures["reliability"] = plots.reliability(bins)
    for key, figure in figures.items():
        run.figure(figure, f"figures/{key}.png")
    frames |= {"bars": tables.bars(frames["scores"]), "benchmarks": benchmarks.long(papers)}
    for key, frame in frames.items():
        with storage.output(FOLDER / f"{key}.csv") as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    of_spaces = spaces.section(all_params, metrics)
    _page(all_params, metrics, frames, papers, gains, figures, of_spaces)
    run.artifact(FOLDER / "index.html")
    for key in frames:
        run.artifact(FOLDER / f"{key}.csv")
    print(f"report: {FOLDER / 'index.html'}")
    # `dvc metrics` lists every figure of its files: summary.json has the few that fit a terminal, figures.json the others
    nested, total = _nested(gains), {key: float(value) for key, value in frames["costs"].sum(numeric_only=True).items()}
    summary = {"score": {model: headline(by_task) for model, by_task in nested.items()}, "seconds": total["seconds"], "kwh": total["kwh"]}
    overall = frames["evaluations"][frames["evaluations"]["group"] == evaluations.EVERYTHING]
    for row in overall.itertuples():
        summary.setdefault("asked", {}).setdefault(row.model, {})[row.evaluation] = float(row.score)
    storage.write_json(FOLDER / "summary.json", summary)
    # a copy for git: the stages' own files are in DVC's cache
    storage.write_json(METRICS, {f"{group}@{name}": measured for (group, name), measured in metrics.items()})
    beyond = {
        "gains": sum(len(row["gains"]) for row in gains), "gains_beyond_noise": sum(map(len, cases(gains, "higher").values())),
        "ahead": sum(row["ahead"] for row in gains),
    }  # fmt: skip
    changed = {pair: facts for pair, (_, facts) in of_spaces["moved"].items()}
    return {"scores": nested, "reading": reading(gains, tables.once(metrics)), **beyond, "total": total, "moved": changed}


def _papers(all_params: params.Params, metrics: benchmarks.Metrics) -> dict[str, pd.DataFrame]:
    """The tables in the layout of papers for which enough tasks were run."""
    papers = {name: benchmarks.benchmark(all_params, metrics, name) for name in benchmarks.COLUMNS}
    papers["tune_or_freeze"] = benchmarks.tune_or_freeze(all_params, metrics)
    return {name: frame for name, frame in papers.items() if frame is not None}


def _figures(all_params: params.Params, frames: dict[str, pd.DataFrame], gains: list[dict]) -> dict[str, Figure]:
    """The plots for which there are results."""
    figures = {"costs": plots.costs(frames["costs"])}
    if len(frames["evaluations"]):
        figures["evaluations"] = plots.evaluations(frames["evaluations"])
    if len(frames["layers"]):
        figures["layers"] = plots.layers(frames["layers"])
    if gains:
        figures["scores"] = plots.scores(gains)
    if len(frames["learning_curve"]):
        figures["learning_curve"] = plots.learning(frames["learning_curve"])
    if all_params.main("models"):
        figures["curves"] = plots.curves(tables.curves(all_params))
    return figures | spaces.figures(all_params) | writing.figures(all_params)


def _page(
    all_params: params.Params, metrics: benchmarks.Metrics, frames: dict[str, pd.DataFrame], papers: dict[str, pd.DataFrame],
    gains: list[dict], figures: dict[str, Figure], of_spaces: dict[str, Any],
) -> None:  # fmt: skip
    pages.write(
        FOLDER / "index.html", Path(__file__).with_name("page.html.j2"), "report",
        gains=gains, starts=list(dict.fromkeys(start for row in gains for start in row["starts"])), start_names=STARTS,
        reading=reading(gains, tables.once(metrics)), verdict=verdict, less=difference, seeds=len(all_params.finetune.seeds),
        protocols=sorted({row["pretrained"]["protocol"] for row in gains}), papers=papers, published=benchmarks.PUBLISHED,
        formats=formats, columns=benchmarks.columns,
        unguarded=tables.unguarded(all_params), of_unknown_text=tables.of_unknown_text(all_params),
        figures={key: Markup(plots.svg(figure)) for key, figure in figures.items()},
        calibration=frames["calibration"], pretraining=frames["pretraining"], costs=frames["costs"],
        evaluations=_evaluations(frames["evaluations"], evaluations.attention_heads(all_params, metrics)),
        spaces=of_spaces,
        writing=writing.section(all_params, metrics),
        total=frames["costs"].sum(numeric_only=True), price_tags=tables.price_tags(all_params, metrics, benchmarks.PUBLISHED["cost"]),
        price=all_params.price, pue=all_params.energy.pue, kg_per_lb=price.KG_PER_LB, short=price.short, beside=price.ratio,
        contexts={key: context(model) for key, model in all_params.main("models").items()},
        samples=tables.samples(all_params),
        sample_titles={key: model.objective.samples_title for key, model in all_params.main("models").items()},
        cards=tables.cards(all_params, metrics), spread=spread, size=size, studies=all_params.studies,
        has_page={page.stem for page in FOLDER.glob("studies/*.html")},
        min_steps=all_params.learning_curve.min_steps,
    )  # fmt: skip


def _evaluations(frame: pd.DataFrame, heads: list[dict]) -> dict[str, Any]:
    """The page's section of evaluations; empty where there are none."""
    if not len(frame):
        return {}
    rows = frame[frame["group"] == evaluations.EVERYTHING].to_dict("records")
    for row in rows:
        row["beyond_noise"] = row["verdict"] in ("higher", "lower")
        row["better"] = row["beyond_noise"] and evaluations.better(row["measure"]) * row["difference"] > 0
        references = {name: row[name] for name in evaluations.references_of(frame) if pd.notna(row[name])}
        row["references"] = dict(sorted(references.items(), key=lambda item: evaluations.better(row["measure"]) * item[1], reverse=True))
    return {"rows": rows, "heads": heads, "reading": evaluations.reading(frame), "once": evaluations.once(frame)}


def headline(by_task: dict[str, dict[str, float | None]]) -> float | None:
    """A model's mean score over its tasks, from pre-trained weights: the figure that DVC lists; None where a score is undefined."""
    scores = [starts["pretrained"] for starts in by_task.values()]
    return None if None in scores else statistics.fmean(scores)


def _nested(gains: list[dict]) -> dict:
    """model -> task -> start -> mean; None where undefined."""
    nested: dict = {}
    for row in gains:
        starts = {"pretrained": row["pretrained"], **row["starts"]}
        means = {init: None if figures["mean"] != figures["mean"] else float(figures["mean"]) for init, figures in starts.items()}
        nested.setdefault(row["model"], {})[row["task"]] = means
    return nested


def verdict(compared: tables.Compared | None) -> str:
    return "not compared" if compared is None else compared.verdict


def difference(compared: tables.Compared | None) -> str:
    """`+0.049 [+0.010, +0.088]`."""
    return "–" if compared is None or np.isnan(compared.difference.difference) else compared.difference.shown


def cases(gains: list[dict], word: str) -> dict[str, list[str]]:
    """Other start -> the models and tasks for which pre-trained weights are `higher` or `lower` beyond noise."""
    starts = dict.fromkeys(start for row in gains for start in row["gains"])
    return {
        start: [f"{row['model']} on {row['task']}" for row in gains if start in row["gains"] and row["gains"][start].verdict == word]
        for start in starts
    }  # fmt: skip


def reading(gains: list[dict], once: Sequence[str]) -> str:
    """A sentence for each start, and one for the baselines. `once`: the models with a single pre-training."""
    higher, lower, sentences = cases(gains, "higher"), cases(gains, "lower"), []
    for start in higher:
        compared = [row["gains"][start] for row in gains if start in row["gains"]]
        unclear = sum(one.verdict in ("one run", "undefined") for one in compared)
        rest = len(compared) - len(higher[start]) - len(lower[start]) - unclear
        text = f"Against {STARTS[start]}, pre-training is ahead beyond noise in {len(higher[start])} of {len(compared)} cases"
        text += f" ({', '.join(higher[start])})" if higher[start] else ""
        text += f"; behind in {len(lower[start])} ({', '.join(lower[start])})" if lower[start] else ""
        if rest:
            within = [one.difference.detectable for one in compared if one.verdict == "not beyond noise"]
            detectable = sorted(size for size in within if not isnan(size))
            ends = dict.fromkeys(f"{detectable[i]:.3f}" for i in (0, -1) if detectable)
            text += f"; {rest} within noise"
            text += f" (a difference of {' to '.join(ends)} would by itself be found in four cases of five)" if ends else ""
        sentences.append(text + (f"; in {unclear} it can't be said (one seed, or an undefined score)." if unclear else "."))
    if not sentences:
        return "No model was compared with another start, such as random weights of its own architecture."
    ahead = [f"{row['model']} on {row['task']}" for row in gains if row["ahead"]]
    level = [f"{row['model']} on {row['task']} is not ahead of {', '.join(row['not_ahead_of'])}" for row in gains if row["not_ahead_of"]]
    sentences.append(f"Ahead of every baseline beyond noise: {', '.join(ahead) or 'none'}{''.join(f'; {one}' for one in level)}.")
    if once:
        sentences.append(f"Pre-trained only once, so another run may differ: {', '.join(once)}.")
    return " ".join(sentences)


def formats(frame: pd.DataFrame) -> dict[str, str]:
    """The formats of a paper's columns: percent, fractions, counts."""
    counts = {"trainable_parameters": "%d", "trainable_share": "%.4f", "memory_mib": "%.0f", "seconds": "%.1f"}
    decimals = "%.1f" if "system" in frame else "%.3f"
    return {column: counts.get(column, decimals) for column in frame.select_dtypes("number")}


def spread(figures: dict) -> str:
    """`0.512 ± 0.010 (3)`."""
    if figures is None:
        return "–"
    if figures["mean"] != figures["mean"]:
        return "undefined"
    deviation = f" ± {figures['std']:.3f}" if figures["std"] == figures["std"] else ""
    return f"{figures['mean']:.3f}{deviation} ({int(figures['n'])})"


def size(metrics: dict) -> str:
    """The size of a corpus, task, model or space, for its card."""
    examples = metrics.get("examples")
    if isinstance(examples, dict):
        return ", ".join(f"{split} {rows:,}" for split, rows in examples.items())
    if "vocabulary" in metrics:
        return f"{metrics['vocabulary']:,} vectors of {metrics['vector_size']} dimensions"
    return f"{metrics['words']:,} words" if "words" in metrics else f"{metrics['parameters']:,} parameters"


def context(model: params.Model) -> str:
    """The context over which a perplexity was measured."""
    if model.objective.name == "bilm":
        return f"windows of {model.objective.window} tokens with the state carried on"
    return f"rows of up to {model.architecture.max_length} tokens, no stride"


if __name__ == "__main__":
    stage.main("report", report, metrics_file=lambda *_: FOLDER / "figures.json")
