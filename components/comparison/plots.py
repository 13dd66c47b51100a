"""The plots of the report, as SVG."""

import io
from collections.abc import Iterator
from itertools import count

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from components.report import STARTS

COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000", "#882255"]
"""Eight colours for colour-blind readers (Okabe and Ito 2008; wine instead of yellow, which is faint on white)."""
MARKERS = "osD^vPX*"
MIN_ANSWERS = 20
"""Answers in a point of a reliability diagram."""
HIGHER, LOWER, GREY = COLOURS[2], COLOURS[4], "#9b9a97"
"""Of effects beyond noise, and of others."""


def styles() -> Iterator[dict[str, str]]:
    """Colours and markers of successive series: the first eight differ in both, and no pair repeats within 64."""
    for i in count():
        yield {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]}


plt.rcParams |= {
    "svg.fonttype": "none", "svg.hashsalt": "sesame", "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "axes.titlesize": 11, "axes.titleweight": "bold",
    "legend.frameon": False,
}  # fmt: skip


def svg(figure: Figure) -> str:
    """A figure as an `<svg>` element."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def legend(figure: Figure, columns: int) -> None:
    """Draw one legend below all panels, with each label of any of them."""
    handles = {label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


READS = {
    "both_sides": "both sides seen", "left_to_right": "left to right", "each_direction": "each direction", "any_order": "any order",
    "source_then_target": "a target beside its source", "recurrent": "by a state that is carried",
    "skip_thoughts": "the sentences around it", "quick_thoughts": "which sentences are around it", "subwords": "subwords from characters",
}  # fmt: skip


def curves(table: pd.DataFrame) -> Figure:
    """Validation loss against tokens, one panel per way of reading, since these are not comparable; bits per byte of models that read in
    one direction."""
    panels = [(f"Loss, {READS[reads]} (nats a target)", "loss", rows) for reads, rows in table.groupby("reads", sort=False)]
    panels += [
        ("Bits per byte, in one direction", "bits_per_byte", rows)
        for reads, rows in table.groupby("reads")
        if reads in ("left_to_right", "recurrent")
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.2), constrained_layout=True, squeeze=False)
    style = dict(zip(table["model"].unique(), styles(), strict=False))
    for axis, (title, column, rows) in zip(axes.flat, panels, strict=True):
        for model, points in rows.groupby("model", sort=False):
            axis.plot(points["tokens"] / 1e6, points[column], markersize=4.5, label=model, **style[model])
        axis.set_title(title)
        axis.set_xlabel("tokens (millions)")
        axis.locator_params(axis="x", nbins=4)  # the panels are narrow
        axis.legend()
    return figure


def scores(gains: list[dict]) -> Figure:
    """The scores of each task: of each start with the deviation over seeds, the best baseline as a line."""
    tasks = list(dict.fromkeys(row["task"] for row in gains))
    columns = min(len(tasks), 3)
    lines = -(-len(tasks) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 2.4 * lines + 0.8), constrained_layout=True, squeeze=False)
    for axis in axes.flat[len(tasks) :]:
        axis.remove()
    for axis, task in zip(axes.flat, tasks, strict=False):
        rows = [row for row in gains if row["task"] == task]
        for i, row in enumerate(rows):
            shown = {"pretrained": row["pretrained"], **row["starts"]}
            for (init, figures), colour, shift in zip(shown.items(), (COLOURS[0], GREY, COLOURS[2]), (-0.2, 0.0, 0.2), strict=False):
                label = LABELS[init] if i == 0 else None  # once for the legend
                axis.errorbar(figures["mean"], i + shift, xerr=figures["std"], fmt="o", color=colour, capsize=3, label=label)
        if rows[0]["baseline"] is not None:
            axis.axvline(rows[0]["baseline"]["mean"], color=COLOURS[1], linestyle="--", linewidth=1.2, label="best baseline")
        axis.set_yticks(range(len(rows)), [row["model"] for row in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_title(f"{task}: {rows[0]['metric']}")
    legend(figure, 4)
    return figure


def evaluations(table: pd.DataFrame) -> Figure:
    """Scores by group of items, one panel per evaluation: of each model, its random twins, and a bigram over all items."""
    names = list(table["evaluation"].unique())
    groups_of = {name: list(table[table["evaluation"] == name]["group"].unique()) for name in names}
    size = (4.6 * len(names), 0.5 * max(map(len, groups_of.values())) + 1.4)
    figure, axes = plt.subplots(1, len(names), figsize=size, constrained_layout=True, squeeze=False)
    style = dict(zip(table["model"].unique(), styles(), strict=False))  # one for a model, on all panels
    for axis, name in zip(axes.flat, names, strict=True):
        rows, groups = table[table["evaluation"] == name], groups_of[name]
        models = list(rows["model"].unique())
        for i, model in enumerate(models):
            points = rows[rows["model"] == model]
            heights = [groups.index(group) + 0.22 * (i - (len(models) - 1) / 2) for group in points["group"]]
            axis.errorbar(points["score"], heights, xerr=points["error"].fillna(0), linestyle="", capsize=3, label=model, **style[model])
            axis.plot(points["random"], heights, linestyle="", markerfacecolor="none", markersize=5, **style[model])
        if "bigram" in rows and (bigram := rows["bigram"].dropna()).size:
            axis.axvline(0.5, color=GREY, linewidth=1)
            axis.axvline(bigram.iloc[0], color=COLOURS[6], linestyle="--", linewidth=1.2, label="bigram, all")
        axis.set_yticks(range(len(groups)), [group.replace("_", " ") for group in groups])
        axis.set_ylim(len(groups) - 0.5, -0.5)
        axis.set_title(f"{name.replace('_', ' ')}: {rows['measure'].iloc[0].replace('_', ' ')}")
    legend(figure, 4)
    return figure


def layers(table: pd.DataFrame) -> Figure:
    """Scores by layer, one panel per evaluation: of each model (filled), and of its random twins (hollow)."""
    names = list(table["evaluation"].unique())
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.2), constrained_layout=True, squeeze=False)
    style = dict(zip(table["model"].unique(), styles(), strict=False))
    for axis, name in zip(axes.flat, names, strict=True):
        rows = table[table["evaluation"] == name]
        for model, points in rows.groupby("model", sort=False):
            axis.plot(points["layer"], points["score"], label=model, **style[model])
            axis.plot(points["layer"], points["random_score"], **style[model] | {"linestyle": ":"}, markerfacecolor="none")
        axis.set_xticks(range(int(rows["layer"].max()) + 1))
        axis.set_xlabel("layer (0: embedding)")
        axis.set_title(name.replace("_", " "))
    legend(figure, 4)
    return figure


LABELS = {"pretrained": "pre-trained", **STARTS}


def learning(table: pd.DataFrame) -> Figure:
    """Scores against labelled examples, one panel per model and task."""
    panels = list(table.groupby(["task", "model"], sort=False))
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 3 * lines), constrained_layout=True, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    style = dict(zip(table["start"].unique(), styles(), strict=False))  # one for a start, on all panels
    for axis, ((task, model), rows) in zip(axes.flat, panels, strict=False):
        for start, points in rows.groupby("start", sort=False):
            label = LABELS.get(start, start.replace("_", " "))
            axis.errorbar(points["examples"], points["mean"], yerr=points["std"], capsize=3, markersize=5, label=label, **style[start])
        sizes = sorted(rows["examples"].unique())
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("labelled examples")
        axis.set_title(f"{model} on {task}: {rows['metric'].iloc[0]}")
    legend(figure, 3)
    return figure


def seed_pairs(table: pd.DataFrame) -> Figure:
    """P@1 against the size of the seed dictionary, one panel per pair of spaces."""
    panels = list(table.groupby("pair", sort=False))
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3), constrained_layout=True, squeeze=False)
    style = dict(zip(table["method"].unique(), styles(), strict=False))
    for axis, (pair, rows) in zip(axes.flat, panels, strict=True):
        for method, points in rows.groupby("method", sort=False):
            spread = [points["p1"] - points["p1_low"], points["p1_high"] - points["p1"]]
            axis.errorbar(points["seed_pairs"], points["p1"], yerr=spread, capsize=3, markersize=5, label=method, **style[method])
        sizes = sorted(rows["seed_pairs"].unique())
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("seed pairs")
        axis.set_title(f"{pair}: P@1 ({rows['retrieval'].iloc[0]})")
    legend(figure, 4)
    return figure


def hubs(table: pd.DataFrame) -> Figure:
    """How many targets are among the ten nearest of at least so many queries, one panel per pair of spaces: hubs are on the right."""
    panels = list(table.groupby("pair", sort=False))
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3), constrained_layout=True, squeeze=False)
    for axis, (pair, rows) in zip(axes.flat, panels, strict=True):
        for (retrieval, points), style in zip(rows.groupby("retrieval", sort=False), styles(), strict=False):
            points = points.sort_values("times", ascending=False)
            axis.plot(points["times"], points["targets"].cumsum(), markersize=4, label=retrieval, **style)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("found by at least so many queries")
        axis.set_title(f"{pair}: targets ({rows['method'].iloc[0]})")
        axis.legend()
    return figure


def trajectories(table: pd.DataFrame, periods: list[str]) -> Figure:
    """Words over the periods, with their neighbours in the first and in the last."""
    figure, axis = plt.subplots(figsize=(8, 6), constrained_layout=True)
    for (word, rows), style in zip(table.groupby("of", sort=False), styles(), strict=False):
        near = rows[rows["period"].isna()]
        for row in near.itertuples():
            axis.annotate(row.word, (row.x, row.y), color=style["color"], fontsize=8, alpha=0.75, ha="center", va="center")
        path = rows.dropna(subset="period").set_index("period").loc[periods]
        axis.plot(path["x"], path["y"], markersize=4, linewidth=1.2, **style)
        for period, weight in ((0, "normal"), (-1, "bold")):
            position = (path["x"].iloc[period], path["y"].iloc[period])
            label = f"{word} ({periods[period]})"
            axis.annotate(label, position, fontsize=9, weight=weight, xytext=(4, 4), textcoords="offset points")
        axis.scatter(near["x"], near["y"], s=0)  # extends the axes to the words
    axis.set_xticks([])
    axis.set_yticks([])
    return figure


def attention(seen: dict) -> Figure:
    """The attention of each generated token to the source, averaged over the heads, for the lowest and the highest layer."""
    layers = {f"layer {number}": seen["weights"][number - 1] for number in sorted({1, len(seen["weights"])})}
    source, written = ([token.strip() or "·" for token in seen[side]] for side in ("source", "written"))
    width, height = max(3.2, 0.26 * len(source)), max(2.4, 0.24 * len(written))
    figure, panels = plt.subplots(1, len(layers), figsize=(width * len(layers) + 0.8, height + 0.9), sharey=True, squeeze=False)
    for panel, (title, weights) in zip(panels[0], layers.items(), strict=True):
        panel.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8)
        panel.set_yticks(range(len(written)), written, fontsize=8)
        panel.set_title(title, fontsize=9)
        panel.tick_params(length=0)
        panel.grid(False)
    figure.tight_layout()
    return figure


def costs(table: pd.DataFrame) -> Figure:
    """Seconds by group of stages."""
    seconds = table.assign(group=table["stage"].str.split("@").str[0]).groupby("group", sort=False)["seconds"].sum()
    figure, axis = plt.subplots(figsize=(7, 0.32 * len(seconds) + 0.8), constrained_layout=True)
    axis.barh(seconds.index, seconds, color=COLOURS[0])
    axis.bar_label(axis.containers[0], fmt="%.0f s", padding=3)
    axis.invert_yaxis()
    axis.set_xlabel("seconds, added up over stages")
    axis.grid(axis="y", visible=False)
    return figure


def reliability(drawn: dict[str, dict[str, np.ndarray]]) -> Figure:
    """Accuracy against probability: one panel per task, one line per model by bins (bins, 3)."""
    figure, axes = plt.subplots(1, len(drawn), figsize=(3.9 * len(drawn), 3.7), constrained_layout=True, squeeze=False)
    for axis, (task, models) in zip(axes.flat, drawn.items(), strict=True):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=1)
        for style, (model, bins) in zip(styles(), models.items(), strict=False):
            some = bins[bins[:, 0] >= MIN_ANSWERS]
            axis.plot(some[:, 1], some[:, 2], linewidth=1.2, markersize=5, label=model, **style)
        axis.set_title(task)
        axis.set_xlabel("probability of the answer")
    axes[0][0].set_ylabel("share that is right")
    axes[0][0].legend()
    return figure
