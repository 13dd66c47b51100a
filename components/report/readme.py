"""`python -m components.report.readme`: fill the tables of README.md and docs from committed files.

A table is between `<!-- table: NAME -->` and `<!-- end -->`, a figure between `<!-- score: MODEL START TASK -->` and `<!-- end -->`
(FIGURES has the other kinds); the text around them is written by hand.
"""

import re
from pathlib import Path

from components.comparison.price import KG_PER_LB
from components.report.markdown import REPORT, RESULTS, find, interval, spread
from components.report.readme_default import (
    alignment,
    attention_cost,
    efficiency,
    evaluations,
    gains,
    pretraining,
    rates,
    reading,
    scores,
    seed_grids,
    starts,
)
from components.report.readme_results import (
    attention,
    babylm,
    captions,
    cove,
    diagnostics,
    digit,
    digits,
    frozen,
    glue,
    inverse_problems,
    probes,
    published_pairs,
    ranking,
    recipe_trials,
    sentence_probes,
    solved,
    warmup,
)
from components.report.readme_studies import (
    comparisons,
    figures_of,
    finding,
    findings_table,
    learnt,
    outcomes,
    picture,
    study,
)
from components.stages.outputs import read_json
from components.studies.folders import LAST

FILLED = (
    "adaptation", "comparisons", "default", "evaluations", "family", "findings", "green", "pixels", "recipe", "recurrent", "search",
    "spaces", "studies", "tutorial_verdict", "writing",
)  # fmt: skip
PAGES = (Path("README.md"), *(Path("docs", f"{name}.md") for name in FILLED), *sorted(Path("docs").glob("lecture_*.md")))
PICTURES = {Path("docs/images/findings.svg"): picture, Path("docs/images/learnt.svg"): learnt}
TABLES = {
    "diagnostics": diagnostics, "findings": findings_table, "outcomes": outcomes, "study": study,
    "scores": scores, "reading": reading, "comparisons": comparisons, "gains": gains, "starts": starts, "pretraining": pretraining,
    "alignment": alignment, "evaluations": evaluations, "published_pairs": published_pairs, "probes": probes,
    "sentence_probes": sentence_probes, "attention": attention, "rates": rates, "warmup": warmup,
    "attention_cost": attention_cost, "babylm": babylm, "digits": digits, "captions": captions,
    "inverse_problems": inverse_problems, "recipe_trials": recipe_trials, "ranking": ranking, "efficiency": efficiency,
    "seed_grids": seed_grids, "cove": cove, "glue": glue,
}  # fmt: skip


VERDICTS = {"higher": "beyond noise", "lower": "beyond noise", "not trained": "no verdict, as the models have hardly learned"}


def score(model: str, start: str, task: str) -> str:
    """`0.697 ± 0.011`; of a baseline the start is `baseline`."""
    return spread(find("scores", model=model, init=start, task=task))


def gain(model: str, against: str, task: str, profile: str = "") -> str:
    """`+0.446 [+0.375, +0.518], beyond noise`; of a profile's run, or the default's."""
    if profile:
        row = find(profile, RESULTS, model=model, init=against, task=task)
    else:
        row = find("gains", model=model, against=against, task=task)
    return f"{interval(row, 'difference', 'low', 'high', '+')}, {VERDICTS.get(row['verdict'], row['verdict'])}"


def learning(model: str, start: str, task: str, examples: str) -> str:
    """A point of a learning curve: `0.407 ± 0.010`."""
    return spread(find("learning_curve", model=model, start=start, task=task, examples=examples))


def calibration(model: str, start: str, task: str) -> str:
    """The expected calibration error: `0.129`."""
    return f"{float(find('calibration', model=model, init=start, task=task)['expected_calibration_error']):.3f}"


def precision(pair: str, method: str) -> str:
    """P@1 by CSLS: `0.327 [0.286, 0.370]`."""
    return interval(find("alignment", pair=pair, method=method, retrieval="csls"), "p1", "p1_low", "p1_high")


def unseen(pair: str, method: str) -> str:
    """P@1 with CSLS on words without a translation in the seed dictionary: `0.304`."""
    return f"{float(find('alignment', pair=pair, method=method, retrieval='csls')['p1_unseen']):.3f}"


def less_first(pair: str, method: str, retrieval: str) -> str:
    """P@1 minus that of the first method with the same retrieval: `+0.019 [-0.010, +0.048]`."""
    return interval(find("alignment", pair=pair, method=method, retrieval=retrieval), "less_first", "less_low", "less_high", "+")


def above_random(row: dict[str, str]) -> str:
    """A score of an evaluation, and that of random weights."""
    return f"{float(row['score']):.3f}, {float(row['random']):.3f} from random weights"


def right(model: str, evaluation: str, profile: str = "") -> str:
    """Share of right answers, and that of random weights: `0.899, 0.499 from random weights`; of a profile's run, or
    the default's."""
    file, folder = (profile, RESULTS) if profile else ("evaluations", REPORT)
    return above_random(find(file, folder, model=model, evaluation=evaluation, group="all"))


def metric(stage: str, key: str) -> str:
    """A figure of a stage's metrics: `0.526`."""
    return f"{read_json(REPORT / 'metrics.json')[stage][key]:.3f}"


def probed(model: str, evaluation: str) -> str:
    """The score of a probe on the best layer: `0.749, 0.616 from random weights`; of a task as `snli_probe`."""
    file = "sentence_probes" if evaluation.endswith("_probe") else "probes"
    return above_random(find(file, RESULTS, model=model, evaluation=evaluation, group="all"))


def attended(model: str, relation: str) -> str:
    """How often the best attention head of a relation finds the syntactic head of a word: `0.537, 0.031 from random weights`."""
    return above_random(find("attention", RESULTS, model=model, group=relation))


def varied(study: str, variant: str, measure: str) -> str:
    """A figure of a study's variant after its whole pre-training: `0.487 ± 0.006`."""
    row = find(f"studies/{study}", variant=variant, milestone=LAST)
    return " ± ".join(f"{float(row[key]):.3f}" for key in (measure, f"{measure}_std") if row[key])


def effect(study: str, variant: str, measure: str, against: str = "") -> str:
    """A variant's figure minus that of another, by default the base's: `+0.041 [-0.010, +0.092], not beyond noise`."""
    if against:
        of_measure = [row for row in figures_of(study)["comparisons"] if row["task"] == measure]
        [row] = (row for row in of_measure if {row["variant"], row["against"]} == {variant, against})
        if row["variant"] == against:
            row |= {"difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
        less, verdict = interval(row, "difference", "low", "high", "+"), row["verdict"]
    else:
        row = find(f"studies/{study}", variant=variant, milestone=LAST)
        less, verdict = interval(row, f"{measure}_difference", f"{measure}_low", f"{measure}_high", "+"), row[f"{measure}_verdict"]
    return f"{less}, {VERDICTS.get(verdict, verdict)}"


def moved(pair: str) -> str:
    """How many words changed between two periods."""
    facts = read_json(REPORT / "figures.json")["moved"][pair]
    beyond = " and ".join(f"{share:.0%}".replace("%", " %") for share in facts["beyond"].values())
    return (
        f"{beyond} of {facts['words']:,} words moved farther than 95 % of words as frequent do between two halves of one period; at a "
        f"false-discovery rate of 5 % {facts['changed']:,} have changed. The mean distance is {facts['mean']:.3f}, the control's "
        f"{facts['control_mean']:.3f}"
    )


def novel(generation: str) -> str:
    """How new the texts of a generation are, beside people's."""
    figures = read_json(REPORT / "metrics.json")[f"generate@{generation}"]
    written, people = figures["written"], figures["by_people"]
    return (
        f"{100 * written['novel_4']:.0f} % of its runs of four pieces are nowhere in the training text, of people's "
        f"{100 * people['novel_4']:.0f} %; its longest copy has {written['longest_copy']:.0f} pieces, people's {people['longest_copy']:.0f}"
    )


def spent(model: str) -> str:
    """What one pre-training of a model cost: `1.5 minutes, 0.00038 kWh, 0.0003 lb CO2e, 0.02 to 0.08 cents`."""
    row, trained = find("costs", stage=f"pretrain@{model}"), int(find("pretraining", model=model)["pretrainings"])
    seconds, kwh, kilograms, least, most = (
        float(row[key]) / trained for key in ("seconds", "kwh", "co2e_kg", "usd_preemptible", "usd_on_demand")
    )
    return f"{seconds / 60:.1f} minutes, {kwh:.5f} kWh, {kilograms / KG_PER_LB:.5f} lb CO2e, {100 * least:.2f} to {100 * most:.2f} cents"


def predicted(study: str) -> str:
    """What a ladder's fit said of the variants that it did not see, and how it would divide ten times the compute."""
    return re.search(r"the rest predicted: (.*?tokens)\.", read_json(REPORT / f"studies/{study}.json")["reading"])[1]


FIGURES = {
    "finding": finding, "varied": varied, "effect": effect,
    "probed": probed, "attended": attended,
    "right": right, "score": score, "gain": gain, "learning": learning, "calibration": calibration, "precision": precision,
    "unseen": unseen, "less_first": less_first, "moved": moved, "novel": novel, "spent": spent,
    "digits": digit, "frozen": frozen, "metric": metric, "solved": solved, "predicted": predicted,
}  # fmt: skip


def filled(text: str) -> str:
    """A text with its tables and figures filled in."""
    marker = re.compile(r"<!-- table: (\w+) ?(\w*) -->\n.*?<!-- end -->", re.S)
    text = marker.sub(lambda match: f"{match[0].partition(chr(10))[0]}\n\n{TABLES[match[1]](*match[2].split())}\n\n<!-- end -->", text)
    figure = re.compile(rf"<!-- ({'|'.join(FIGURES)}): ([\w@ ]+) -->.*?<!-- end -->")
    return figure.sub(lambda match: f"<!-- {match[1]}: {match[2]} -->{FIGURES[match[1]](*match[2].split())}<!-- end -->", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    for file, drawn in PICTURES.items():
        file.write_text(drawn(), encoding="utf-8")
