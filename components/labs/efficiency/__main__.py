"""`python -m components.labs.efficiency`: data/efficiency -> data/report/efficiency.html, .csv, .json: all points
next to each other."""

from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from components import params
from components.comparison import pages, verdicts
from components.comparison.plots import svg
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.labs.efficiency import measure, plots
from components.labs.efficiency.front import COSTS, SHORT, front, sentence
from components.labs.efficiency.point import FOLDER, BuiltPoint, build, label, predictions_folder
from components.stages import stage
from components.stages.outputs import read_json

PAGE = Path("data/report/efficiency.html")


def efficiency(all_params: params.Params, name: str, run: Run) -> dict:
    """Measure and compare the points, and draw the page. Raises SesameError where there are none."""
    block = all_params.efficiency
    if not block.points:
        raise SesameError(f"no points in efficiency of {params.STUDIES}")
    read = {key: read_json(FOLDER.joinpath(*key, "metrics.json")) for key in block.runs.values()}
    tasks, readings, frames = {}, [], []
    for task in block.tasks:
        print(f"{task}: {len(block.points)} points, each in turn", flush=True)
        frame = table(all_params, task, {point: read[point, task] for point in block.points})
        metric = f"{task}: {next(iter(read.values()))['split']} {all_params.tasks[task].metric}"
        figure = plots.fronts(frame, metric, block.base)
        run.figure(figure, f"figures/efficiency_{task}.png")
        tasks[task] = {"frame": shown(frame), "figure": Markup(svg(figure)), "protocol": read[block.base, task]["protocol"]}
        readings.append(sentence(task, frame, block.base))
        frames.append(frame.assign(task=task))
    every = pd.concat(frames)
    with storage.output(PAGE.with_suffix(".csv")) as temporary:
        every.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    pages.write(
        PAGE, Path(__file__).with_name("page.html.j2"), "efficiency", block=block, tasks=tasks, readings=readings,
        seeds=len(all_params.finetune.seeds), energy=all_params.energy, rounds=measure.ROUNDS, together=measure.TOGETHER,
        points={key: point.model_dump(exclude_defaults=True) for key, point in block.points.items()},
    )  # fmt: skip
    run.artifact(PAGE)
    print(*readings, sep="\n")
    columns = ["point", "task", "score", "difference", "verdict", *COSTS]
    return {"reading": " ".join(readings), "points": every[columns].to_dict("records")}


def table(all_params: params.Params, task: str, read: dict[str, dict]) -> pd.DataFrame:
    """One row per point, or per threshold of a point."""
    block, energy = all_params.efficiency, all_params.energy
    built = {point: build(all_params, point, task, measured) for point, measured in read.items()}
    answers = {name: (answer, one.split) for one in built.values() for name, answer in one.answers.items()}
    times = measure.times(
        {name: answer for name, (answer, _) in answers.items()}, {name: split for name, (_, split) in answers.items()}, block.base,
        block.examples,
    )  # fmt: skip
    differences = compare(all_params, task, read)
    rows = []
    for point, measured in read.items():
        for name, scored in measured["scores"].items():
            taken = (times[name], times[label(block.base, None)])
            rows.append(row(name, point, measured, scored, built[point], *taken, energy) | differences.get(name, {}))
    frame = pd.DataFrame(rows).astype({"score": float, "std": float})  # None becomes NaN
    for cost in COSTS:
        frame[f"on_front_{cost}"] = front(frame[cost], frame["score"])
    return frame


def row(
    name: str, point: str, measured: dict, scored: dict, built: BuiltPoint, times: measure.Times, base: measure.Times,
    energy: params.Energy,
) -> dict:  # fmt: skip
    """The table's row of a point at a threshold.

    Its times and its energy are the base's times the ratio to it, which is taken within each round: other work on the machine, which
    comes and goes between the points of a round, must not put one before the other.
    """
    score, calibration = scored[measured["split"]][measured["metric"]], scored["calibration"][measured["split"]]
    alone = float(np.median(base.alone)) * times.ratio_alone
    milliseconds = 1e3 * times.alone * alone / float(np.median(times.alone))
    together = 1e3 * float(np.median(base.together)) * times.ratio_together
    return {
        "point": name, "series": point, "dev": scored["dev"][measured["metric"]]["mean"],
        "score": score["mean"], "std": score["std"], "n": score["n"],
        "difference": "–", "verdict": "base",
        "ms": float(np.median(milliseconds)), "ms_p95": float(np.quantile(milliseconds, 0.95)),
        "ms_ratio": times.ratio_alone, "ms_together": together, "ms_together_ratio": times.ratio_together,
        "per_second": 1e3 / together, "mflops": built.flops[name] / 1e6, "mib": built.bytes / 2**20, "parameters": built.parameters,
        "kwh_per_1000": energy.pue * energy.watts_per_core * float(base.alone.mean()) * times.ratio_alone / 3600,
        "expected_calibration_error": calibration["expected_calibration_error"]["mean"], "brier_score": calibration["brier_score"]["mean"],
        "expected_calibration_error_before": calibration["expected_calibration_error_before"]["mean"],
        "exits": " / ".join(f"{sum(seeds) / len(seeds):.0%}" for seeds in zip(*scored["exits"], strict=True)),
        "tuning_seconds": sum(measured["seconds"]) / len(measured["seconds"]),
    }  # fmt: skip


def compare(all_params: params.Params, task: str, read: dict[str, dict]) -> dict[str, dict]:
    """Each point minus the baseline, with Holm's correction over all points of the task."""
    block = all_params.efficiency
    first = next(iter(read.values()))
    sources = {
        name: [(predictions_folder(FOLDER / point / task, scored["threshold"]), block.points[point].init)]
        for point, measured in read.items() for name, scored in measured["scores"].items()
    }  # fmt: skip
    base = label(block.base, None)
    _, sides = verdicts.sides(all_params, task, first["split"], first["metric"], sources)
    differences = {name: verdicts.difference(side, sides[base]) for name, side in sides.items() if name != base}
    words = verdicts.verdicts(list(differences.values()))
    return {
        name: {"difference": difference.shown, "verdict": verdict}
        for (name, difference), verdict in zip(differences.items(), words, strict=True)
    }


def spread(row: dict) -> str:
    """`0.512 ± 0.010`; undefined values are left out."""
    return " ± ".join(f"{row[key]:.3f}" for key in ("score", "std") if row[key] == row[key]) or "undefined"


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """The page's table of a task."""
    rows = frame.to_dict("records")
    fronts = [", ".join(SHORT[cost] for cost in COSTS if row[f"on_front_{cost}"]) for row in rows]
    columns = {
        "point": frame["point"], "score": [spread(row) for row in rows],
        "minus the baseline": frame["difference"], "verdict": frame["verdict"], "ms": frame["ms"], "p95": frame["ms_p95"],
        "of the base's": frame["ms_ratio"], "ms of 32": frame["ms_together"], "of the base's ": frame["ms_together_ratio"],
        "answers/s": frame["per_second"], "MFLOPs": frame["mflops"], "MiB": frame["mib"], "kWh/1000": frame["kwh_per_1000"],
        "ECE before": frame["expected_calibration_error_before"],
        "ECE": frame["expected_calibration_error"], "Brier": frame["brier_score"], "exits": frame["exits"], "on the front of": fronts,
    }  # fmt: skip
    return pd.DataFrame(columns)


if __name__ == "__main__":
    stage.main("efficiency", efficiency, metrics_file=lambda *_: PAGE.with_suffix(".json"))
