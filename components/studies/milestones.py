"""What is learnt when: the score of each group of items, as a phenomenon of grammar, at each milestone of a study."""

from math import ceil

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from components import params
from components.comparison.plots import styles
from components.studies.tables import pretrained, scored_by_all

GROUPS = ("phenomenon", "group", "label")
"""Columns of an evaluation's items that divide them into groups; the first that is there counts."""
MIN_ITEMS = 20
"""In a group, to draw it: with fewer a score moves by .05 with each item."""
COLUMNS = 4
"""Of the picture."""


def by_group(all_params: params.Params, study: str) -> pd.DataFrame:
    """One row per evaluation, group, variant and milestone, with the mean and deviation of the score over seeds.

    The score is over the items that all runs could read, with their weights: within a phenomenon, too, each paradigm counts
    the same. Evaluations without groups, and groups with fewer than `MIN_ITEMS` of these items, have no rows.
    """
    block, rows = all_params.studies[study], []
    for evaluation in block.evaluations:
        items, weights, runs = scored_by_all(all_params, study, evaluation)
        column = next((name for name in GROUPS if name in items), None)
        if column is None:
            continue
        groups = {group: (items[column] == group).to_numpy() for group in items[column].dropna().unique()}
        groups = {group: inside for group, inside in groups.items() if inside.sum() >= MIN_ITEMS}
        for (variant, milestone), scores in runs.items():
            figures = pretrained(all_params, study, variant, milestone)
            cost = {key: float(np.mean([figure[key] for figure in figures])) for key in ("tokens", "flops")}
            for group, inside in groups.items():
                of_runs = np.average(scores[:, inside], axis=1, weights=weights[inside])
                about = {"evaluation": evaluation, "group": group, "variant": variant, "milestone": milestone}
                deviation = float(of_runs.std(ddof=1)) if len(of_runs) > 1 else None
                score = {"items": int(inside.sum()), "mean": float(of_runs.mean()), "std": deviation}
                rows.append(about | cost | score)
    return pd.DataFrame(rows)


def plot(frame: pd.DataFrame, x: str) -> Figure:
    """A small picture for each group: its score by tokens or FLOPs (`x`), a line per variant."""
    panels = list(frame.groupby(["evaluation", "group"], sort=False))
    size = (min(COLUMNS, len(panels)), ceil(len(panels) / COLUMNS))
    figure, axes = plt.subplots(
        size[1], size[0], figsize=(2.6 * size[0] + 0.6, 2.1 * size[1] + 0.8), sharex=True, sharey=True, squeeze=False,
        constrained_layout=True,
    )  # fmt: skip
    several = frame["evaluation"].nunique() > 1
    for axis, ((evaluation, group), rows) in zip(axes.flat, panels, strict=False):
        for style, (variant, points) in zip(styles(), rows.groupby("variant", sort=False), strict=False):
            axis.errorbar(
                points[x],
                points["mean"],
                yerr=points["std"],
                markersize=4,
                capsize=2,
                linewidth=1.2,
                label=variant,
                **style,
            )
        name = f"{evaluation}: {group}" if several else str(group)
        axis.set_title(f"{name.replace('_', ' ')} ({int(rows['items'].iloc[0]):,})", fontsize=9)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.supxlabel(f"{x} of pre-training" if x == "tokens" else "FLOPs of pre-training", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    return figure
