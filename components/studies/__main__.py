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
from components.core.frames import read_csv
from components.core.tracking import Run, flatten
from components.stages import stage
from components.studies import expectations, findings, ladder, milestones, plots, readings, tables
from components.studies.folders import LAST, REPORTS, training_block, weights_folder

PUBLISHED = YAML(typ="safe").load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))


def study(all_params: params.Params, name: str, run: Run) -> dict:
    """Compare the variants, check the expectations, write the table and the pages, and record a run of each training in MLflow."""
    block, all_params = all_params.studies[name], all_params.of_study(name)
    compared = tables.comparisons(all_params, name)
    frame = tables.table(all_params, name, compared)
    reads = tables.reads(all_params, name)
    fitted = ladder.climb(block, frame, reads)
    units, references = tables.units(all_params, name), tables.references(all_params, name)
    sentences = readings.readings(
        all_params, name, frame, compared, tables.untrained(all_params, name), tables.blind(all_params, name), units
    )  # fmt: skip
    sentences += readings.beside_references(references, frame, units)
    sentences += [fitted.sentence] if fitted else []
    outcomes = [expectations.outcome(expected, tables.find(compared, expected, block.base)) for expected in block.expects]
    learnt = milestones.by_group(all_params, name) if block.milestones else pd.DataFrame()
    figures = {
        "learnt": milestones.plot(learnt, "flops" if block.plot.x == "flops" else "tokens") if len(learnt) else None,
        "plot": plots.scatter(block, frame, units, reads, references),
        "effects": plots.effects(block, frame, units),
        "ladder": ladder.plot(block, frame, fitted) if fitted else None,
    }  # fmt: skip
    figures = {key: figure for key, figure in figures.items() if figure}
    run.tag(study=name)
    for key, figure in figures.items():
        run.figure(figure, f"figures/{key}.png")
    with storage.output(REPORTS / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    _page(all_params, name, frame, compared, sentences, outcomes, units, figures)
    record_runs(all_params, name, run)
    run.artifact(REPORTS / f"{name}.csv")
    run.artifact(REPORTS / f"{name}.html")
    print(*sentences, sep="\n")
    results = _results(block, frame, compared, sentences, outcomes)
    if block.learning_rates:
        results["learning_rates"] = readings.rates_tried(all_params, name)
    if len(learnt):
        results["groups"] = learnt.astype(object).where(learnt.notna(), None).to_dict("records")
    digest(all_params, {name: results})
    return results


def _results(
    block: params.Study, frame: pd.DataFrame, compared: list[tables.Comparison], sentences: list[str],
    outcomes: list[expectations.Outcome],
) -> dict:  # fmt: skip
    """The content of the study's JSON, of the last models."""
    columns = ["parameters", "tokens", "steps", "flops", "seconds", "perplexity", "bits_per_byte", *block.measures]
    rows = frame[frame["milestone"] == LAST].set_index("variant")[columns]
    comparisons = [
        {"task": one.task, "variant": one.variant, "against": one.against, "verdict": one.verdict}
        | {key: None if np.isnan(value := getattr(one.difference, key)) else value for key in tables.FIGURES}
        for one in compared if one.milestone == LAST
    ]  # fmt: skip
    return {
        "reading": " ".join(sentences), "variants": rows.astype(object).where(rows.notna(), None).to_dict("index"),
        "comparisons": comparisons,
        "expected": [outcome.expected.model_dump(mode="json") | {"outcome": outcome.said} for outcome in outcomes],
    }  # fmt: skip


def _page(
    all_params: params.Params, name: str, frame: pd.DataFrame, compared: list[tables.Comparison], sentences: list[str],
    outcomes: list[expectations.Outcome], units: dict[str, str], figures: dict[str, Figure],
) -> None:  # fmt: skip
    block, variants = all_params.studies[name], tables.variants(all_params, name)
    results = [milestones for variant in variants for milestones in tables.transferred(all_params, name, variant).values()]
    answers = [tables.evaluated(all_params, name, variant) for variant in variants]
    rules = {
        f"{evaluation} by {answer['protocol']}" for by_evaluation in answers for evaluation, milestones in by_evaluation.items()
        for seeds in milestones.values() for answer in seeds
    }  # fmt: skip
    last = [one for one in compared if one.milestone == LAST]
    pages.write(
        REPORTS / f"{name}.html", Path(__file__).with_name("page.html.j2"), f"study {name}",
        name=name, block=block, frame=frame, readings=sentences, published=published(block),
        metrics={measure: plots.title(measure, units) for measure in block.measures},
        protocols=sorted({result["protocol"] for milestones in results for result in milestones.values()} | rules),
        figures={key: Markup(svg(figure)) for key, figure in figures.items()},
        changes={variant: readings.change(block.variants[variant]) for variant in variants},
        outcomes=outcomes, fixed=expectations.fixed(name, block),
        rates=readings.rates_tried(all_params, name) if block.learning_rates else {},
        contrasts={pair: {one.task: one for one in last if (one.variant, one.against) == pair} for pair in block.contrasts},
        comparisons=len(last),
        judged=lambda measure, verdict: {True: "gain", False: "loss"}.get(tables.better(units[measure], verdict), ""),
        further=tables.further(all_params, name), number=number, unguarded=readings.unguarded(all_params, name),
    )  # fmt: skip


def digest(all_params: params.Params, newest: dict[str, dict]) -> None:
    """Write the page of all studies with their results: `newest`, or those in their files."""
    known = findings.committed(all_params.studies) | newest
    # files of an earlier form have no comparisons; their studies count as not run
    studies = {
        name: (block, figures if "expected" in (figures := known.get(name, {})) else None) for name, block in all_params.studies.items()
    }
    of_papers = findings.findings(all_params.studies, known)
    figure = Markup(svg(plots.findings(of_papers))) if of_papers else ""
    template = Path(__file__).with_name("digest.html.j2")
    has_page = {page.stem for page in REPORTS.glob("*.html")}
    pages.write(REPORTS / "index.html", template, "all studies", studies=studies, findings=of_papers, figure=figure, has_page=has_page)


def record_runs(all_params: params.Params, name: str, run: Run) -> None:
    """Record an MLflow run for each variant and seed: choices, scores, budget, and the curve of its training.

    Parameters are few and the scores come first, because MLflow's plots begin with the first ones.
    """
    block, variants = all_params.studies[name], tables.variants(all_params, name)
    numbers = {key for variant in block.variants.values() for key, value in flatten(variant.change).items() if type(value) in (int, float)}
    numbers |= {"optimizer.learning_rate"} if block.learning_rates else set()
    sides = {evaluation: tables.evaluation_sides(all_params, name, evaluation) for evaluation in block.evaluations}
    for variant in variants:
        results = {task: milestones[LAST] for task, milestones in tables.transferred(all_params, name, variant).items()}
        for i, (seed, figures) in enumerate(zip(block.seeds, tables.pretrained(all_params, name, variant, LAST), strict=True)):
            model = flatten(training_block(all_params, params.Member(name, variant, seed)).model_dump(mode="json"))
            tags = {"stage": "study", "study": name, "variant": variant, "model": block.model, "seed": str(seed)}
            choices = {"variant": variant, "seed": seed} | {key.rpartition(".")[2]: model.get(key) for key in sorted(numbers)}
            with run.child(f"{variant} {seed}", tags, choices) as child:
                scores = {task: result["scores"][result["split"]][result["metric"]]["values"][i] for task, result in results.items()}
                scores |= {evaluation: float(side[variant, LAST].scores[i]) for evaluation, side in sides.items()}
                child.log({task: score for task, score in scores.items() if score is not None})
                known = (*tables.PRETRAINING, "parameters", "tokens", "steps", "flops", "seconds")
                child.log({key: figures[key] for key in known if not np.isnan(figures[key])})
                curve = weights_folder(all_params, params.Member(name, variant, seed)) / "curve.csv"
                # random weights were not trained, and a model that was made by something else than text has no curve
                if curve.exists() and block.variants[variant].init == "pretrained":
                    child.curve(read_csv(curve).filter(["step", "seconds", *tables.PRETRAINING]).to_dict("records"))


def published(block: params.Study) -> dict | None:
    """The paper's rows, each figure with its difference from the first row; a dash where it has none."""
    if block.published is None:
        return None
    paper, rows = PUBLISHED[block.published], []
    first = next(iter(paper["rows"].values()))
    for variant, figures in paper["rows"].items():
        shown = [_with_difference(figure, None if figures is first else start) for figure, start in zip(figures, first, strict=True)]
        rows.append({"variant": variant, **dict(zip(paper["columns"], shown, strict=True))})
    return paper | {"frame": pd.DataFrame(rows)}


def _with_difference(figure: float | None, start: float | None) -> str:
    if figure is None:
        return "–"
    return f"{figure}" if start is None else f"{figure} ({figure - start:+.1f})"


def number(value: float, digits: int = 3) -> str:
    """Format a figure for the page; large ones with thousands separators, or an exponent."""
    if value is None or np.isnan(value):
        return "–"
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


if __name__ == "__main__":
    stage.main("study", study, metrics_file=lambda _, name: REPORTS / f"{name}.json")
