"""`python -m components.studies STUDY`: data/variants/<study>, data/studies/<study> -> data/report/studies/<study>.html, .csv, .json."""

from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from ruamel.yaml import YAML

from components import params
from components.comparison import pages
from components.comparison.plots import svg
from components.core import storage
from components.core.tracking import Run, flatten
from components.params import varied
from components.stages import stage
from components.studies import expectations, findings, ladder, plots, tables
from components.studies.folders import LAST, REPORTS

PUBLISHED = YAML(typ="safe").load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))


def study(all_params: params.Params, name: str, run: Run) -> dict:
    """Compare, judge what was expected, write the table and the pages, leave the rows in the ledger; the figures."""
    block, all_params = all_params.studies[name], all_params.of_study(name)
    compared = tables.comparisons(all_params, name)
    frame = tables.table(all_params, name, compared)
    reads = tables.reads(all_params, name)
    climbed = ladder.climb(block, frame, reads)
    readings = tables.readings(all_params, name, frame, compared, tables.untrained(all_params, name), tables.blind(all_params, name))
    readings += [climbed.sentence] if climbed else []
    outcomes = [expectations.outcome(own, tables.find(compared, own, block.base)) for own in block.expects]
    metrics = {task: f"{task}: {all_params.tasks[task].metric}" for task in block.tasks}
    metrics |= {evaluation: f"{evaluation}: right" for evaluation in block.evaluations}
    figures = {
        "plot": plots.against(block, frame, metrics, reads), "effects": plots.effects(block, frame, metrics),
        "ladder": ladder.drawn(block, frame, climbed) if climbed else None,
    }  # fmt: skip
    figures = {key: figure for key, figure in figures.items() if figure}
    run.tag(study=name)
    for key, figure in figures.items():
        run.figure(figure, f"figures/{key}.png")
    with storage.output(REPORTS / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    _page(all_params, name, frame, compared, readings, outcomes, metrics, figures)
    runs(all_params, name, run)
    run.artifact(REPORTS / f"{name}.csv")
    run.artifact(REPORTS / f"{name}.html")
    print(*readings, sep="\n")
    found = _found(block, frame, compared, readings, outcomes)
    digest(all_params, {name: found})
    return found


def _found(
    block: params.Study, frame: pd.DataFrame, compared: list[tables.Comparison], readings: list[str],
    outcomes: list[expectations.Outcome],
) -> dict:  # fmt: skip
    """What the study's JSON has: of the last models."""
    columns = ["parameters", "tokens", "steps", "flops", "seconds", "perplexity", "bits_per_byte", *block.measures]
    rows = frame[frame["milestone"] == LAST].set_index("variant")[columns]
    judged = [
        {"task": own.task, "variant": own.variant, "against": own.against, "verdict": own.verdict}
        | {key: None if np.isnan(value := getattr(own.difference, key)) else value for key in tables.FIGURES}
        for own in compared if own.milestone == LAST
    ]  # fmt: skip
    return {
        "reading": " ".join(readings), "variants": rows.astype(object).where(rows.notna(), None).to_dict("index"), "comparisons": judged,
        "expected": [own.expected.model_dump(mode="json") | {"outcome": own.said} for own in outcomes],
    }  # fmt: skip


def _page(
    all_params: params.Params, name: str, frame: pd.DataFrame, compared: list[tables.Comparison], readings: list[str],
    outcomes: list[expectations.Outcome], metrics: dict[str, str], figures: dict[str, Figure],
) -> None:  # fmt: skip
    block, variants = all_params.studies[name], tables.variants(all_params, name)
    results = [milestones for variant in variants for milestones in tables.transferred(all_params, name, variant).values()]
    answers = [tables.asked(all_params, name, variant) for variant in variants]
    rules = {
        f"{evaluation} by {own['protocol']}" for by in answers for evaluation, milestones in by.items()
        for seeds in milestones.values() for own in seeds
    }  # fmt: skip
    last = [own for own in compared if own.milestone == LAST]
    pages.write(
        REPORTS / f"{name}.html", Path(__file__).with_name("page.html.j2"), f"study {name}",
        name=name, block=block, frame=frame, readings=readings, published=published(block),
        metrics=metrics, protocols=sorted({result["protocol"] for milestones in results for result in milestones.values()} | rules),
        figures={key: Markup(svg(figure)) for key, figure in figures.items()},
        changes={variant: tables.change(block.variants[variant]) for variant in variants},
        outcomes=outcomes, fixed=expectations.fixed(name, block) if block.expects else None,
        contrasts=[[own for own in last if (own.variant, own.against) == pair and own.task in block.measures] for pair in block.contrasts],
        comparisons=len(last),
        further=tables.further(all_params, name), number=number, unguarded=tables.unguarded(all_params, name),
    )  # fmt: skip


def digest(all_params: params.Params, newest: dict[str, dict]) -> None:
    """A page of all studies, with what the ones that have been run have found: `newest`, or what stands in their file."""
    known = findings.committed(all_params.studies) | newest
    # results of an earlier form have no comparisons; they are as good as not run
    studies = {name: (block, own if "expected" in (own := known.get(name, {})) else None) for name, block in all_params.studies.items()}
    of_papers = findings.findings(all_params.studies, known)
    figure = Markup(svg(plots.findings(of_papers))) if of_papers else ""
    template = Path(__file__).with_name("digest.html.j2")
    pages.write(REPORTS / "index.html", template, "all studies", studies=studies, findings=of_papers, figure=figure)


def runs(all_params: params.Params, name: str, run: Run) -> None:
    """Leave a run in the ledger for each variant and seed, with all that its rows are compared by: choices, scores, budget.

    Parameters are few and the scores come first, because MLflow's plots begin with the first ones that it finds.
    """
    block, variants = all_params.studies[name], tables.variants(all_params, name)
    numbers = {key for variant in block.variants.values() for key, value in flatten(variant.change).items() if type(value) in (int, float)}
    for variant in variants:
        results = {task: milestones[LAST] for task, milestones in tables.transferred(all_params, name, variant).items()}
        answers = tables.asked(all_params, name, variant)
        for i, (seed, figures) in enumerate(zip(block.seeds, tables.pretrained(all_params, name, variant, LAST), strict=True)):
            model = flatten(varied(all_params.models, block, variant, seed).model_dump(mode="json"))
            tags = {"stage": "study", "study": name, "variant": variant, "model": block.model, "seed": str(seed)}
            choices = {"variant": variant, "seed": seed} | {key.rpartition(".")[2]: model.get(key) for key in sorted(numbers)}
            with run.child(f"{variant} {seed}", tags, choices) as child:
                scores = {task: result["scores"][result["split"]][result["metric"]]["values"][i] for task, result in results.items()}
                scores |= {evaluation: own[LAST][i]["score"] for evaluation, own in answers.items()}
                child.log({task: score for task, score in scores.items() if score is not None})
                known = (*tables.PRETRAINING, "parameters", "tokens", "steps", "flops", "seconds")
                child.log({key: figures[key] for key in known if not np.isnan(figures[key])})


def published(block: params.Study) -> dict | None:
    """The paper's rows, each figure with what it is less that of the first row; a dash where it has none."""
    if block.published is None:
        return None
    paper, rows = PUBLISHED[block.published], []
    first = next(iter(paper["rows"].values()))
    for variant, figures in paper["rows"].items():
        less = zip(figures, first, strict=True)
        shown = [_beside(figure, None if figures is first else start) for figure, start in less]
        rows.append({"variant": variant, **dict(zip(paper["columns"], shown, strict=True))})
    return paper | {"frame": pd.DataFrame(rows)}


def _beside(figure: float | None, start: float | None) -> str:
    if figure is None:
        return "–"
    return f"{figure}" if start is None else f"{figure} ({figure - start:+.1f})"


def number(value: float, digits: int = 3) -> str:
    """A figure for the page; large ones in millions, or with an exponent."""
    if value is None or np.isnan(value):
        return "–"
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


if __name__ == "__main__":
    stage.main("study", study, metrics_file=lambda _, name: REPORTS / f"{name}.json")
