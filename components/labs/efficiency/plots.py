"""The plots of the page."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from components.comparison.plots import GREY, legend, styles
from components.labs.efficiency.front import COSTS


def fronts(frame: pd.DataFrame, metric: str, base: str) -> Figure:
    """A task's scores against each cost, with a line through the front; the thresholds of a point are one series."""
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
        axis.xaxis.set_minor_formatter(NullFormatter())  # minor labels would overlap
        axis.set_xlabel(title)
    axes[0].set_ylabel(metric)
    legend(figure, 5)
    return figure
