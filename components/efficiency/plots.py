"""The pictures of the page."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from components.efficiency.front import COSTS
from components.report.plots import GREY, styles


def fronts(frame: pd.DataFrame, metric: str, base: str) -> Figure:
    """A task's scores against each cost; a line through those that nothing beats; points left at several thresholds are one series."""
    figure, axes = plt.subplots(1, len(COSTS), figsize=(4.1 * len(COSTS), 4.2), constrained_layout=True, sharey=True)
    for axis, (cost, title) in zip(axes, COSTS.items(), strict=True):
        for style, (series, rows) in zip(styles(), frame.groupby("series", sort=False), strict=False):
            line = "-" if len(rows) > 1 else "none"
            axis.errorbar(
                rows[cost], rows["score"], yerr=rows["std"], markersize=6, linewidth=0.8, capsize=2, linestyle=line, label=series, **style
            )
        best = frame[frame[f"on_front_{cost}"]].sort_values(cost)
        axis.plot(best[cost], best["score"], color=GREY, linewidth=4, alpha=0.45, zorder=0)
        axis.set_xscale("log")
        axis.set_xlabel(title)
    axes[0].set_ylabel(metric)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def reliability(bins: dict[str, np.ndarray], title: str) -> Figure:
    """How often answers of a probability are right: a line for each point, by bins (bins, 3): count, probability, share of right ones."""
    figure, axis = plt.subplots(figsize=(4.6, 4.2), constrained_layout=True)
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for style, (name, own) in zip(styles(), bins.items(), strict=False):
        some = own[own[:, 0] > 0]
        axis.plot(some[:, 1], some[:, 2], linewidth=1, label=name, **style)
    axis.set_xlabel("probability of the answer")
    axis.set_ylabel("share that is right")
    axis.set_title(title)
    axis.legend(fontsize=8)
    return figure
