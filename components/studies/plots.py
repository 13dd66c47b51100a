"""The plots of a study."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from components import params
from components.comparison.plots import COLOURS, GREY, HIGHER, LOWER, legend, styles
from components.params import LOSS
from components.studies.findings import ABSENT, OPEN, OPPOSITE, REPRODUCED, Finding
from components.studies.folders import LAST
from components.studies.tables import better

TITLES = {
    "parameters": "parameters", "tokens": "tokens of pre-training", "flops": "FLOPs of pre-training", "seconds": "seconds of pre-training",
    "loss": "validation loss", "perplexity": "validation perplexity", "bits_per_byte": "bits per byte",
}  # fmt: skip
LOSSES = {"loss", "perplexity", "bits_per_byte"}


def scatter(
    study: params.Study, frame: pd.DataFrame, units: dict[str, str], reads: dict[str, str], references: Mapping[str, tuple[str, float]]
) -> Figure:
    """The study's plot: one point per variant with its deviation over seeds, a line through a variant's milestones. A dashed line is the
    best reference that needs no model, such as a bigram.

    `reads` has how each variant reads: losses are drawn only for variants that read like the base, since others are not comparable.
    """
    figure, axes = plt.subplots(1, len(study.plot.y), figsize=(4.3 * len(study.plot.y), 3.6), constrained_layout=True, squeeze=False)
    for axis, y in zip(axes.flat, study.plot.y, strict=True):
        for style, (variant, rows) in zip(styles(), frame.groupby("variant", sort=False), strict=False):
            if {study.plot.x, y} & LOSSES and reads[variant] != reads[study.base]:
                continue
            spread = rows.get(f"{y}_std")
            axis.errorbar(rows[study.plot.x], rows[y], yerr=spread, markersize=6, capsize=2.5, linewidth=1.2, label=variant, **style)
        if y in references:
            name, score = references[y]
            axis.axhline(score, color=GREY, linestyle="--", linewidth=1.2, label=name.replace("_", " "))
        if frame[study.plot.x].max() > 4 * frame[study.plot.x].min() > 0:
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())  # minor labels would overlap
        axis.set_xlabel(TITLES[study.plot.x])
        axis.set_title(title(y, units))
    legend(figure, 5)
    return figure


def title(measure: str, units: dict[str, str]) -> str:
    """`pairs: accuracy`"""
    return TITLES[measure] if measure in TITLES else f"{measure.replace('_', ' ')}: {units[measure].replace('_', ' ')}"


def effects(study: params.Study, frame: pd.DataFrame, units: dict[str, str]) -> Figure | None:
    """The differences from the base, with 95 % intervals; None for a study of the base only."""
    rows = frame[frame["milestone"] == LAST].iloc[1:]
    if not len(rows):
        return None
    compared = [LOSS] if f"{LOSS}_difference" in rows and rows[f"{LOSS}_difference"].notna().any() else []
    compared += study.measures
    size = (4.3 * len(compared), 0.36 * len(rows) + 1.2)
    figure, axes = plt.subplots(1, len(compared), figsize=size, constrained_layout=True, sharey=True, squeeze=False)
    for axis, task in zip(axes.flat, compared, strict=True):
        for i, (_, row) in enumerate(rows.iterrows()):
            middle, low, high = (row[f"{task}_{key}"] for key in ("difference", "low", "high"))  # NaN draws nothing
            colour = {True: HIGHER, False: LOWER}.get(better(units[task], row[f"{task}_verdict"]), GREY)
            axis.plot([low, high], [i, i], color=colour, linewidth=2)
            axis.plot(middle, i, marker="o", color=colour)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.locator_params(axis="x", nbins=5)
        axis.set_title(f"{title(task, units)}, minus {study.base}")
    axes[0][0].set_yticks(range(len(rows)), rows["variant"])
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


VERDICTS = {REPRODUCED: HIGHER, OPPOSITE: LOWER, ABSENT: COLOURS[0], OPEN: GREY}


def findings(results: Sequence[Finding]) -> Figure:
    """The effects with their intervals, in units of the smallest difference that matters; to the right, as in the paper."""
    figure, axis = plt.subplots(figsize=(7.5, 0.3 * len(results) + 1.3), constrained_layout=True)
    for i, finding in enumerate(results):
        sign = -1 if finding.expected.paper.direction == "lower" else 1
        low, middle, high = (sign * value / finding.expected.matters for value in (finding.low, finding.difference, finding.high))
        axis.plot([low, high], [i, i], color=VERDICTS[finding.verdict], linewidth=2)
        axis.plot(middle, i, marker="o", color=VERDICTS[finding.verdict])
    axis.axvspan(-1, 1, color=GREY, alpha=0.15, linewidth=0)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel("difference, in units of the smallest that would matter (shaded: smaller)\nto the right: as in the paper")
    names = [f"{one.study}: {one.expected.variant}, {one.expected.task.replace('_', ' ')}" for one in results]
    axis.set_yticks(range(len(results)), names)
    axis.set_ylim(len(results) - 0.5, -0.5)
    shown = {finding.verdict for finding in results}
    handles = [Line2D([], [], color=colour, marker="o", label=verdict) for verdict, colour in VERDICTS.items() if verdict in shown]
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure
