"""`python -m components.labs.tickets`: data/tickets -> data/report/tickets.html, .csv, .json: are a few weights enough, and which?"""

from pathlib import Path

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from components import params
from components.comparison import pages, verdicts
from components.comparison.plots import plt, styles, svg
from components.comparison.verdicts import Difference, Side
from components.core import storage
from components.core.errors import SesameError
from components.core.frames import read_csv
from components.core.tracking import Run
from components.labs.tickets import FOLDER
from components.labs.tickets.rounds import KINDS
from components.stages import stage
from components.stages.outputs import read_json

PAGE = Path("data/report/tickets.html")
FULL_MODEL = ("ticket", 0)
"""Kind and round of the full model, from pre-trained weights."""


def tickets(all_params: params.Params, name: str, run: Run) -> dict:
    """Compare the tickets and draw the page. Raises SesameError where there are none."""
    config = all_params.tickets
    if not config.pairs:
        raise SesameError(f"tickets of {params.STUDIES} names no models or no tasks")
    parts, frames = [], []
    for model, task in config.pairs:
        about = read_json(FOLDER / model / task / str(config.seeds[0]) / "metrics.json")
        frame = pd.concat(
            [read_csv(FOLDER / model / task / str(seed) / "scores.csv").assign(seed=seed) for seed in config.seeds], ignore_index=True
        )
        scored = sides(all_params, model, task, about, frame)
        compared = comparisons(scored, config.rounds)
        figure = curves(frame, config.rounds, f"{task}: {about['split']} {about['metric']} of {model}")
        run.figure(figure, f"figures/{model}_{task}.png")
        text = sentence(model, task, frame, compared)
        print(text, flush=True)
        parts.append({
            "model": model, "task": task, "protocol": about["protocol"], "sentence": text, "figure": Markup(svg(figure)),
            "table": table(frame, scored, compared, config.rounds),
        })  # fmt: skip
        frames.append(frame.assign(model=model, task=task))
    with storage.output(PAGE.with_suffix(".csv")) as temporary:
        pd.concat(frames).to_csv(temporary, index=False, lineterminator="\n")
    pages.write(PAGE, Path(__file__).with_name("page.html.j2"), "tickets", parts=parts, config=config)
    run.artifact(PAGE)
    return {"readings": {f"{part['model']}-{part['task']}": part["sentence"] for part in parts}}


def sides(all_params: params.Params, model: str, task: str, about: dict, frame: pd.DataFrame) -> dict[tuple[str, int], Side]:
    """(kind, round) -> the scores over the seeds."""
    folders = [FOLDER / model / task / str(seed) for seed in all_params.tickets.seeds]
    sources = {
        (kind, number): [(folder / f"{kind}-{number}", "pretrained") for folder in folders]
        for kind, number in frame[["kind", "round"]].drop_duplicates().itertuples(index=False)
    }  # fmt: skip
    return verdicts.sides(all_params, task, about["split"], about["metric"], sources)[1]


def comparisons(scored: dict[tuple[str, int], Side], rounds: int) -> dict[tuple[int, str], tuple[Difference, str]]:
    """(round, against) -> the ticket minus the full model, and minus each control; Holm's correction over all."""
    others = {(number, kind): side for (kind, number), side in scored.items() if number and kind != "ticket"}
    others |= {(number, "whole"): scored[FULL_MODEL] for number in range(1, rounds + 1)}
    differences = {key: verdicts.difference(scored["ticket", key[0]], other) for key, other in sorted(others.items())}
    return dict(zip(differences, zip(differences.values(), verdicts.verdicts([*differences.values()]), strict=True), strict=True))


WORDS = {"random": "as many weights anywhere", "worst": "as many of those pruned", "reinitialised": "its places with weights drawn anew"}


def sentence(model: str, task: str, frame: pd.DataFrame, compared: dict[tuple[int, str], tuple[Difference, str]]) -> str:
    """A sentence on a model's tickets."""
    zeros, rounds = frame.groupby("round")["sparsity"].mean(), sorted({number for number, _ in compared})
    last = next((number - 1 for number in rounds if compared[number, "whole"][1] not in ("not beyond noise", "higher")), rounds[-1])
    text = f"{model} on {task}: no ticket can be said not to be beyond noise below the whole model"
    if last:
        shown = compared[last, "whole"][0]
        text = (
            f"{model} on {task}: down to {zeros[last]:.0%} of the layers' weights at zero no ticket is beyond noise below the whole model "
            f"({shown.shown} there, so that a loss of {max(0.0, -shown.low):.3f} is not excluded)"
        )  # fmt: skip
    parts = []
    for against, words in WORDS.items():
        numbers = [number for number, other in compared if other == against]
        ahead = ", ".join(f"{zeros[number]:.0%}" for number in numbers if compared[number, against][1] == "higher")
        parts.append(f"ahead of {words} at {ahead or 'no share'}" if numbers else "")
    return f"{text}; beyond noise a ticket is {', '.join(part for part in parts if part)}."


def table(
    frame: pd.DataFrame, scored: dict[tuple[str, int], Side], compared: dict[tuple[int, str], tuple[Difference, str]], rounds: int
) -> pd.DataFrame:  # fmt: skip
    """One row per round."""
    zeros, rows = frame.groupby("round")["sparsity"].mean(), []
    for number in range(rounds + 1):
        row: dict = {"zero": f"{zeros[number]:.0%}"}
        for kind in KINDS:
            side = scored.get((kind, number))
            row[kind] = "–" if side is None else f"{side.mean:.3f}" + (f" ± {side.scores.std(ddof=1):.3f}" if side.runs > 1 else "")
        for against in ("whole", *KINDS[1:]):
            difference, verdict = compared.get((number, against), (None, ""))
            star = " *" if verdict in ("higher", "lower") else ""
            row[f"less {against}"] = "–" if difference is None else difference.shown + star
        rows.append(row)
    return pd.DataFrame(rows)


def curves(frame: pd.DataFrame, rounds: int, title: str) -> Figure:
    """Score against the share of zeros, one line per kind, with standard deviations."""
    figure, axis = plt.subplots(figsize=(6.6, 4.2), constrained_layout=True)
    zeros = frame.groupby("round")["sparsity"].mean()
    for style, kind in zip(styles(), KINDS, strict=False):
        rows = frame[(frame["kind"] == kind) | ((frame["round"] == 0) & (frame["kind"] == "ticket") & (kind != "reinitialised"))]
        spread = rows.groupby("round")["judged"].agg(["mean", "std"])
        axis.errorbar(zeros[spread.index], spread["mean"], yerr=spread["std"], label=kind, capsize=2, linewidth=1.2, **style)
    axis.set(xlabel="share of the layers' weights at zero", ylabel=title.partition(": ")[2], title=title.partition(": ")[0])
    axis.legend()
    return figure


if __name__ == "__main__":
    stage.main("tickets_page", tickets, metrics_file=lambda *_: PAGE.with_suffix(".json"))
