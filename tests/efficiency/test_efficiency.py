"""Points tuned on a task, one taught by another, rounded and left early, and the page of them all."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML

from components import params, tasks
from components.core.errors import SesameError
from components.finetune.data import Batch
from components.labs.efficiency import measure, point
from components.labs.efficiency.front import front, sentence
from components.labs.efficiency.point import DistilledClassification
from components.params import Efficiency
from pipelines.money.compress import compress
from tests.conftest import run_stage, tiny_params

RECIPE = {"method": "full", "learning_rate": 0.003, "epochs": 2, "batch_size": 16, "max_length": 32}
POINTS = {
    "whole": {"model": "bert"},
    "taught": {"model": "bert", "teacher": "whole", "teacher_weight": 1.0, "init": "random"},
    "thin": {"model": "bert", "factorised": 0.5},
    "coarse": {"model": "bert", "quantised": {"weights": "int8"}},
    "coarser": {"model": "bert", "quantised": {"weights": "ternary", "trained": True}},
    "early": {"model": "bert", "recipe": {"method": "early_exit"}},
    "probe": {"model": "bert", "recipe": {"method": "linear_probe"}, "quantised": {"weights": "int8"}},
}


def block(**changes) -> dict:
    return {"tasks": ["same"], "base": "whole", "recipe": RECIPE, "examples": 6, "thresholds": [0.5, 1.0], "points": POINTS, **changes}


@pytest.fixture
def lab(project):
    raw = tiny_params()
    raw["finetune"]["train_examples"] = 60  # of 90: each seed draws its own
    studies = {"efficiency": block()}
    (project / "studies").mkdir()
    YAML().dump(raw, project / "params.yaml")
    YAML().dump(studies, project / "studies/params.yaml")
    for module, name in (("components.tasks", "same"), ("components.pretrain", "bert")):
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr


def test_from_points_to_the_page(lab):
    for name, own in POINTS.items():
        done = run_stage(f"components.labs.efficiency.{'taught' if 'teacher' in own else 'point'}", f"{name}-same")
        assert done.returncode == 0, done.stderr
    early = json.loads(Path("data/efficiency/early/same/metrics.json").read_text())
    assert early["protocol"].endswith("60 labelled examples, others for each seed")
    assert list(early["scores"]) == ["early at 0.5", "early at 1"] and len(early["temperatures"]) == 2
    for shares in early["scores"]["early at 0.5"]["exits"]:
        assert sum(shares) == pytest.approx(1) and shares[0] == 1, "one of two labels has half at least"
    assert early["scores"]["early at 1"]["exits"] == [[0, 1], [0, 1]]
    folder = Path("data/efficiency/early/same")
    assert {path.name for path in folder.iterdir()} == {"0.5", "1", "metrics.json", "module.safetensors"}
    whole = tasks.predictions(Path("data/efficiency/whole/same/all"), "test", "pretrained")
    assert set(whole) == {1, 2} and tasks.predictions(Path("data/efficiency/taught/same/all"), "test", "random")
    assert np.load("data/efficiency/whole/same/train_logits.npy").shape[::2] == (2, 2)
    every = params.load()
    setting, answers = point.PointSetup.load(every, "coarse", "same"), point.build(every, "coarse", "same", {}).answers
    alone = measure.logits(answers["coarse"], setting.prepare(1).encode(setting.setup.for_seed(1).examples)["train"], size=1)[:, 0]
    np.testing.assert_allclose(np.load("data/efficiency/coarse/same/train_logits.npy")[0], alone, atol=1e-6)

    done = run_stage("components.labs.efficiency")
    assert done.returncode == 0, done.stderr
    told = json.loads(Path("data/report/efficiency.json").read_text())
    rows = {row["point"]: row for row in told["points"]}
    assert list(rows) == ["whole", "taught", "thin", "coarse", "coarser", "early at 0.5", "early at 1", "probe"]
    assert rows["whole"]["verdict"] == "base" and rows["coarse"]["difference"].startswith(("+", "-"))
    assert rows["early at 0.5"]["mflops"] < rows["early at 1"]["mflops"]
    assert rows["coarser"]["mib"] < rows["coarse"]["mib"] < rows["whole"]["mib"]
    assert rows["thin"]["mib"] < rows["whole"]["mib"] and rows["thin"]["mflops"] < rows["whole"]["mflops"]
    # other work, which comes and goes, is in the rounds of all: all shares are those within a round
    table = pd.read_csv("data/report/efficiency.csv").set_index("point")
    for name, row in table.iterrows():
        for key, ratio in (("ms", "ms_ratio"), ("kwh_per_1000", "ms_ratio"), ("ms_together", "ms_together_ratio")):
            assert row[key] / table[key]["whole"] == pytest.approx(row[ratio], rel=1e-3), (name, key)
    assert rows["probe"]["mflops"] > 0.5 * rows["whole"]["mflops"], "what frozen features cost counts"
    assert "of 8 points" in told["reading"] and "whole" in Path("data/report/efficiency.html").read_text()


def test_a_student_learns_what_the_teacher_says(tokens):
    checked = params.check(tiny_params())
    task, recipe = checked.tasks["same"], checked.finetune.recipes["bert"]
    theirs, ours = np.array([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.5, 0.1], [0.3, 0.2]], requires_grad=True)

    class Data:
        targets = [0, 0]

    batch = Batch([], torch.empty(0), [1, 1], [1, 0])  # the second example first
    own = params.Point(model="bert", teacher="whole", teacher_weight=0.75, teacher_temperature=4)
    loss = DistilledClassification(task, recipe, theirs, own).loss(ours, Data, batch)
    p, log_q = torch.softmax(torch.tensor(theirs[[1, 0]]) / 4, 1), torch.log_softmax(ours / 4, 1)
    soft = (p * (p.log() - log_q)).sum(1).mean() * 16
    torch.testing.assert_close(loss, (0.75 * soft + 0.25 * torch.nn.functional.cross_entropy(ours, torch.tensor([0, 0]))).float())


def test_nobody_on_the_front_is_beaten():
    assert front([1, 2, 3, 3, 0.5], [0.5, 0.7, 0.7, 0.8, 0.1]) == [True, True, False, True, True]
    assert front([1, 2], [float("nan"), 0.5]) == [False, True], "an undefined score is on no front"
    assert front([1, 1], [0.5, 0.5]) == [True, True], "two that are level beat each other in nothing"
    rng = np.random.default_rng(0)
    costs, scores = rng.random(50), rng.random(50)
    best = front(costs, scores)
    order = np.argsort(costs)
    assert [bool(best[i]) for i in order] == [scores[i] > max(scores[order[:n]], default=-1) for n, i in enumerate(order)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "hole"}, "base: 'hole' is not a point (there are: whole, taught"),
        ({"thresholds": [0.5, 1.2]}, "efficiency.thresholds[1]: "),
        ({"thresholds": [0.5, 0.9, 0.5]}, "efficiency.thresholds: 0.5 is listed twice"),
        ({"points": POINTS | {"again": {"model": "bert"}}}, "points: whole and again are the same; leave one out"),
        (
            {"points": POINTS | {"more": {"model": "bert", "teacher": "whole", "teacher_weight": 0}}},
            "teacher has no effect: teacher_weight is 0",
        ),
        ({"thresholds": [0.0]}, "efficiency.thresholds[0]: "),
        ({"points": {"whole": {"model": "bert"}}}, "thresholds has no effect: no point has method early_exit"),
        ({"points": POINTS | {"taught": {"model": "bert", "teacher": "hole"}}}, "points.taught.teacher: 'hole' is "
                "not a "
                "point"),
        ({"points": POINTS | {"more": {"model": "bert", "teacher": "taught"}}}, "points.more.teacher: taught has a teacher itself"),
        ({"points": POINTS | {"more": {"model": "bert", "teacher": "early"}}}, "points.more.teacher: early has several classifiers"),
        ({"points": POINTS | {"more": {"model": "bert", "teacher_weight": 0.1}}}, "teacher_weight has no effect: "
                "teacher is "
                "not set"),
        ({"points": POINTS | {"more": {"model": "bert", "recipe": {"epoch": 1}}}}, "points.more.recipe.epoch"),
        ({"points": POINTS | {"more": {"model": "bert", "recipe": {"method": "in_context"}}}}, "points.more.recipe.method in_context"),
        (
            {"points": POINTS | {"m": {"model": "bert", "recipe": {"method": "mix"}, "quantised": {"weights": "int8", "trained": True}}}},
            "points.m.quantised.trained: method mix does not tune the model's weights",
        ),
        (
            {"points": POINTS | {"m": {"model": "bert", "recipe": {"method": "bitfit"}, "factorised": 0.5}}},
            "points.m.factorised: low-rank factors must be tuned, and method bitfit does not tune the weights",
        ),
        ({"base": "early"}, "base: early exits at several thresholds"),
        ({"thresholds": []}, "efficiency.thresholds: "),
        ({"tasks": ["same", "same"]}, "same is listed twice"),
        ({"recipe": RECIPE | {"temperature_scaling": True}}, "temperature_scaling has no effect"),
        ({"recipe": None}, "points need a recipe and tasks"),
    ],
)  # fmt: skip
def test_a_wrong_block_is_one_line(changes, message):
    with pytest.raises(SesameError) as error:
        params.check(tiny_params(efficiency=block(**changes)))
    assert message in str(error.value)


def test_names_of_the_block_point_at_something():
    for changes, message in (
        ({"tasks": ["other"]}, "efficiency.tasks[0]: no 'other' in tasks"),
        ({"points": {"whole": {"model": "brt"}}}, "efficiency.points.whole.model: no 'brt' in models"),
    ):
        with pytest.raises(SesameError) as error:
            params.check(tiny_params(efficiency=block(**changes)))
        assert message in str(error.value)
    assert Efficiency().points == {}, "none by default"


def test_what_one_run_can_not_say_is_not_said():
    rows = [["whole", 0.5, 2.0, "base", "–", 1.0], ["poor", 0.1, 1.0, "one run", "-0.400", 0.5]]
    frame = pd.DataFrame(rows, columns=["point", "score", "ms", "verdict", "difference", "ms_ratio"]).assign(on_front_ms=True)
    assert "Of nothing that is faster than whole it can be said" in sentence("same", frame, "whole")
    level = frame.assign(verdict=["base", "not beyond noise"])
    assert "The fastest that is not beyond noise below whole is poor" in sentence("same", level, "whole")


def test_compress_chooses_on_dev_within_the_budget(lab, capsys):
    """Of what was made of the model; what was not and is as good is told."""
    points = POINTS | {"half": {"model": "bert_1"}, "other": {"model": "gpt"}}
    raw = tiny_params()
    raw["derived"] = {"bert_1": {"start": "bert", "on": "models/bert", "by": {"name": "truncated", "layers": 1}}}
    studies = {"efficiency": block(points=points)}
    YAML().dump(raw, Path("params.yaml"))
    YAML().dump(studies, Path("studies/params.yaml"))
    with pytest.raises(SesameError, match="sesame run efficiency"):
        compress("bert", "0.5x-latency", None)
    rows = [  # point, series, dev, score, time, mib
        ("whole", "whole", 0.80, 0.70, 2.0, 4.0), ("half", "half", 0.75, 0.80, 1.0, 2.0), ("coarse", "coarse", 0.78, 0.60, 0.9, 1.0),
        ("early at 0.5", "early", 0.79, 0.75, 1.1, 4.2), ("other", "other", 0.79, 0.50, 0.5, 1.0),
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["point", "series", "dev", "score", "ms_ratio", "mib"])
    table = table.assign(
        task="same", std=0.01, difference="–", verdict="not beyond noise", ms_together_ratio=1.0, mflops=1.0, kwh_per_1000=1.0
    )
    Path("data/report").mkdir(exist_ok=True, parents=True)
    table.to_csv("data/report/efficiency.csv", index=False)
    compress("bert", "0.5x-latency", None)
    said = " ".join(capsys.readouterr().out.split())
    assert ("the best of these on dev is coarse: 0.780 on dev, 0.600 ± 0.010") in said, (
        "of dev, not of the split that is judged"
    )
    assert "from another model than bert: other, dev 0.790" in said and "data/efficiency/coarse/same" in said
    compared = compress("bert", "0.2x-bytes", "same")
    assert sorted(compared) == ["point@coarse-same", "point@early-same", "point@half-same", "point@whole-same"]
    assert ("none of 3 forms is within 0.2 of the bytes; the cheapest takes 0.25") in " ".join(
        capsys.readouterr().out.split()
    )
    for arguments, message in (
        (("bert", "2x-latency", None), "e.g. 0.5x-latency"), (("bert", "half", None), "write a share above 0 and "
                "up to 1"),
        (("elmo", "0.5x-flops", None), "no point of `efficiency` runs elmo unchanged"),
        (("bert", "0.5x-flops", "other"), "no 'other' in efficiency.tasks"),
    ):  # fmt: skip
        with pytest.raises(SesameError, match=message):
            compress(*arguments)
