"""Tables of README and docs from the report, and from tables of `docs`."""

import statistics
from pathlib import Path

from components.comparison.detection import LEVEL
from components.comparison.verdicts import holm
from components.report import STARTS
from components.report.markdown import REPORT, interval, rows, spread, table
from components.report.readme_studies import figures_of
from components.stages.outputs import read_json

DOCS = Path("docs")
START_NAMES = {"pretrained": "pretrained", **STARTS}
"""The starts of a model in tables."""
TASKS = {"stsb": "STS-B (Pearson)", "snli": "SNLI (accuracy)", "movies": "movie reviews (accuracy)"}
BASELINES = {
    "decomposable_attention": "the same head over random vectors", "averaging": "averaging network",
    "logistic_regression": "logistic regression", "linear_svm": "linear svm", "second_text": "the second text alone",
    "tfidf_cosine": "cosine of word counts", "majority": "majority",
}  # fmt: skip


def scores() -> str:
    """Mean and standard deviation over seeds; bold where pre-trained weights are beyond noise ahead of each other start."""
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
            row["model"], STARTS[row["against"]], row["task"], interval(row, "difference", "low", "high", "+"),
            row["verdict"],
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
        body.append(
            [model, START_NAMES[start], str(len(points)), rates, rate, scale, *(f"{best[task]:.3f}" for task in tasks)]
        )
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
        right, random = (
            f"{cell(row, mean)} ± {cell(row, error)}" for mean, error in (("score", "error"), ("random", "random_std"))
        )
        gain = interval(row, "difference", "low", "high", "+")
        about = [row["evaluation"], row["model"], row["pretrainings"], f"{float(row['items']):,.0f}"]
        body.append([*about, right, random, gain, row["verdict"], cell(row, "bigram")])
    head = [
        "evaluation", "model", "seeds", "items", "right ± error", "random weights ± std", "gain over random weights",
        "verdict", "bigram",
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
        shown = (
            "diverged" if loss is None else f"**{loss:.3f}**" if loss == lowest else f"{loss:.3f}" for loss in losses
        )
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
    return table(
        head, [[kind, *(costs[length][i] for i in (0, 1) for length in lengths)] for kind, costs in cells.items()]
    )


def efficiency() -> str:
    """What an answer costs at each point, and what is lost; times, FLOPs, MiB and calibration on the first task."""
    points: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows("efficiency"):
        points.setdefault(row["point"], {})[row["task"]] = row
    tasks, body = list(next(iter(points.values()))), []
    base = next(point for point, of_point in points.items() if of_point[tasks[0]]["verdict"] == "base")
    for point, of_point in points.items():
        cells = [f"`{point}`"]
        for row in (of_point[task] for task in tasks):
            beyond = "**" * (row["verdict"] in ("higher", "lower"))
            cells += [f"{float(row['score']):.3f} ± {float(row['std']):.3f}", f"{beyond}{row['difference']}{beyond}"]
        row = of_point[tasks[0]]
        cells += [f"{float(row[key]):.2f}" for key in ("ms", "ms_ratio", "ms_together_ratio")]
        cells += [f"{float(row['mflops']):.1f}", f"{float(row['mib']):.2f}"]
        cells.append(", ".join(f"{float(row[f'expected_calibration_error{when}']):.3f}" for when in ("_before", "")))
        body.append(cells)
    head = ["point", *(cell for task in tasks for cell in (task, f"less {base}"))]
    return table([*head, "ms, one", f"× {base}", f"× {base}, 32", "MFLOPs", "MiB", "ECE before, after"], body)


def seed_grids() -> str:
    """How much of the spread each kind of seed explains, and what the best of many trainings on dev is worth on test.
    """
    body = []
    for name, grid in read_json(REPORT / "seeds.json")["grids"].items():
        cells = [name, f"{grid['dev_deviation']:.3f}"]
        kinds = ("initialisation", "order")
        for kind, p in zip(kinds, holm([grid[f"p_{kind}"] for kind in kinds]), strict=True):
            beyond = "**" * (p < LEVEL)
            cells.append(f"{beyond}{grid[f'{kind}_share']:.0%}{beyond}".replace("%", " %"))
        cells += [f"{grid['best_dev']:.3f}, {grid['best_judged']:.3f}", f"{grid['judged_mean']:.3f}"]
        body.append([*cells, interval(grid, "gain", "gain_low", "gain_high", "+")])
    head = [
        "model and task",
        "deviation on dev",
        "initialisation",
        "order",
        "best on dev: dev, test",
        "one: test",
        "gain on test",
    ]
    return table(head, body)
