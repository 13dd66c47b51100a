"""`python -m components.report.readme`: the tables of README.md, filled from the report's files in data/report.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; the text around it is written by hand.
"""

import csv
import json
import re
from pathlib import Path

REPORT = Path("data/report")
README = Path("README.md")
TASKS = {"stsb": "STS-B (Pearson)", "snli": "SNLI (accuracy)", "movies": "movie reviews (accuracy)"}
BASELINES = {
    "decomposable_attention": "the same head over random vectors", "averaging": "averaging network",
    "logistic_regression": "logistic regression", "linear_svm": "linear svm", "second_text": "the second text alone",
    "majority": "majority",
}  # fmt: skip


def rows(name: str) -> list[dict[str, str]]:
    """A table of the report."""
    with (REPORT / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(head: list[str], body: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def scores() -> str:
    """Mean and standard deviation over seeds; bold where a start is beyond noise ahead of the other one."""
    found = {(row["model"], row["init"], row["task"]): row for row in rows("scores")}
    verdicts = {(row["model"], row["task"]): row["verdict"] for row in json.loads((REPORT / "figures.json").read_text())["gains"]}
    better = {"higher": "pretrained", "lower": "random"}

    def cell(model: str, init: str, task: str) -> str:
        if (row := found.get((model, init, task))) is None:
            return "–"
        shown = " ± ".join(f"{float(row[key]):.3f}" for key in ("mean", "std") if row[key])
        return f"**{shown}**" if init in better.values() and better.get(verdicts.get((model, task))) == init else shown

    def line(label: str, start: str, model: str, init: str) -> list[str]:
        return [label, start, *(cell(model, init, task) for task in TASKS)]

    models = [model for model in dict.fromkeys(row["model"] for row in rows("scores") if row["init"] == "random")]
    frozen = {"elmo": "elmo, frozen"}
    body = [line(frozen.get(model, model), init, model, init) for model in models for init in ("pretrained", "random")]
    body += [line(label, "", name, "baseline") for name, label in BASELINES.items()]
    return table(["model", "start", *TASKS.values()], [*body, line("MiniLM, frozen", "the yardstick", "minilm", "pretrained")])


def pretraining() -> str:
    """What each pre-training read, and its loss on the whole validation text."""
    body = [
        [
            row["model"], f"{int(row['parameters']):,}", f"{int(row['tokens']):,}",
            f"{float(row['loss']):.2f} ± {float(row['loss_se']):.2f}", f"{float(row['perplexity']):.1f}",
            f"{float(row['bits_per_byte']):.2f}", f"{float(row['tokens_per_second']):,.0f}",
        ]
        for row in rows("pretraining")
    ]  # fmt: skip
    return table(["model", "parameters", "tokens", "loss", "perplexity", "bits/byte", "tokens/s"], body)


def alignment() -> str:
    """Precision at 1 with its interval, by CSLS."""
    body = [
        [
            row["pair"], row["method"], "none" if row["method"] == "unsupervised" else f"{int(row['seed_pairs']):,}",
            f"{float(row['p1']):.3f} [{float(row['p1_low']):.3f}, {float(row['p1_high']):.3f}]",
            f"{float(row['p5']):.3f}", f"{float(row['p10']):.3f}", f"{float(row['coverage']):.3f}",
        ]
        for row in rows("alignment") if row["retrieval"] == "csls" and row["pair"] != "same_period_b"
    ]  # fmt: skip
    return table(["pair", "method", "pairs given", "P@1, CSLS", "P@5", "P@10", "coverage"], body)


TABLES = {"scores": scores, "pretraining": pretraining, "alignment": alignment}


def filled(text: str) -> str:
    """A text with its tables as the report has them now."""
    place = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.S)
    return place.sub(lambda match: f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->", text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
