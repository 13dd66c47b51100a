"""A whole tiny pipeline, every real part in place, under real DVC, Prefect and MLflow."""

import csv
import json
import re
import subprocess

import mlflow
import pytest
from ruamel.yaml import YAML

from components import notebook
from tests.conftest import away, tiny_params
from tests.pipelines.conftest import ROOT, Lab, dvc, recorded, whole, write_params

pytestmark = pytest.mark.long

SMALL = {"report/index.html", "report/scores.csv", "report/alignment.csv", "report/costs.csv", "report/pretraining.csv"}


def rows(lab: Lab, name: str) -> list[dict[str, str]]:
    with open(lab.path / f"data/report/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_from_raw_text_to_compared_models(many_stages, monkeypatch, tmp_path_factory):
    lab = many_stages
    raw = tiny_params()
    raw["finetune"] |= {"models": ["gpt", "elmo"]}
    raw["evaluations"] = {"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}}
    raw["evaluate"] = {"models": ["gpt"], "evaluations": ["pairs"], "twins": [1, 2]}
    whole(lab, raw)

    output = lab.sesame("run")
    assert "22 stages: 0 cached, 22 done, 0 failed" in output
    assert all((lab.path / "data" / name).exists() for name in SMALL)
    page = (lab.path / "data/report/index.html").read_text()
    assert page.count("<svg") == 5 and not re.search(r"""<script|<link|(src|href|url)\W{1,2}https?:""", page), "self-contained"

    scores = rows(lab, "scores")
    assert list(scores[0])[:10] == ["model", "task", "method", "pair", "init", "metric", "mean", "std", "n", "protocol"]
    assert {(row["model"], row["init"], row["n"]) for row in scores} == {
        ("gpt", "pretrained", "2"), ("gpt", "random", "2"), ("elmo", "pretrained", "2"), ("elmo", "random", "2"),
        ("majority", "baseline", "2"), ("logistic_regression", "baseline", "2"),
    }  # fmt: skip
    assert [row["model"] for row in rows(lab, "pretraining")] == ["bert", "gpt", "elmo"]
    assert len(rows(lab, "alignment")) == 2 and len(rows(lab, "costs")) == 19
    assert all(float(row["seconds"]) > 0 and float(row["kwh"]) > 0 for row in rows(lab, "costs"))

    # what a model answers without tuning: the first section of the page, a table, and what DVC and MLflow show
    [asked] = [row for row in rows(lab, "evaluations") if row["group"] == "all"]
    assert asked["model"] == "gpt" and asked["protocol"] == "log_probability" and int(asked["items"]) > 5
    assert page.index("What pre-training taught") < page.index("Tasks: pre-trained") and float(asked["random"]) <= 1

    # DVC agrees, and shows the same numbers
    assert "up to date" in dvc(lab, "status", "dvc.yaml")
    assert "up to date" in dvc(lab, "repro").splitlines()[-1] or "didn't change" in dvc(lab, "repro")
    shown = json.loads(dvc(lab, "metrics", "show", "--json"))[""]["data"]
    [headline] = shown.values()  # few, or `dvc exp show` would be wider than any terminal
    means = {(row["model"], row["init"]): float(row["mean"]) for row in scores}
    assert headline["data"]["score"] == {model: pytest.approx(means[model, "pretrained"], rel=1e-4) for model in ("gpt", "elmo")}
    for command in (["add", "-A"], ["commit", "-qm", "built"]):
        subprocess.run(["git", *command], cwd=lab.path, check=True)
    assert max(map(len, dvc(lab, "exp", "show", "--only-changed").splitlines())) <= 100
    again = lab.sesame("run")
    assert "22 stages: 22 cached, 0 done, 0 failed" in again and "gpt" in again

    # a command ends with what it was asked for, and the runs are listed with what they were
    tuned = lab.sesame("run", "finetune@gpt-same")
    assert re.search(r"^gpt +same +full +pretrained +accuracy +\d", tuned, re.M) and "elmo" not in tuned.partition("model ")[2]
    assert "report   data/report/index.html" in tuned, "it has them, as nothing has changed since"
    trained = lab.sesame("run", "pretrain", "align")
    assert re.search(r"^gpt +[\d,]+ +[\d,]+ +\d\.\d+ ", trained, re.M) and re.search(r"^again +xing_2015 +csls +\d", trained, re.M)
    listed = lab.sesame("runs", "--last", "50").splitlines()
    assert {"recipe", "experiment"} <= set(listed[0].split()) and len(listed) == 1 + 8
    assert all(re.match(r"(gpt +same +full|elmo +same +features) .* (gpt|elmo) +test.accuracy 0\.\d{3} ", line) for line in listed[1:])

    # two of them side by side, a model and a baseline too
    compared = lab.sesame("compare", "gpt", "majority", "same", "--split", "test")
    assert "A and B are both gpt; give two different" in lab.sesame("compare", "gpt", "gpt", "same", code=1)
    assert re.search(rf"gpt {means['gpt', 'pretrained']:.3f}, majority {means['majority', 'baseline']:.3f}, difference [+-]0", compared)

    assert "has not run with the current params" not in compared
    before = (lab.path / "params.yaml").read_text()
    assert before.count("train_examples: 60") == 1
    lab.write("params.yaml", before.replace("train_examples: 60", "train_examples: 50"))
    stale = lab.sesame("compare", "gpt", "majority", "same", "--split", "test")
    assert "finetune@gpt-same, baseline@same have not run with the current params and code, so the sides may differ in more" in stale
    edited = lab.sesame("exp", "diff", "workspace")
    assert "finetune.train_examples" in edited and "scores that are the same" in edited
    named = r"baseline@same, finetune@\S+, finetune@\S+( and \d+ more)?"
    assert re.search(rf"{named} have not run .* current params and code, so their figures are left out", edited), edited
    lab.write("params.yaml", before)
    assert "current params" not in lab.sesame("exp", "diff", "workspace")
    untrained = lab.sesame("compare", "gpt", "gpt:random", "same", "--split", "test")
    assert f"gpt:random {means['gpt', 'random']:.3f}, difference" in untrained

    # the ledger: a parent with a child a stage, seeds below, the same names everywhere, models that load
    monkeypatch.chdir(lab.path)
    mlflow.set_tracking_uri(f"sqlite:///{lab.path}/mlflow.db")
    runs = mlflow.search_runs(experiment_names=["sesame"], output_format="list")
    by_name = {run.info.run_name: run for run in runs}
    stages = [run for run in runs if "stage" in run.data.tags and "seed" not in run.data.tags]
    [parent] = {run.data.tags["mlflow.parentRunId"] for run in stages}
    assert len(stages) == 20 and {run.info.status for run in runs} == {"FINISHED"}
    assert recorded(lab).keys() == {run.info.run_name for run in stages}
    assert sum(run.data.tags.get("mlflow.parentRunId") == by_name["finetune@gpt-same"].info.run_id for run in runs) == 4
    assert by_name["evaluate@gpt-pairs"].data.metrics["score"] == pytest.approx(float(asked["score"]), rel=1e-4)
    assert headline["data"]["asked"] == {"gpt": {"pairs": pytest.approx(float(asked["score"]), rel=1e-4)}}
    logged = by_name["pretrain@bert"].data.metrics.keys() & by_name["pretrain@elmo"].data.metrics.keys()
    assert {"loss", "perplexity", "bits_per_byte", "tokens_per_second", "cost.kwh", "curves/train_loss"} <= logged
    assert by_name["pretrain@gpt"].data.params["architecture.hidden_size"] == "16" and by_name["pretrain@gpt"].data.tags["git_commit"]
    read = {name: {(own.dataset.name, own.dataset.digest) for own in run.inputs.dataset_inputs} for name, run in by_name.items()}
    locked = YAML(typ="safe").load((lab.path / "dvc.lock").read_text())["stages"]
    for name in ("tokenizer@tiny", "encode@tiny", "pretrain@gpt", "finetune@gpt-same", "align@again"):
        files = [dep for dep in locked[name]["deps"] if not dep["path"].startswith("data/resolved/")]  # its settings are params
        deps = {(dep["path"].removeprefix("data/"), dep["md5"]) for dep in files}
        assert read[name] == deps and deps, name
    likely = away(f"runs:/{by_name['pretrain@gpt'].info.run_id}/gpt", lab.path, tmp_path_factory.mktemp("away"))
    assert likely == pytest.approx(notebook.load("gpt").log_probability("the dog"), abs=1e-4)

    # what it has cost, out of the same metrics
    told = lab.sesame("price", "gpt", "--times", "10")
    assert re.search(r"^pretrain +1 .*\nfinetune +1 ", told, re.M) and "a task costs" in told and "where 1 share the model" in told
    assert (
        "10.0 times the" in told
        and ("its loss can't be predicted: no study trains gpt unchanged") in told
        and "estimated" in told
    )
    assert re.search(r"^all +20 ", lab.sesame("price", "--all"), re.M)
    assert re.search(
        r"^all +20 .*\n(?s:.*)no MLflow records "
        r"\(SESAME_TRACKING=off\)",
        lab.sesame("price", "--all", SESAME_TRACKING="off"),
        re.M,
    )
    assert re.search(r"^elmo +model +\d", lab.sesame("price"), re.M)

    # the figures in MLflow, by the lines of docs/python.md
    _, of_a_stage, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
    exec(of_a_stage, names := {})
    assert names["gpt"]["metrics.bits_per_byte"].tolist() == [by_name["pretrain@gpt"].data.metrics["bits_per_byte"]]
    assert names["gpt"]["params.architecture.hidden_size"].tolist() == ["16"]

    # the same stage by dvc alone gives the same bytes
    before = YAML(typ="safe").load((lab.path / "dvc.lock").read_text())["stages"]
    dvc(lab, "repro", "--force", "--single-item", "pretrain@gpt", "finetune@gpt-same", SESAME_TRACKING="")
    after = YAML(typ="safe").load((lab.path / "dvc.lock").read_text())["stages"]
    for stage, out in (("pretrain@gpt", "data/models/gpt"), ("finetune@gpt-same", "data/scores/gpt/same")):
        md5 = [next(entry["md5"] for entry in lock[stage]["outs"] if entry["path"] == out) for lock in (before, after)]
        assert md5[0] == md5[1], stage

    again = mlflow.search_runs(
        experiment_names=["sesame"], filter_string="attributes.run_name = 'pretrain@gpt'", output_format="list", max_results=1
    )
    assert again[0].info.run_id != by_name["pretrain@gpt"].info.run_id and not again[0].data.tags.get("mlflow.parentRunId")
    assert [own.dataset.name for own in again[0].inputs.dataset_inputs] == ["encoded/tiny"], "under DVC alone, too"

    # an edit re-runs what hangs on it and nothing else
    raw["models"]["elmo"]["optimizer"]["learning_rate"] = 0.004
    write_params(lab, raw)
    plan = lab.sesame("plan")
    states = {line.split()[0]: " ".join(line.split()[1:3]) for line in plan.splitlines() if "@" in line.split()[0] and " run " in line}
    assert states == {"pretrain@elmo": "to run", "sample@elmo": "may run", "finetune@elmo-same": "may run"}
    assert "(estimated from past runs here)" in plan
    assert (lab.path / "data/report/scores.csv").exists()
    assert "report   does not show these figures yet" in lab.sesame("run", "pretrain@elmo")

    # maps are for the vectors that they were learnt for, and no others
    assert len(lab.sesame("vectors", "again").splitlines()) == 3
    raw["vectors"]["two"]["seed"] = 3
    write_params(lab, raw)
    lab.sesame("run", "vectors@two")
    refused = lab.sesame("vectors", "again", "--out", "maps", code=1)
    assert "align@again has not run with the current params, code and vectors; run `sesame run align@again` first" in refused
