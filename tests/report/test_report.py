"""What the report concludes from scores."""

import pandas as pd
import pytest

from components.report import tables
from components.report.__main__ import reading, spread


def frame(trained, untrained, std=0.01):
    common = {"task": "t", "method": "full", "metric": "accuracy", "protocol": "p", "trainable_parameters": 1}
    rows = [
        {"model": "m", "init": "pretrained", "mean": trained, "std": std, "n": 3} | common,
        {"model": "m", "init": "random", "mean": untrained, "std": std, "n": 3} | common,
        {"model": "bag-of-words", "init": "baseline", "mean": 0.5, "std": None, "n": 1} | common,
    ]
    return pd.DataFrame(rows, columns=tables.SCORES)


@pytest.mark.parametrize(
    ("trained", "untrained", "verdict"),
    [(0.60, 0.50, "gain"), (0.50, 0.60, "loss"), (0.51, 0.50, "no difference beyond the spread"), (float("nan"), 0.5, "undefined")],
)
def test_a_gain_counts_beyond_the_spread_only(trained, untrained, verdict):
    [found] = tables.verdicts(frame(trained, untrained))
    assert found["verdict"] == verdict and found["baseline"] == 0.5


def test_the_reading_says_what_the_numbers_support():
    gain, nothing, loss = (tables.verdicts(frame(trained, 0.5))[0] for trained in (0.6, 0.51, 0.4))
    assert reading([gain, nothing]) == (
        "Pre-training helps beyond the spread over seeds in 1 of 2 cases (m on t); in 1 there is no difference beyond seed noise."
    )
    assert "it hurts in 1 (m on t)" in reading([gain, loss]) and "in 0 of 1 cases (none)" in reading([nothing])


def test_one_seed_and_an_undefined_baseline_make_a_table():
    figures = {"mean": 0.5, "std": None, "n": 1}
    finetuned = {"model": "m", "task": "t", "metric": "f1", "pretrained": {"test": {"f1": figures}}, "random": {"test": {"f1": figures}}}
    undefined = {"model": "bag-of-words", "task": "t", "metric": "f1", "baseline": {"test": {"f1": figures | {"mean": None}}}}
    table = tables.scores({("finetune", "m-t"): finetuned, ("baseline", "t"): undefined})
    assert [row["verdict"] for row in tables.verdicts(table)] == ["undefined"]


def test_one_seed_has_no_spread_and_claims_nothing():
    [found] = tables.verdicts(frame(0.9, 0.1, std=float("nan")))
    assert found["verdict"] == "undefined"
    assert spread({"mean": 0.5, "std": float("nan"), "n": 1}) == "0.500 (1)" and spread({"mean": float("nan"), "std": 0, "n": 1}) == "undefined"
