"""The tables and sentences on studies in README.md and docs."""

from collections import Counter
from functools import cache
from pathlib import Path

import pandas as pd

from components import params
from components.comparison.detection import LEVEL
from components.comparison.plots import svg
from components.comparison.verdicts import holm
from components.params import LOSS
from components.report.markdown import REPORT, interval, rows, table
from components.stages.outputs import read_json
from components.studies import findings, milestones, plots
from components.studies.folders import LAST


def figures_of(study: str) -> dict:
    """The JSON of a study; empty where it has not run."""
    path = REPORT / "studies" / f"{study}.json"
    return read_json(path) if path.exists() else {}


def comparisons() -> str:
    """Count the comparisons of all committed pages, those beyond noise on their page, and those after a correction over all."""
    pages = [read_json(path).get("comparisons", []) for path in sorted(REPORT.glob("studies/*.json"))]
    pages.append([row for row in rows("gains") if row["p"]])
    tests = [(float(row["p"]), row["verdict"] in ("higher", "lower")) for page in pages for row in page if row["p"] is not None]
    beyond, after = sum(higher_or_lower for _, higher_or_lower in tests), sum(p < LEVEL for p in holm([p for p, _ in tests]))
    return (
        f"All pages together make {len(tests)} comparisons. Of these {beyond} are beyond noise after the correction of their page, and "
        f"{after} after one over all of them (Holm)."
    )


@cache
def declared() -> params.Params:
    """The params, read once."""
    return params.load()


@cache
def paper_findings() -> list[findings.Finding]:
    """The findings of committed studies that name papers."""
    studies = declared().studies
    return findings.findings(studies, findings.committed(studies))


def findings_table() -> str:
    """Each finding here, in the paper, and whether the paper's effect is reproduced."""
    pages = sorted(Path("docs").glob("*.md"), key=lambda page: page.name != "studies.md")
    body, texts = [], {page: page.read_text(encoding="utf-8") for page in pages}
    for one in paper_findings():
        paper = one.expected.paper
        page = next(page for page, text in texts.items() if f"<!-- table: study {one.study} -->" in text)
        heading = f"#{one.study}" if page.name == "studies.md" else ""
        link = f"[{one.study}]({page.name}{heading})"
        body.append([link, one.sentence.replace("_", " "), f"{paper.source}: {paper.found}", f"**{one.verdict}**"])
    return table(["study", "here", "in the paper", "the paper's effect is"], body)


def picture() -> str:
    """The plot of all findings, as SVG."""
    return svg(plots.findings(paper_findings()))


def learnt() -> str:
    """The plot of what the study `tokens` found to be learnt when, as SVG."""
    groups = figures_of("tokens")["groups"]
    return svg(milestones.plot(pd.DataFrame(groups), "tokens"))


def outcomes() -> str:
    """Count the verdicts on the papers' effects."""
    counts = Counter(one.verdict for one in paper_findings())
    verdicts = (findings.REPRODUCED, findings.OPPOSITE, findings.ABSENT, findings.OPEN)
    return f"Of {counts.total()} published effects: {', '.join(f'{counts[key]} {key}' for key in verdicts if counts[key])}."


def study(name: str) -> str:
    """A study's question and its results."""
    return f"*{declared().studies[name].question}*\n\n{results(name) or f'Not run yet: `sesame study {name}`.'}"


def results(name: str) -> str:
    """A study's variants, each minus the base, and the sentences of its page; nothing where it has not run, or has run with
    other measures than those declared now.

    The loss is left out where an earlier run did not compare it.
    """
    if not (REPORT / "studies" / f"{name}.csv").exists():
        return ""
    block, body, table_rows = declared().studies[name], [], rows(f"studies/{name}")
    if any(measure not in table_rows[0] for measure in block.measures):
        return ""
    measures = [key for key in (LOSS, *block.measures) if f"{key}_low" in table_rows[0]]
    for row in table_rows:
        cells = [row["variant"], f"{int(row['tokens']):,}", f"{float(row['flops']):.3g}"]
        for key in measures:
            shown = f"{float(row[key]):.3f}" if row[key] else "–"
            shown += f" ± {float(row[f'{key}_std']):.3f}" if row[f"{key}_std"] else ""
            less = interval(row, f"{key}_difference", f"{key}_low", f"{key}_high", "+") if row[f"{key}_low"] else "–"
            cells += [shown, f"**{less}**" if row[f"{key}_verdict"] in ("higher", "lower") else less]
        body.append(cells)
    head = ["variant", "tokens", "FLOPs", *(title for key in measures for title in (key.replace("_", " "), f"minus {block.base}"))]
    reading = figures_of(name)["reading"].replace("_", " ")
    seeds = f"{len(block.seeds)} seeds of pre-training. **Bold**: beyond noise after Holm's correction over the page."
    return f"{table(head, body)}\n\n{seeds} {reading} {_cost(name)}"


def _cost(name: str) -> str:
    """A sentence on the cost of a study's pre-trainings. A row has the seconds of all that its models were trained on, and
    those of the variant that they began with are its own row's."""
    config = declared()
    study = config.studies[name]
    seconds = {
        row["variant"]: float(row["seconds"]) * int(row["n"])
        for row in rows(f"studies/{name}") if row["milestone"] == LAST and not study.variants[row["variant"]].only_tuned
    }  # fmt: skip
    before = (params.begun_by(study, variant) for variant in seconds)
    hours = (sum(seconds.values()) - sum(seconds[start] for start in before if start)) / 3600
    tried = figures_of(name).get("learning_rates", {})
    hours += sum(of_variant["seconds"] for of_variant in tried.values()) / 3600
    kwh, usd = config.energy.pue * hours * config.energy.watts_per_core / 1000, hours * config.price.core_hour.on_demand
    return f"Its pre-trainings took {hours * 60:.0f} minutes of a core: {kwh:.3f} kWh, or ${usd:.2f} rented."


def finding(study: str, variant: str, task: str) -> str:
    """`learned: bits per byte 0.035 [0.019, 0.052] higher than gpt (reproduced)`."""
    for one in paper_findings():
        if (one.study, one.expected.variant, one.expected.task) == (study, variant, task):
            return f"{one.sentence.replace('_', ' ')} ({one.verdict})"
    return "not run yet"
