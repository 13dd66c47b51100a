"""`python -m components.tickets`: data/tickets -> data/report/tickets.html, .csv, .json: are a few weights enough, and which?"""

from pathlib import Path

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from components import params, stage
from components.errors import SesameError
from components.report import pages
from components.report.plots import plt, styles, svg
from components.tasks import verdicts
from components.tasks.verdicts import Difference, Side
from components.tickets import FOLDER
from components.tickets.rounds import KINDS
from components.tracking import Run

PAGE = Path("data/report/tickets.html")
WHOLE = ("ticket", 0)
"""The whole model, from its pre-trained weights."""


def tickets(all_params: params.Params, name: str, run: Run) -> dict:
    """Compare, draw. Raises SesameError where there is nothing."""
    config = all_params.tickets
    if not config.pairs:
        raise SesameError(f"tickets of {params.STUDIES} names no models or no tasks")
    parts, found = [], []
    for model, task in config.pairs:
        about = stage.read_json(FOLDER / model / task / str(config.seeds[0]) / "metrics.json")
        frame = pd.concat(
            [pd.read_csv(FOLDER / model / task / str(seed) / "scores.csv").assign(seed=seed) for seed in config.seeds], ignore_index=True
        )
        scored = sides(all_params, model, task, about, frame)
        compared = comparisons(scored, config.rounds)
        figure = curves(frame, config.rounds, f"{task}: {about['split']} {about['metric']} of {model}")
        run.figure(figure, f"figures/{model}_{task}.png")
        said = sentence(model, task, frame, compared)
        print(said, flush=True)
        parts.append({
            "model": model, "task": task, "protocol": about["protocol"], "sentence": said, "figure": Markup(svg(figure)),
            "table": table(frame, scored, compared, config.rounds),
        })  # fmt: skip
        found.append(frame.assign(model=model, task=task))
    with stage.output(PAGE.with_suffix(".csv")) as temporary:
        pd.concat(found).to_csv(temporary, index=False, lineterminator="\n")
    pages.write(PAGE, Path(__file__).with_name("page.html.j2"), "tickets", parts=parts, config=config)
    run.artifact(PAGE)
    return {"readings": {f"{part['model']}-{part['task']}": part["sentence"] for part in parts}}


def sides(all_params: params.Params, model: str, task: str, about: dict, frame: pd.DataFrame) -> dict[tuple[str, int], Side]:
    """(kind, round) -> its scores over the seeds."""
    folders = [FOLDER / model / task / str(seed) for seed in all_params.tickets.seeds]
    places = {
        (kind, number): [(folder / f"{kind}-{number}", "pretrained") for folder in folders]
        for kind, number in frame[["kind", "round"]].drop_duplicates().itertuples(index=False)
    }  # fmt: skip
    return verdicts.sides(all_params, task, about["split"], about["metric"], places)[1]


def comparisons(scored: dict[tuple[str, int], Side], rounds: int) -> dict[tuple[int, str], tuple[Difference, str]]:
    """(round, against) -> the ticket less the whole model, and less each control; Holm's correction over all."""
    pairs = [(number, against) for number in range(1, rounds + 1) for against in ("whole", *KINDS[1:])]
    differences = [
        verdicts.difference(scored["ticket", number], scored[WHOLE if against == "whole" else (against, number)])
        for number, against in pairs
    ]  # fmt: skip
    return dict(zip(pairs, zip(differences, verdicts.verdicts(differences), strict=True), strict=True))


def sentence(model: str, task: str, frame: pd.DataFrame, compared: dict[tuple[int, str], tuple[Difference, str]]) -> str:
    """What the numbers support."""
    zeros = frame.groupby("round")["sparsity"].mean()
    level = [
        number for (number, against), (_, verdict) in compared.items() if against == "whole" and verdict in ("not beyond noise", "higher")
    ]
    said = (
        f"{model} on {task}: the smallest ticket that is not beyond noise below the whole model has {zeros[max(level)]:.0%} of the layers' "
        f"weights at zero ({compared[max(level), 'whole'][0].shown})"
        if level else f"{model} on {task}: every ticket is beyond noise below the whole model"
    )  # fmt: skip
    parts = []
    for against, words in (
        ("random", "as many weights anywhere"),
        ("worst", "as many of those pruned"),
        ("reinitialised", "its weights drawn anew"),
    ):
        ahead = [number for (number, other), (_, verdict) in compared.items() if other == against and verdict == "higher"]
        rounds = ", ".join(f"{zeros[number]:.0%}" for number in ahead)
        parts.append(f"ahead of {words} {f'at {rounds}' if ahead else 'nowhere'}")
    return f"{said}; beyond noise a ticket is {', '.join(parts)}."


def table(
    frame: pd.DataFrame, scored: dict[tuple[str, int], Side], compared: dict[tuple[int, str], tuple[Difference, str]], rounds: int
) -> pd.DataFrame:  # fmt: skip
    """A row a round."""
    zeros, rows = frame.groupby("round")["sparsity"].mean(), []
    for number in range(rounds + 1):
        row: dict = {"zero": f"{zeros[number]:.0%}"}
        for kind in KINDS:
            own = scored.get((kind, number))
            row[kind] = "–" if own is None else f"{own.mean:.3f}" + (f" ± {own.scores.std(ddof=1):.3f}" if own.runs > 1 else "")
        for against in ("whole", *KINDS[1:]):
            difference, verdict = compared.get((number, against), (None, ""))
            star = " *" if verdict in ("higher", "lower") else ""
            row[f"ticket less {against}"] = "–" if difference is None else difference.shown + star
        rows.append(row)
    return pd.DataFrame(rows)


def curves(frame: pd.DataFrame, rounds: int, title: str) -> Figure:
    """Score against the share of zeros, a line a kind, bars of a standard deviation."""
    figure, axis = plt.subplots(figsize=(6.6, 4.2), constrained_layout=True)
    zeros = frame.groupby("round")["sparsity"].mean()
    for style, kind in zip(styles(), KINDS, strict=False):
        own = frame[(frame["kind"] == kind) | ((frame["round"] == 0) & (frame["kind"] == "ticket") & (kind not in ("reinitialised",)))]
        spread = own.groupby("round")["judged"].agg(["mean", "std"])
        axis.errorbar(zeros[spread.index], spread["mean"], yerr=spread["std"], label=kind, capsize=2, linewidth=1.2, **style)
    axis.set(xlabel="share of the layers' weights at zero", ylabel=title.partition(": ")[2], title=title.partition(": ")[0])
    axis.legend()
    return figure


if __name__ == "__main__":
    stage.main("tickets_page", tickets, metrics_file=lambda *_: PAGE.with_suffix(".json"))
