"""What the report concludes from scores."""

from itertools import combinations, islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from components import params
from components.report import benchmarks, plots, tables
from components.report.__main__ import reading, spread
from tests.conftest import tiny_params


def frame(trained, untrained, std=0.01):
    common = {"task": "t", "method": "full", "metric": "accuracy", "protocol": "p", "trainable_parameters": 1, "median": 0.5}
    rows = [
        {"stage": "finetune", "model": "m", "init": "pretrained", "mean": trained, "std": std, "n": 3} | common,
        {"stage": "finetune", "model": "m", "init": "random", "mean": untrained, "std": std, "n": 3} | common,
        {"stage": "baseline", "model": "majority", "init": "baseline", "mean": 0.3, "std": None, "n": 1} | common,
        {"stage": "baseline", "model": "linear_svm", "init": "baseline", "mean": 0.5, "std": None, "n": 1} | common,
        {"stage": "baseline", "model": "averaging", "init": "baseline", "mean": None, "std": None, "n": 3} | common,
    ]
    return pd.DataFrame(rows if untrained is not None else rows[:1], columns=tables.SCORES)


@pytest.mark.parametrize(
    ("trained", "untrained", "verdict"),
    [(0.60, 0.50, "gain"), (0.50, 0.60, "loss"), (0.51, 0.50, "no difference beyond the spread"), (float("nan"), 0.5, "undefined")],
)
def test_a_gain_counts_beyond_the_spread_only(trained, untrained, verdict):
    [row] = tables.verdicts(frame(trained, untrained))
    assert row["verdict"] == verdict and (row["baseline"], row["baseline_method"]) == (0.5, "linear_svm")


def test_the_reading_says_what_the_numbers_support():
    gain, nothing, loss = (tables.verdicts(frame(trained, 0.5))[0] for trained in (0.6, 0.51, 0.4))
    assert reading([gain, nothing]) == (
        "Pre-training helps beyond the spread over seeds in 1 of 2 cases (m on t); in 1 there is no difference beyond seed noise."
    )
    assert "it hurts in 1 (m on t)" in reading([gain, loss]) and "in 0 of 1 cases (none)" in reading([nothing])


FIGURES = {"mean": 0.5, "median": 0.5, "std": None, "n": 1}


def measured(model: str, task: str, split="dev", method="full", **metrics) -> dict:
    scores = {split: {metric: FIGURES | {"mean": value} for metric, value in metrics.items()}}
    return {
        "model": model, "task": task, "method": method, "derived": [], "metric": next(iter(metrics)), "split": split,
        "cut": {split: 3}, "lost": {split: 1}, "pretrained": scores, "random": scores, "trainable_parameters": 10, "trainable_share": 0.1,
        "costs": dict.fromkeys(("pretrained", "random"), {"memory_mib": 300.0, "seconds": 2.0}),
    }  # fmt: skip


def test_one_seed_and_an_undefined_baseline_make_a_table():
    undefined = {"dev": {"f1": FIGURES | {"mean": None, "median": None}}, "trainable_parameters": 3}
    table = tables.scores(
        {
            ("finetune", "m-t"): measured("m", "t", f1=0.5),
            ("baseline", "t"): {"task": "t", "metric": "f1", "split": "dev", "baselines": {"majority": undefined}},
        }
    )
    assert [row["verdict"] for row in tables.verdicts(table)] == ["undefined"] and table["mean"].isna().tolist() == [False, False, True]


def test_what_cannot_be_said_is_not_called_noise():
    assert reading(tables.verdicts(frame(0.9, 0.1, std=float("nan")))).endswith("in 1 it can't be said (one seed, or an undefined score).")


def test_tasks_that_the_pre_training_text_was_not_cleared_of_are_named():
    chosen = selected(["same", "cola"])
    assert tables.unguarded(chosen) == ["cola"]


def test_without_random_weights_nothing_is_claimed():
    [row] = tables.verdicts(frame(0.9, None))
    assert row["verdict"] == "not compared" and reading([row]).startswith("No model was held against random weights")


def selected(finetune: list[str], **adapt) -> params.Params:
    raw = tiny_params()
    same = raw["tasks"]["same"]
    raw["tasks"] |= {task: same for task in (*finetune, *adapt.get("tasks", []))}
    raw["finetune"] |= {"tasks": finetune, "models": ["bert"]}
    raw["adapt"] |= adapt
    return params.check(raw)


def test_a_benchmarks_table_stands_beside_the_published_one():
    chosen = selected(["cola", "sst2", "mnli"])
    metrics = {
        ("finetune", "bert-cola"): measured("bert", "cola", matthews_correlation=None),
        ("finetune", "bert-sst2"): measured("bert", "sst2", accuracy=0.8),
    }
    metrics["finetune", "bert-mnli"] = measured("bert", "mnli", accuracy=0.4)
    metrics["finetune", "bert-mnli"]["pretrained"]["mismatched"] = {"accuracy": FIGURES}
    table = benchmarks.benchmark(chosen, metrics, "glue").set_index("system")
    ours = table.loc["bert"]
    assert (ours["sst2"], ours["mnli-m"], ours["mnli-mm"]) == (80.0, 40.0, 50.0)
    assert pd.isna(ours["cola"]) and pd.isna(ours["mean"]), "no mean over a part"
    assert table.loc["BERT base", "mean"] == 79.6 and table.loc["BERT base", "from"] != ours["from"]
    assert benchmarks.benchmark(selected(["cola"]), metrics, "glue") is None


def test_the_benchmarks_as_one_table_of_fixed_columns():
    chosen = selected(["cola", "sst2"])
    papers = {"glue": benchmarks.benchmark(chosen, {("finetune", "bert-sst2"): measured("bert", "sst2", accuracy=0.8)}, "glue")}
    table = benchmarks.long(papers).set_index(["system", "column"])["percent"]
    assert table["bert", "sst2"] == 80.0 and table["BERT base", "mean"] == 79.6
    assert list(benchmarks.long({}).columns) == list(benchmarks.long(papers).columns) and benchmarks.long({}).empty


def test_tuning_and_freezing_side_by_side():
    recipe = {"method": "bitfit", "learning_rate": 1e-3, "epochs": 1, "batch_size": 8, "max_length": 32}
    chosen = selected(["same"], models=["bert"], methods=["biases"], tasks=["same"], recipes={"biases": recipe})
    metrics = {
        ("finetune", "bert-same"): measured("bert", "same", accuracy=0.8),
        ("adapt", "bert-biases-same"): measured("bert", "same", method="bitfit", accuracy=0.7),
    }
    table = benchmarks.tune_or_freeze(chosen, metrics)
    assert table[["method", "same accuracy", "seconds"]].values.tolist() == [["full", 0.8, 2.0], ["biases", 0.7, 2.0]]


def test_one_seed_has_no_spread_and_claims_nothing():
    [row] = tables.verdicts(frame(0.9, 0.1, std=float("nan")))
    assert row["verdict"] == "undefined"
    assert spread({"mean": 0.5, "std": float("nan"), "n": 1}) == "0.500 (1)"
    assert spread({"mean": float("nan"), "std": 0, "n": 1}) == "undefined"


def test_cards_show_notes_and_no_password():
    raw = tiny_params()
    raw["tasks"]["same"] |= {
        "note": "dev and test differ",
        "train": {"source": {"kind": "url", "url": "https://joe:secret@host/a.tsv", "sha256": "0" * 64}},
    }
    keys = [("corpus", "base"), ("mix", "tiny"), ("task", "same")]
    assert tables.cards(params.check(raw), dict.fromkeys(keys))[-1]["source"] == "https://host/a.tsv (dev and test differ)"


def test_the_default_says_where_dev_and_test_differ():
    assert "dev and test are not to be compared" in params.load(Path(__file__).parents[2] / "params.yaml").tasks["stsb"].note


def seen(colour: str, matrix: np.ndarray) -> np.ndarray:
    """CIELAB of a colour as an eye sees it that `matrix` stands for (linear RGB, D65)."""
    channel = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channel > 0.04045, ((channel + 0.055) / 1.055) ** 2.4, channel / 12.92)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(matrix @ linear, 0, 1)
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


EYES = {
    "all cones": np.eye(3),
    "without red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "without green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
}  # Machado et al. 2009, severity 1


def test_eight_series_are_told_apart():
    """In colour, for the colour-blind too, and in marker; beyond eight no pair comes twice."""
    looks = list(islice(plots.styles(), 40))
    assert len({(look["color"], look["marker"]) for look in looks}) == 40
    first = looks[:8]
    assert len({look["marker"] for look in first}) == len({look["color"] for look in first}) == 8
    for name, eye in EYES.items():
        near = min(np.linalg.norm(seen(a["color"], eye) - seen(b["color"], eye)) for a, b in combinations(first, 2))
        assert near > 15, name
