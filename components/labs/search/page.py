"""The plots and sentences of the page."""

import numpy as np
from matplotlib.figure import Figure

from components.comparison.plots import legend, plt, styles
from components.labs.search.curve import AXES, FEW, Comparison, Curve


def units(device: str) -> dict[str, str]:
    """Axis -> its unit."""
    return {"trials": "trials", "hours": f"{device}-hours", "kwh": "kWh (estimated)"}


def figure(task: str, metric: str, curves: dict[str, Curve], histories: dict[str, dict[str, np.ndarray]], device: str) -> Figure:
    """Score against budget: `curves` with their bands, shaded where they have an upper end;
    `histories` (axis -> budget after each trial, `best` so far) as steps."""
    drawn, axes = plt.subplots(1, len(AXES), figsize=(12, 4.2), sharey=True, constrained_layout=True)
    looks = dict(zip([*curves, *histories], styles(), strict=False))
    colours = {model: look["color"] for model, look in looks.items()}
    for panel, axis in zip(axes, AXES, strict=True):
        for model, curve in curves.items():
            trials = np.linspace(1, len(curve), 200) if axis != "trials" else np.arange(1, len(curve) + 1)
            low, high = curve.band(trials)
            budget = trials * curve.costs[axis]
            panel.fill_between(budget, low, high, where=high < 1.0, color=colours[model], alpha=0.15, linewidth=0)
            panel.plot(budget, low, color=colours[model], linewidth=0.8, alpha=0.6)
            panel.plot(budget, curve.at(trials), label=model, markersize=4, **looks[model], markevery=1 if axis == "trials" else 20)
        for model, history in histories.items():
            label = f"{model}: best so far, one search"
            panel.step(history[axis], history["best"], where="post", color=colours[model], linestyle="--", label=label)
        panel.locator_params(axis="x", nbins=6)
        panel.ticklabel_format(axis="x", scilimits=(-2, 4))
        panel.set_xlabel(f"budget in {units(device)[axis]}")
    axes[0].set_ylabel(f"{metric} on dev")
    legend(drawn, 3)
    drawn.suptitle(f"{task}: {'expected best' if curves else 'best'} {metric} at a budget of search", fontweight="bold", fontsize=11)
    return drawn


def amount(value: float, axis: str) -> str:
    """A budget without its unit."""
    return f"{value:.0f}" if axis == "trials" else f"{value:.2g}"


def sentence(first: str, second: str, compared: Comparison, device: str) -> str:
    """Which model is ahead at which budget, and whether beyond the bands."""
    unit, axis = units(device)[compared.axis].removesuffix(" (estimated)"), compared.axis
    if not compared.ahead:
        return f"No budget in common: all trials of one cost less than one trial of the other ({unit})."

    def describe(stretches: list[tuple[int, float, float]]) -> str:
        names = {1: first, -1: second, 0: "neither"}
        return ", ".join(
            f"{names[sign]} {f'at {amount(start, axis)}' if start == end else f'from {amount(start, axis)} to {amount(end, axis)}'} {unit}"
            for sign, start, end in stretches
        )

    beyond = f"beyond the bands: {describe(compared.beyond)}" if compared.beyond else "no difference beyond the bands"
    return f"Ahead: {describe(compared.ahead)}; {beyond}."


def warnings(model: str, metrics: dict) -> list[str]:
    """Why a search has no curve, or an unreliable one."""
    messages = []
    if metrics["sampler"] != "random":
        messages.append(
            f"{model}: trials drawn by {metrics['sampler']} depend on those before them, and only of random search is there "
            "an expected performance; shown is the best so far of this one search, without a band."
        )
    if metrics["pruner"] != "none":
        messages.append(
            f"{model}: {metrics['pruned']} of {metrics['trials']} trials were stopped early by {metrics['pruner'].replace('_', ' ')} "
            "and have no final score, so that there is no expected performance; "
            "shown is the best so far of this one search, without a band."
        )
    if metrics["trials"] < FEW:
        messages.append(
            f"{model}: {metrics['trials']} trials are few (under {FEW}): "
            "the bands are wide, and the right end of the curve hangs on the best trial alone."
        )
    if metrics["failed"]:
        messages.append(
            f"{model}: {metrics['failed']} of {metrics['trials']} trials failed (loss not a number, or a constant prediction); "
            "each counts as 0."
        )
    return messages
