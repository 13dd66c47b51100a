"""`python -m components.report.readme`: fill the tables of README.md and docs from committed files.

A table is between `<!-- table: NAME -->` and `<!-- end -->`, a figure between `<!-- score: MODEL START TASK -->` and `<!-- end -->`
(FIGURES has the other kinds); the text around them is written by hand.
"""

import re
import statistics
from pathlib import Path

from components.comparison.price import KG_PER_LB
from components.report import STARTS
from components.report.markdown import REPORT, RESULTS, find, interval, rows, spread, table
from components.report.readme_results import (
    attention,
    babylm,
    captions,
    cove,
    diagnostics,
    digit,
    digits,
    efficiency,
    frozen,
    inverse_problems,
    probes,
    published_pairs,
    ranking,
    recipe_trials,
    seed_grids,
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

DOCS = Path("docs")
FILLED = (
    "adaptation", "comparisons", "default", "evaluations", "family", "findings", "green", "pixels", "recipe", "recurrent", "search",
    "spaces", "studies", "tutorial_verdict", "writing",
)  # fmt: skip
PAGES = (Path("README.md"), *(Path("docs", f"{name}.md") for name in FILLED), *sorted(Path("docs").glob("lecture_*.md")))
PICTURES = {Path("docs/images/findings.svg"): picture, Path("docs/images/learnt.svg"): learnt}
START_NAMES = {"pretrained": "pretrained", **STARTS}
"""The starts of a model in tables."""
TASKS = {"stsb": "STS-B (Pearson)", "snli": "SNLI (accuracy)", "movies": "movie reviews (accuracy)"}
BASELINES = {
    "decomposable_attention": "the same head over random vectors", "averaging": "averaging network",
    "logistic_regression": "logistic regression", "linear_svm": "linear svm", "second_text": "the second text alone",
    "tfidf_cosine": "cosine of word counts", "majority": "majority",
}  # fmt: skip


def scores() -> str:
    """Mean and standard deviation over seeds; bold where pre-trained weights are better than each other start beyond noise."""
    table_rows = {(row["model"], row["init"], row["task"]): row for row in rows("scores")}
    verdicts: dict[tuple[str, str], set[str]] = {}
    for row in rows("gains"):
        if row["against"] in STARTS:
            verdicts.setdefault((row["model"], row["task"]), set()).add(row["verdict"])

    tasks = [task for task in TASKS if task in {key[2] for key in table_rows}]

    def cell(model: str, init: str, task: str) -> str:
        if (row := table_rows.get((model, init, task))) is None:
            return "–"
        shown = spread(row)
        return f"**{shown}**" if init == "pretrained" and verdicts.get((model, task)) == {"higher"} else shown

    def line(label: str, start: str, model: str, init: str) -> list[str]:
        return [label, start, *(cell(model, init, task) for task in tasks)]

    models = list(dict.fromkeys(row["model"] for row in rows("scores") if row["init"] == "random"))
    frozen = {"elmo": "elmo, frozen"}
    body = [line(frozen.get(model, model), name, model, init) for model in models for init, name in START_NAMES.items()]
    ran = {model for model, init, task in table_rows if init == "baseline" and task in tasks}
    body += [line(label, "", name, "baseline") for name, label in BASELINES.items() if name in ran]
    return table(["model", "start", *(TASKS[task] for task in tasks)], body)


def gains() -> str:
    """Pre-trained weights minus other starts: the 95 % interval, and the verdict."""
    body = [
        [
            row["model"], STARTS[row["against"]], row["task"], interval(row, "difference", "low", "high", "+"), row["verdict"],
            f"{float(row['detectable']):.3f}",
        ]
        for row in rows("gains") if row["against"] in STARTS
    ]  # fmt: skip
    return table(["model", "minus", "task", "difference", "verdict", "could have seen"], body)


def starts() -> str:
    """The best point of each start's grid, by the mean over the tasks on dev, and the number of points."""
    tried: dict[tuple[str, str], dict[tuple[str, str], dict[str, float]]] = {}
    for row in rows("starts", DOCS):
        points = tried.setdefault((row["model"], row["start"]), {})
        points.setdefault((row["embedding_scale"], row["learning_rate"]), {})[row["task"]] = float(row["score"])
    body, tasks = [], []
    for (model, start), points in tried.items():
        tasks = [task for task in TASKS if task in next(iter(points.values()))]
        (scale, rate), best = max(points.items(), key=lambda point: statistics.fmean(point[1].values()))
        rates = ", ".join(sorted({row for _, row in points}, key=float))
        body.append([model, START_NAMES[start], str(len(points)), rates, rate, scale, *(f"{best[task]:.3f}" for task in tasks)])
    head = ["model", "start", "points tried", "rates", "best rate", "scale of token vectors"]
    return table([*head, *(TASKS[task] for task in tasks)], body)


def reading() -> str:
    """The report's sentences on the scores."""
    return read_json(REPORT / "figures.json")["reading"]


def pretraining() -> str:
    """The size of each pre-training, its loss on the full validation text, and which are no better than a 4-gram."""
    body = [
        [
            row["model"], f"{int(row['parameters']):,}", f"{int(row['tokens']):,}",
            f"{float(row['loss']):.2f} ± {float(row['loss_se']):.2f}",
            f"{float(row['context_free_loss']):.2f}", f"{float(row['ngram_loss']):.2f}" if row["ngram_loss"] else "–",
            f"{float(row['perplexity']):.1f}", f"{float(row['bits_per_byte']):.2f}",
            f"{float(row['bits_per_byte_mean']):.3f} ± {float(row['bits_per_byte_std']):.3f} ({row['pretrainings']})"
            if row["bits_per_byte_std"] else "–",
            f"{float(row['tokens_per_second']):,.0f}",
        ]
        for row in rows("pretraining")
    ]  # fmt: skip
    head = [
        "model", "parameters", "tokens", "loss ± error", "without context", "4-gram", "perplexity", "bits/byte",
        "of all seeds ± std", "tokens/s",
    ]  # fmt: skip
    counted = [row for row in rows("pretraining") if row["ngram_loss"]]
    behind = [row["model"] for row in counted if float(row["loss"]) >= float(row["ngram_loss"])]
    return f"{table(head, body)}\n\nNo better than the 4-gram: {', '.join(behind) or 'none'}."


def alignment() -> str:
    """Precision at 1 with CSLS, with its interval."""
    body = [
        [
            row["pair"], row["method"], "none" if row["method"] == "unsupervised" else f"{int(row['seed_pairs']):,}",
            interval(row, "p1", "p1_low", "p1_high"),
            f"{float(row['p5']):.3f}", f"{float(row['p10']):.3f}", f"{float(row['coverage']):.3f}",
        ]
        for row in rows("alignment") if row["retrieval"] == "csls" and row["pair"] != "same_period_b"
    ]  # fmt: skip
    return table(["pair", "method", "pairs given", "P@1, CSLS", "P@5", "P@10", "coverage"], body)


def evaluations() -> str:
    """Minimal pairs."""

    def cell(row: dict[str, str], key: str) -> str:
        return f"{float(row[key]):.3f}" if row[key] else "–"

    body = []
    for row in (row for row in rows("evaluations") if row["group"] == "all" and row["unigram"]):
        right, random = (f"{cell(row, mean)} ± {cell(row, error)}" for mean, error in (("score", "error"), ("random", "random_std")))
        gain = interval(row, "difference", "low", "high", "+")
        about = [row["evaluation"], row["model"], row["pretrainings"], f"{float(row['items']):,.0f}"]
        body.append([*about, right, random, gain, row["verdict"], cell(row, "bigram")])
    head = [
        "evaluation", "model", "seeds", "items", "right ± error", "random weights ± std", "gain over random weights", "verdict", "bigram",
    ]  # fmt: skip
    return table(head, body)


def rates(study: str) -> str:
    """The validation loss of each variant at each learning rate that a study tried; the lowest in bold."""
    tried = figures_of(study).get("learning_rates")
    if not tried:
        return "Not run yet."
    body = []
    for variant, of_variant in tried.items():
        losses = of_variant["losses"].values()
        lowest = min(loss for loss in losses if loss is not None)
        shown = ("diverged" if loss is None else f"**{loss:.3f}**" if loss == lowest else f"{loss:.3f}" for loss in losses)
        body.append([variant, *shown])
    factors = next(iter(tried.values()))["losses"]
    return table(["variant", *(f"{factor} ×" for factor in factors)], body)


def attention_cost() -> str:
    """Each kind of attention: tokens a second, and MiB of activations a thousand tokens, at three lengths of rows."""
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows("attention_cost", DOCS):
        cost = [f"{float(row['tokens_per_second']):,.0f}", f"{float(row['mib_per_1000_tokens']):,.0f}"]
        cells.setdefault(row["attention"], {})[row["length"]] = cost
    lengths = ("64", "1024", "4096")
    head = ["attention", *(f"tokens/s, rows of {int(length):,}" for length in lengths)]
    head += [f"MiB, {int(length):,}" for length in lengths]
    return table(head, [[kind, *(costs[length][i] for i in (0, 1) for length in lengths)] for kind, costs in cells.items()])


TABLES = {
    "diagnostics": diagnostics, "findings": findings_table, "outcomes": outcomes, "study": study,
    "scores": scores, "reading": reading, "comparisons": comparisons, "gains": gains, "starts": starts, "pretraining": pretraining,
    "alignment": alignment, "evaluations": evaluations, "published_pairs": published_pairs, "probes": probes,
    "sentence_probes": sentence_probes, "attention": attention, "rates": rates, "warmup": warmup,
    "attention_cost": attention_cost, "babylm": babylm, "digits": digits, "captions": captions,
    "inverse_problems": inverse_problems, "recipe_trials": recipe_trials, "ranking": ranking, "efficiency": efficiency,
    "seed_grids": seed_grids, "cove": cove,
}  # fmt: skip


VERDICTS = {"higher": "beyond noise", "lower": "beyond noise", "not trained": "no verdict, as the models have hardly learned"}


def score(model: str, start: str, task: str) -> str:
    """`0.697 ± 0.011`; of a baseline the start is `baseline`."""
    return spread(find("scores", model=model, init=start, task=task))


def gain(model: str, against: str, task: str) -> str:
    """`+0.446 [+0.375, +0.518], beyond noise`."""
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
