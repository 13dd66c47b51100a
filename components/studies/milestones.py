"""What is learnt when: the score of each group of items, as a phenomenon of grammar, at each milestone of a study."""

from math import ceil

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from components import params
from components.comparison.plots import styles
from components.core.frames import read_csv
from components.studies.folders import LAST, transferred_folder
from components.studies.tables import pretrained, seeds, variants

GROUPS = ("phenomenon", "group", "label")
"""Columns of an evaluation's items that divide them into groups; the first that is there counts."""
MIN_ITEMS = 20
"""In a group, to draw it: with fewer a score moves by .05 with each item."""
COLUMNS = 4
"""Of the picture."""


def by_group(all_params: params.Params, study: str) -> pd.DataFrame:
    """One row per evaluation, group, variant and milestone, with the mean and deviation of the score over seeds.

    Evaluations without groups, and groups with fewer than `MIN_ITEMS` items, have no rows.
    """
    block, rows = all_params.studies[study], []
    for variant in variants(all_params, study):
        for milestone in (*map(str, block.milestones), LAST):
            figures = pretrained(all_params, study, variant, milestone)
            cost = {key: float(np.mean([figure[key] for figure in figures])) for key in ("tokens", "flops")}
            for evaluation in block.evaluations:
                folders = [
                    transferred_folder(member) / evaluation / milestone for member in seeds(all_params, study, variant)
                ]
                tables = [read_csv(folder / "items.csv").dropna(subset="score") for folder in folders]
                column = next((name for name in GROUPS if name in tables[0]), None)
                if column is None:
                    continue
                scores = pd.DataFrame([table.groupby(column, sort=False)["score"].mean() for table in tables])
                for group, items in tables[0].groupby(column, sort=False).size().items():
                    if items >= MIN_ITEMS:
                        about = {"evaluation": evaluation, "group": group, "variant": variant, "milestone": milestone}
                        deviation = float(scores[group].std()) if len(scores) > 1 else None
                        score = {"items": int(items), "mean": float(scores[group].mean()), "std": deviation}
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
