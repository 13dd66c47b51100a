"""`python -m components.labs.search.budget`: data/search/trials -> data/search/: index.html, curves.csv, summary.json:
which model is better at which search budget?"""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from components import params
from components.comparison import pages
from components.comparison.plots import svg
from components.core import storage
from components.core.errors import SesameError
from components.core.frames import read_csv
from components.core.tracking import Run
from components.labs.search import FOLDER, metrics_file, page
from components.labs.search.curve import AXES, Curve, best_so_far, clipped, compare
from components.stages import stage
from components.stages.outputs import read_json

OUT = FOLDER.parent


@dataclass(frozen=True)
class SearchResult:
    """The search of one model on a task."""

    model: str
    """Its name, followed by the start if that is not pre-trained."""
    metrics: dict
    """Of its stage."""
    trials: pd.DataFrame

    @property
    def valid(self) -> bool:
        """Whether the trials are independent samples, each trained to its end."""
        return self.metrics["sampler"] == "random" and self.metrics["pruner"] == "none"

    def curve(self, confidence: float) -> Curve:
        costs = {"trials": 1.0} | {axis: self.trials[axis].mean() for axis in AXES[1:]}
        return Curve([clipped(score) for score in self.trials["score"]], costs, confidence)

    def history(self) -> dict[str, np.ndarray]:
        """The best score of this search after each trial, and its cost so far."""
        cost = {axis: self.trials[axis].cumsum().to_numpy() for axis in AXES[1:]}
        return {"trials": np.arange(1, len(self.trials) + 1), **cost, "best": best_so_far(self.trials["score"].tolist())}


def budget(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.search
    if not config.models or not config.tasks:
        raise SesameError("search in params.yaml names no models or no tasks")
    parts, rows, summary = [], [], {}
    for task in config.tasks:
        searches = [read(name) for name, (_, of_task, _) in config.runs.items() if of_task == task]
        metric = config.metric or all_params.tasks[task].metric
        devices = {search.metrics["device"] for search in searches}
        if len(devices) > 1:
            raise SesameError(
                f"{task}: some models were searched on a CPU, others on a GPU: their hours are not comparable; "
                "run all on one machine (finetune.accelerator)"
            )
        [device] = devices
        curves = {search.model: search.curve(config.confidence) for search in searches if search.valid}
        histories = {search.model: search.history() for search in searches if not search.valid}
        compared = {pair: [compare(curves[pair[0]], curves[pair[1]], axis) for axis in AXES] for pair in combinations(curves, 2)}
        warnings = [warning for search in searches for warning in page.warnings(search.model, search.metrics)]
        drawn = page.figure(task, metric, curves, histories, device)
        run.figure(drawn, f"figures/{task}.png")
        rows += [row for model, curve in curves.items() for row in points(task, model, curve)]
        rows += [row for model, history in histories.items() for row in steps(task, model, history)]
        sentences = {pair: {one.axis: page.sentence(*pair, one, device) for one in comparisons} for pair, comparisons in compared.items()}
        summary[task] = {
            "metric": metric, "device": device, "warnings": warnings,
            "models": {search.model: {
                key: search.metrics[key] for key in ("trials", "complete", "pruned", "failed", "ended_by", "best", "mean")
            } for search in searches},
            "comparisons": {f"{first}-{second}": {
                one.axis: {"ahead": one.ahead, "beyond": one.beyond, "sentence": sentences[first, second][one.axis]} for one in comparisons
            } for (first, second), comparisons in compared.items()},
        }  # fmt: skip
        longest = max(map(len, curves.values()), default=0)
        parts.append({
            "task": task, "metric": metric, "device": device, "figure": Markup(svg(drawn)), "warnings": warnings,
            "sentences": sentences, "searches": searches, "curves": curves,
            "at": [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n <= longest],
        })  # fmt: skip
    with storage.output(OUT / "curves.csv") as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    pages.write(
        OUT / "index.html", Path(__file__).with_name("page.html.j2"), "search",
        parts=parts, search=config, expected=expected, drawn=shown, space={key: space(draw) for key, draw in config.space.items()},
    )  # fmt: skip
    for file in ("index.html", "curves.csv"):
        run.artifact(OUT / file)
    for part in parts:
        sentences = [f"{' and '.join(pair)}: {by_axis['trials']}" for pair, by_axis in part["sentences"].items()]
        for line in [*part["warnings"], *sentences]:
            print(f"{part['task']}: {line}", flush=True)
    print(f"budget: {OUT / 'index.html'}", flush=True)
    return {"tasks": summary}


def read(name: str) -> SearchResult:
    """The results of a search. Raises SesameError where it was not run."""
    path = metrics_file(name)
    metrics = read_json(path)
    label = metrics["model"] if metrics["init"] == "pretrained" else f"{metrics['model']} from random weights"
    return SearchResult(label, metrics, read_csv(path.with_suffix(".csv")))


def points(task: str, model: str, curve: Curve) -> list[dict]:
    """One row per number of trials."""
    trials = np.arange(1, len(curve) + 1)
    (low, high), (expected_low, expected_high) = curve.band(trials), curve.expected_band(trials)
    columns = {
        "expected": curve.at(trials), "unbiased": curve.unbiased(trials), "expected_low": expected_low, "expected_high": expected_high,
        "median": curve.median(trials), "low": low, "high": high,
    }  # fmt: skip
    return [
        {
            "task": task, "model": model, "kind": "expected",
            **{axis: n * curve.costs[axis] for axis in AXES}, **{key: values[i] for key, values in columns.items()},
        }
        for i, n in enumerate(trials)
    ]  # fmt: skip


def steps(task: str, model: str, history: dict[str, np.ndarray]) -> list[dict]:
    """One row per trial of a search without an expected performance."""
    about = {"task": task, "model": model, "kind": "best_so_far"}
    return [about | {key: values[i] for key, values in history.items()} for i in range(len(history["best"]))]


def expected(curve: Curve, trials: int) -> str:
    """`0.612 (0.41–0.80)`, `0.712 (0.63–…)` where the band has no upper end; a dash beyond the number of trials."""
    if trials > len(curve):
        return "–"
    low, high = curve.band(trials)
    return f"{curve.at(trials):.3f} ({low:.2f}–{f'{high:.2f}' if trials <= curve.reach else '…'})"


def shown(drawn: dict) -> str:
    """Hyperparameters in words."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{key.replace('_', ' ')} {value}"
        for key, value in drawn.items()
    )


def space(draw: params.Draw) -> str:
    """Describe the values that a field is sampled from."""
    if draw.choices is not None:
        return ("one of " if len(draw.choices) > 1 else "") + ", ".join(map(str, draw.choices))
    return f"{draw.low:g} to {draw.high:g}, {'log-uniform' if draw.log else 'uniform'}"


if __name__ == "__main__":
    stage.main("budget", budget, metrics_file=lambda *_: OUT / "summary.json")
