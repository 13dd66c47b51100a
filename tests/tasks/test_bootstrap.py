"""The paired bootstrap: against scipy's, and what it says to a user's mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from components import params, tasks
from components.errors import SesameError
from components.tasks import bootstrap
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())


def write(model: str, right: np.ndarray, rows) -> None:
    """Predictions of one seed, right where `right` says so."""
    other = {"yes": "no", "no": "yes"}
    folder = Path("data/scores", model, "same")
    folder.mkdir(parents=True)
    about = {"init": "pretrained", "seed": 1, "split": "test"}
    lines = [
        about | {"id": row.id, "prediction": row.label if ok else other[row.label], "label": row.label}
        for row, ok in zip(rows, right, strict=True)
    ]
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_interval_is_scipys(project):
    rows, rng = tasks.read("data/tasks/same", "test"), np.random.default_rng(0)
    a, b = rng.random((2, len(rows))) < np.array([[0.9], [0.7]])
    write("good", a, rows)
    write("worse", b, rows)
    ours = bootstrap.paired(CHECKED, "same", "test", ("good", "pretrained"), ("worse", "pretrained"), 2000)
    theirs = scipy_bootstrap((a * 1.0 - b,), np.mean, n_resamples=2000, method="percentile", rng=1).confidence_interval
    assert ours.difference == pytest.approx(a.mean() - b.mean()) and ours.metric == "accuracy" and ours.examples == len(rows)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.04)
    same = bootstrap.paired(CHECKED, "same", "test", ("good", "pretrained"), ("good", "pretrained"), 50)
    assert (same.low, same.difference, same.high) == (0, 0, 0), "paired: a model does not differ from itself on any draw"


def test_mistakes_are_one_line(project):
    write("good", np.ones(len(tasks.read("data/tasks/same", "test")), bool), tasks.read("data/tasks/same", "test"))
    absent = r"data/scores/none/same/predictions.jsonl: no such file; run the stage that writes it first \(`sesame run finetune@none-same`"
    with pytest.raises(SesameError, match=absent):
        bootstrap.paired(CHECKED, "same", "test", ("good", "pretrained"), ("none", "pretrained"))
    with pytest.raises(SesameError, match="no predictions for the test split from random weights"):
        bootstrap.paired(CHECKED, "same", "test", ("good", "pretrained"), ("good", "random"))
