"""Tasks: labels by name, splits that keep groups together, metrics computed once, mistakes with file and line."""

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from components import params, tasks
from components.errors import SesameError
from components.tasks import __main__ as stage_of_tasks
from components.tasks import metrics
from components.tracking import Run
from tests.conftest import tiny_params


def prepare(folder, monkeypatch, lines, **changes):
    monkeypatch.chdir(folder)
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw/pairs.tsv").write_text("\n".join(lines) + "\n")
    raw = tiny_params()
    raw["tasks"]["same"] |= changes
    return stage_of_tasks.prepare(params.check(raw), "same", Run(None))


def test_splits_are_stable_and_disjoint(project):
    before = {split: tasks.read("data/tasks/same", split) for split in tasks.SPLITS}
    pairs = {split: {(row.text_a, row.text_b) for row in rows} for split, rows in before.items()}
    assert not pairs["train"] & pairs["dev"] and not pairs["train"] & pairs["test"] and not pairs["dev"] & pairs["test"]
    assert sum(map(len, before.values())) == 150
    assert {row.label for row in before["train"]} == {"no", "yes"}


def test_unknown_label_names_file_line_and_allowed(tmp_path, monkeypatch):
    with pytest.raises(SesameError, match=r"pairs.tsv, line 3: unknown label 'maybe' \(allowed: no, yes\)"):
        prepare(tmp_path, monkeypatch, ["a\tb\tlabel", "x\ty\tno", "x\ty\tmaybe"])


def test_wrong_number_of_fields_names_file_and_line(tmp_path, monkeypatch):
    with pytest.raises(SesameError, match=r"pairs.tsv, line 3: 3 fields expected, 2 found"):
        prepare(tmp_path, monkeypatch, ["a\tb\tlabel", "x\ty\tno", "x\tno"])


def test_groups_stay_on_one_side(tmp_path, monkeypatch):
    lines = ["a\tb\tlabel"] + [f"premise {i // 3}\thypothesis {i}\tno" for i in range(300)]
    table = {"format": "tsv", "header": True, "text_a": "a", "text_b": "b", "label": "label", "group": "a"}
    prepare(tmp_path, monkeypatch, lines, table=table)
    sides = [{row.text_a for row in tasks.read("data/tasks/same", split)} for split in tasks.SPLITS]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_thresholds_and_dropped_labels(tmp_path, monkeypatch):
    lines = ["a\tb\tlabel"] + [f"x{i}\ty\t{value}" for i, value in enumerate([-1.5, 0, 0.5, 3] * 20)] + ["z\ty\t-"]
    table = {"format": "tsv", "header": True, "text_a": "a", "text_b": "b", "label": "label", "thresholds": [0.0], "drop_labels": ["-"]}
    found = prepare(tmp_path, monkeypatch, lines, table=table)
    rows = [row for split in tasks.SPLITS for row in tasks.read("data/tasks/same", split)]
    assert found["dropped"] == 1 and sum(row.label == "yes" for row in rows) == 40 == sum(row.label == "no" for row in rows)


def test_subsets_are_nested_and_seeded():
    rows = [tasks.Example(str(i), "a", None, "x") for i in range(100)]
    small, large = tasks.subset(rows, 10, 1), tasks.subset(rows, 50, 1)
    assert small == large[:10] and tasks.subset(rows, 10, 2) != small and tasks.subset(rows, None, 1) == rows


def task(**changes) -> params.Task:
    return params.check(tiny_params()).tasks["same"].model_copy(update=changes)


def test_metrics_match_the_libraries():
    rng = np.random.default_rng(0)
    gold, found = rng.integers(0, 3, (2, 200))
    names = ["a", "b", "c"]
    three = task(labels=names)
    result = metrics.evaluate(three, [names[i] for i in found], [names[i] for i in gold])
    assert result["accuracy"] == np.mean(gold == found)
    assert result["f1"] == pytest.approx(f1_score(gold, found, average="macro"))
    scores, values = rng.uniform(0, 5, 50), rng.uniform(-3, 8, 50)
    regression = task(kind="regression", labels=[], range=(0, 5))
    assert metrics.evaluate(regression, values.tolist(), scores.tolist())["pearson"] == pytest.approx(pearsonr(np.clip(values, 0, 5), scores).statistic)


def test_constant_predictions_are_undefined_not_zero():
    regression = task(kind="regression", labels=[], range=(0, 5))
    assert metrics.evaluate(regression, [2.0] * 5, [1.0, 2, 3, 4, 5]) == {"pearson": None, "spearman": None}
    assert metrics.evaluate(task(), ["no"] * 4, ["no", "yes", "no", "yes"])["matthews_correlation"] is None
