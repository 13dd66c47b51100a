"""The pictures of a study."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from components import params
from components.comparison.plots import GREY, HIGHER, LOWER, styles
from components.studies.folders import LAST

TITLES = {
    "parameters": "parameters", "tokens": "tokens of pre-training", "flops": "FLOPs of pre-training", "seconds": "seconds of pre-training",
    "loss": "validation loss", "perplexity": "validation perplexity", "bits_per_byte": "bits per byte",
}  # fmt: skip


LOSSES = {"loss", "perplexity", "bits_per_byte"}


def against(study: params.Study, frame: pd.DataFrame, metrics: dict[str, str], reads: dict[str, str]) -> Figure:
    """What the study plots against what: a point a variant with its deviation over seeds, a line through a variant's milestones.

    `reads` has how each variant reads: a loss is drawn of those alone that read as the base does, since others don't compare.
    """
    figure, axes = plt.subplots(1, len(study.plot.y), figsize=(4.3 * len(study.plot.y), 3.6), constrained_layout=True, squeeze=False)
    for axis, y in zip(axes.flat, study.plot.y, strict=True):
        for style, (variant, rows) in zip(styles(), frame.groupby("variant", sort=False), strict=False):
            if {study.plot.x, y} & LOSSES and reads[variant] != reads[study.base]:
                continue
            spread = rows.get(f"{y}_std")
            axis.errorbar(rows[study.plot.x], rows[y], yerr=spread, markersize=6, capsize=2.5, linewidth=1.2, label=variant, **style)
        if frame[study.plot.x].max() > 4 * frame[study.plot.x].min() > 0:
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())  # theirs would overlap
        axis.set_xlabel(TITLES[study.plot.x])
        axis.set_title(metrics.get(y) or TITLES[y])
    drawn = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=5)
    return figure


def effects(study: params.Study, frame: pd.DataFrame, metrics: dict[str, str]) -> Figure | None:
    """Each variant minus the baseline, with the 95 % interval; None where there is only the base."""
    rows = frame[frame["milestone"] == LAST].iloc[1:]
    if not len(rows):
        return None
    size = (4.3 * len(study.measures), 0.36 * len(rows) + 1.2)
    figure, axes = plt.subplots(1, len(study.measures), figsize=size, constrained_layout=True, sharey=True, squeeze=False)
    for axis, task in zip(axes.flat, study.measures, strict=True):
        for i, (_, row) in enumerate(rows.iterrows()):
            middle, low, high = (row[f"{task}_{key}"] for key in ("difference", "low", "high"))
            colour = {"higher": HIGHER, "lower": LOWER}.get(row[f"{task}_verdict"], GREY)
            axis.plot([low, high], [i, i], color=colour, linewidth=2)
            axis.plot(middle, i, marker="o", color=colour)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.locator_params(axis="x", nbins=5)
        axis.set_title(f"{metrics[task]}, less the base")
    axes[0][0].set_yticks(range(len(rows)), rows["variant"])
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return figure
