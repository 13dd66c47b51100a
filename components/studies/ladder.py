"""The ladder of a study: a curve fitted to the loss of small models after few tokens, compared with larger ones that
were trained, too."""

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
    """A variant that was predicted."""

    variant: str
    foretold: Estimate
    """With the noise of as many trainings as were run."""
    measured: float

    @property
    def verdict(self) -> str:
        if self.foretold.low <= self.measured <= self.foretold.high:
            return "as foretold"
        return "lower than foretold" if self.measured < self.foretold.low else "higher than foretold"


@dataclass(frozen=True)
class Ladder:
    """The surface, and how it did."""

    surface: Surface
    rungs: list[Rung]
    fitted: int
    """Variants that it was fitted to."""

    @property
    def sentence(self) -> str:
        """What came of it."""
        told = [f"{rung.variant} {rung.verdict} ({rung.measured:.2f}; {rung.foretold.shown})" for rung in self.rungs]
        said, size = f"Loss fitted to {self.fitted} variants, the rest foretold: {'; '.join(told)}.", self.surface.size_exponent
        if size is None:
            return f"{said} Neither size nor tokens bring anything."
        factor = f"{10**size.value:.1f} [{10**size.low:.1f}, {10**size.high:.1f}]"
        return f"{said} Of ten times the compute the fit would put a factor {factor} into parameters and the rest into tokens."


def climb(study: params.Study, frame: pd.DataFrame, reads: dict[str, str]) -> Ladder | None:
    """Fit to the variants that are not predicted; None in a study without a ladder. Raises SesameError where losses do
    not compare."""
    if not study.ladder:
        return None
    if len(set(reads.values())) > 1:
        raise SesameError(
            f"a ladder needs losses that compare, and its variants read in different ways: {', '.join(sorted(set(reads.values())))}"
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


def drawn(study: params.Study, frame: pd.DataFrame, ladder: Ladder) -> Figure:
    """Loss against tokens, a line a size: full marks were fitted, hollow ones predicted (bars: the interval)."""
    rows = frame[frame["milestone"] == LAST]
    figure, axis = plt.subplots(figsize=(6.4, 4.2), constrained_layout=True)
    reach = np.geomspace(rows["tokens"].min(), rows["tokens"].max(), 50)
    foretold = {rung.variant: rung.foretold for rung in ladder.rungs}
    for style, (size, own) in zip(styles(), rows.groupby("parameters"), strict=False):
        losses = [ladder.surface.at(size, tokens).value for tokens in reach]
        axis.plot(reach, losses, color=style["color"], linewidth=1, label=f"{size:,.0f} parameters")
        fitted = ~own["variant"].isin(study.ladder)
        mark = {"linestyle": "none", "markersize": 7, **style}
        axis.errorbar(own["tokens"][fitted], own["loss"][fitted], yerr=own["loss_std"][fitted], **mark)
        axis.plot(own["tokens"][~fitted], own["loss"][~fitted], fillstyle="none", **mark)
        for variant, tokens in zip(own["variant"][~fitted], own["tokens"][~fitted], strict=True):
            axis.vlines(tokens, foretold[variant].low, foretold[variant].high, color=style["color"], linewidth=5, alpha=0.3)
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel="tokens of pre-training", ylabel="validation loss")
    axis.legend()
    return figure
