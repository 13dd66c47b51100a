"""The ladder of a study: a scaling law fitted to small models with few tokens, and its predictions for larger ones, which are
trained, too."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from components import params
from components.comparison import scaling
from components.comparison.plots import styles
from components.comparison.scaling import Estimate, Surface
from components.core.errors import SesameError
from components.studies.folders import LAST


@dataclass(frozen=True)
class Rung:
    """A variant whose loss was predicted."""

    variant: str
    predicted: Estimate
    """With the noise of the number of trainings."""
    measured: float

    @property
    def verdict(self) -> str:
        if self.predicted.low <= self.measured <= self.predicted.high:
            return "as predicted"
        return "lower than predicted" if self.measured < self.predicted.low else "higher than predicted"


@dataclass(frozen=True)
class Ladder:
    """The fitted surface, and its predictions."""

    surface: Surface
    rungs: list[Rung]
    fitted: int
    """Number of variants that it was fitted to."""

    @property
    def sentence(self) -> str:
        outcomes = [f"{rung.variant} {rung.verdict} ({rung.measured:.2f}; {rung.predicted.shown})" for rung in self.rungs]
        text = f"Loss fitted to {self.fitted} variants, the rest predicted: {'; '.join(outcomes)}."
        size = self.surface.size_exponent
        if size is None:
            return f"{text} Neither size nor tokens bring anything."
        factor = f"{10**size.value:.1f} [{10**size.low:.1f}, {10**size.high:.1f}]"
        return f"{text} Of ten times the compute the fit would put a factor {factor} into parameters and the rest into tokens."


def climb(study: params.Study, frame: pd.DataFrame, reads: dict[str, str]) -> Ladder | None:
    """Fit the surface to the variants that are not on the ladder, and predict those; None in a study without a ladder. Raises
    SesameError where losses are not comparable."""
    if not study.ladder:
        return None
    if len(set(reads.values())) > 1:
        raise SesameError(
            f"a ladder needs comparable losses, and its variants read in different ways: {', '.join(sorted(set(reads.values())))}"
        )
    rows = frame[frame["milestone"] == LAST].set_index("variant")
    known, above = rows.drop(index=study.ladder), rows.loc[study.ladder]
    columns = (known[key].tolist() for key in ("parameters", "tokens", "loss", "loss_std", "n"))
    surface = scaling.fit_surface(*columns)
    rungs = [
        Rung(variant, surface.at(row["parameters"], row["tokens"], runs=int(row["n"])), float(row["loss"]))
        for variant, row in above.iterrows()
    ]
    return Ladder(surface, rungs, len(known))


def plot(study: params.Study, frame: pd.DataFrame, ladder: Ladder) -> Figure:
    """Loss against tokens, one line per size: filled points were fitted, hollow ones predicted (bars: the interval)."""
    rows = frame[frame["milestone"] == LAST]
    figure, axis = plt.subplots(figsize=(6.4, 4.2), constrained_layout=True)
    tokens_drawn = np.geomspace(rows["tokens"].min(), rows["tokens"].max(), 50)
    predicted = {rung.variant: rung.predicted for rung in ladder.rungs}
    for style, (size, points) in zip(styles(), rows.groupby("parameters"), strict=False):
        losses = [ladder.surface.at(size, tokens).value for tokens in tokens_drawn]
        axis.plot(tokens_drawn, losses, color=style["color"], linewidth=1, label=f"{size:,.0f} parameters")
        fitted = ~points["variant"].isin(study.ladder)
        mark = {"linestyle": "none", "markersize": 7, **style}
        axis.errorbar(points["tokens"][fitted], points["loss"][fitted], yerr=points["loss_std"][fitted], **mark)
        axis.plot(points["tokens"][~fitted], points["loss"][~fitted], fillstyle="none", **mark)
        for variant, tokens in zip(points["variant"][~fitted], points["tokens"][~fitted], strict=True):
            axis.vlines(tokens, predicted[variant].low, predicted[variant].high, color=style["color"], linewidth=5, alpha=0.3)
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel="tokens of pre-training", ylabel="validation loss")
    axis.legend()
    return figure
