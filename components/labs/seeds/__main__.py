"""`python -m components.labs.seeds`: data/seeds -> data/report/seeds.html, .csv, .json: how much of a score is due to its seeds."""

from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from components import params
from components.comparison import pages
from components.comparison.detection import LEVEL
from components.comparison.plots import legend, plt, styles, svg
from components.comparison.verdicts import holm
from components.core import storage
from components.core.errors import SesameError
from components.core.frames import read_csv
from components.core.tracking import Run
from components.finetune.task_setup import reported_split
from components.labs.seeds import FOLDER, chance
from components.labs.seeds.chance import Selected
from components.stages import stage
from components.stages.outputs import read_json

PAGE = Path("data/report/seeds.html")
BEGUN = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100)
"""Numbers of trainings in the tables, up to half of the grid."""


VERDICTS = {True: "beyond chance", False: "as by chance"}


def seed_grid(all_params: params.Params, name: str, run: Run) -> dict:
    """Analyse the grids and draw the page. Raises SesameError where there is no grid, or a score is undefined."""
    config = all_params.seed_grid
    if not config.pairs:
        raise SesameError(f"seed_grid of {params.STUDIES} names no models or no tasks")
    frames, parts = [], []
    for model, task in config.pairs:
        frame = pd.concat([read_csv(FOLDER / model / task / f"{seed}.csv") for seed in config.initialisations], ignore_index=True)
        if (bad := frame[["dev", "judged"]].isna().any(axis=1)).any():
            first = frame[bad].iloc[0]
            raise SesameError(
                f"{model} on {task}, initialisation {first.initialisation:.0f}, order {first.order:.0f}: the score is undefined "
                "(constant predictions or labels); lower the learning_rate of its recipe"
            )
        declared = all_params.tasks[task]
        result = grid(frame, config.keep, model, task, declared.metric, reported_split(declared))
        protocol = read_json(FOLDER / model / task / f"{config.initialisations[0]}.json")["protocol"]
        for title, figure in result.pop("figures").items():
            run.figure(figure, f"figures/{model}_{task}_{title}.png")
            result[title] = Markup(svg(figure))
        parts.append({"model": model, "task": task, "protocol": protocol, **result})
        frames.append(frame.assign(model=model, task=task))
        print(result["sentence"], flush=True)
    with storage.output(PAGE.with_suffix(".csv")) as temporary:
        pd.concat(frames).to_csv(temporary, index=False, lineterminator="\n")
    pages.write(PAGE, Path(__file__).with_name("page.html.j2"), "seeds", parts=parts, config=config)
    run.artifact(PAGE)
    return {"grids": {f"{part['model']}-{part['task']}": part["figures_of"] for part in parts}}


def grid(frame: pd.DataFrame, keep: float, model: str, task: str, metric: str, split: str) -> dict:
    """The page's content for one grid: tables, figures, sentences."""
    scores = frame.pivot(index="initialisation", columns="order", values="dev")
    of_weights, of_order = chance.effects(scores.to_numpy())
    adjusted = holm([of_weights.p, of_order.p])
    clear = [p < LEVEL for p in adjusted]
    dev, other = frame["dev"].to_numpy(), frame["judged"].to_numpy()
    by_epoch = frame.filter(regex=r"^epoch_\d+$").fillna(-np.inf).to_numpy()  # an undefined score is the worst
    epochs, begun = by_epoch.shape[1], [n for n in BEGUN if 2 * n <= len(frame)]
    third = ceil(epochs / 3)
    every = chance.trained_fully(dev, other, epochs, begun)
    early = {after: chance.stopped_early(by_epoch[:, after - 1], dev, other, after, epochs, keep, begun) for after in range(1, epochs)}
    stops = early.get(third, [])
    factors = pd.DataFrame(
        [
            {"seed of": name, "share of the spread": effect.share, "by chance": effect.by_chance, "p": p, "verdict": VERDICTS[p < LEVEL]}
            for name, effect, p in zip(("initialisation", "order"), (of_weights, of_order), adjusted, strict=True)
        ]
    )  # fmt: skip
    table = pd.DataFrame([_line(one, stop, epochs, every, begun) for one, stop in zip(every, stops or [None] * len(every), strict=True)])
    rank = [spearman(by_epoch[:, after - 1], dev) for after in range(1, epochs)]
    more, low, high = chance.gain(
        scores.to_numpy(), frame.pivot(index="initialisation", columns="order", values="judged").to_numpy(), begun[-1]
    )
    figures = {"heat": heat(scores, f"{task}: {metric} on dev of {model}"), "curve": curve(every, early, third, metric, split)}
    sentences = [
        f"{model} on {task}: {len(frame)} trainings score from {dev.min():.3f} to {dev.max():.3f} on dev "
        f"(standard deviation {dev.std(ddof=1):.3f}).",
        _sentence(of_weights, of_order, clear),
        f"The best on dev of {every[-1].begun} is expected at {every[-1].dev:.3f}, and there at {every[-1].judged:.3f} on {split}, "
        f"where one training has {other.mean():.3f} ({more:+.3f} [{low:+.3f}, {high:+.3f}] by these initialisations and orders).",
    ]  # fmt: skip
    if stops:
        saved = 1 - stops[-1].epochs / every[-1].epochs
        sentences.append(
            f"Stopping all but {keep:.0%} of them after epoch {third} of {epochs} saves {saved:.0%} of the epochs "
            f"and costs {every[-1].dev - stops[-1].dev:+.3f} on dev, {every[-1].judged - stops[-1].judged:+.3f} on {split}."
        )
    return {
        "sentence": " ".join(sentences), "factors": factors, "table": table, "figures": figures, "third": third, "epochs": epochs,
        "rank": rank, "split": split, "figures_of": {
            "initialisation_share": of_weights.share, "order_share": of_order.share, "p_initialisation": of_weights.p,
            "p_order": of_order.p, "dev_deviation": float(dev.std(ddof=1)), "judged_mean": float(other.mean()),
            "best_dev": every[-1].dev, "best_judged": every[-1].judged, "gain": more, "gain_low": low, "gain_high": high,
            "rank_after": rank,
        },
    }  # fmt: skip


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Rank correlation; None where one of the two is constant."""
    if len(set(first)) == 1 or len(set(second)) == 1:
        return None
    return float(spearmanr(first, second).statistic)


def _sentence(of_weights: chance.Effect, of_order: chance.Effect, clear: list[bool]) -> str:
    shares = f"The initialisation explains {of_weights.share:.0%} of the spread and the order {of_order.share:.0%}"
    expected = f"({of_weights.by_chance:.0%} and {of_order.by_chance:.0%} would be chance)"
    one = "only the initialisation is" if clear[0] else "only the order is"
    verdict = f"{'both are' if all(clear) else one if any(clear) else 'neither is'} beyond chance"
    return f"{shares} {expected}: {verdict}."


def _line(full: Selected, stop: Selected | None, epochs: int, every: list[Selected], begun: list[int]) -> dict:
    """A row for n trainings: all to the end; most of them stopped; and the number of full ones at the same cost."""
    row = {"begun": full.begun, "dev": full.dev, "judged": full.judged}
    if stop:
        same_cost = np.interp(stop.epochs / epochs, begun, [other.dev for other in every])
        same_cost_judged = np.interp(stop.epochs / epochs, begun, [other.judged for other in every])
        row |= {
            "dev, stopped": stop.dev, "judged, stopped": stop.judged, "epochs, share": stop.epochs / full.epochs,
            "as dear, whole": stop.epochs / epochs, "dev of these": float(same_cost), "judged of these": float(same_cost_judged),
        }  # fmt: skip
    return row


def heat(scores: pd.DataFrame, title: str) -> Figure:
    """Scores of the grid, with the best initialisation in the first row and the best order in the first column."""
    ranked = scores.loc[scores.mean(axis=1).sort_values(ascending=False).index, scores.mean().sort_values(ascending=False).index]
    figure, axis = plt.subplots(figsize=(1.6 + 0.5 * ranked.shape[1], 1.2 + 0.36 * ranked.shape[0]), constrained_layout=True)
    image = axis.imshow(ranked, cmap="cividis", aspect="auto")
    middle = (ranked.to_numpy().min() + ranked.to_numpy().max()) / 2
    for (i, j), value in np.ndenumerate(ranked.to_numpy()):
        axis.text(
            j, i, f"{value:.3f}".removeprefix("0"), ha="center", va="center", fontsize=8, color="black" if value > middle else "white"
        )
    axis.set_xticks(range(ranked.shape[1]), ranked.columns)
    axis.set_yticks(range(ranked.shape[0]), ranked.index)
    axis.set(xlabel="seed of the order", ylabel="seed of the initialisation", title=title)
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis)
    return figure


def curve(every: list[Selected], early: dict[int, list[Selected]], third: int, metric: str, split: str) -> Figure:
    """Expected score of the best on dev against the cost: all trained to the end, and most of them stopped after each epoch."""
    series = {"all to the end": every} | {f"stopped after epoch {after}": stops for after, stops in early.items()}
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), constrained_layout=True)
    for axis, (key, where) in zip(axes, (("dev", "dev"), ("judged", split)), strict=True):
        for style, (label, points) in zip(styles(), series.items(), strict=False):
            wide = 2.0 if label == "all to the end" or label.endswith(f" {third}") else 0.8
            axis.plot([at.epochs for at in points], [getattr(at, key) for at in points], label=label, linewidth=wide, markersize=4, **style)
        axis.set(xscale="log", xlabel="epochs trained, together", ylabel=f"{metric} on {where}")
    axes[0].set_title("of the best on dev")
    legend(figure, 3)
    return figure


if __name__ == "__main__":
    stage.main("seed_grid", seed_grid, metrics_file=lambda *_: PAGE.with_suffix(".json"))
