"""A tiny study under real DVC, Prefect and MLflow: stages of its own, the ledger's rows to compare, the champion."""

import csv
import json
import re

import mlflow
import pytest

from tests.conftest import away, tiny_params
from tests.pipelines.conftest import ROOT, Lab, dvc, recorded, whole, write_params

pytestmark = pytest.mark.long


def stale(lab: Lab) -> set[str]:
    """The stages of studies that DVC itself would run, once it knows what they depend on by now."""
    dvc(lab, "repro", "-q", "resolve")
    found = {name.removeprefix("studies/dvc.yaml:") for name in json.loads(dvc(lab, "status", "--json", "studies/dvc.yaml"))}
    return found - {"budget", "seed_grid", "tickets_page", "efficiency"}  # no search was run, nor is there anything that these show


def test_a_study_from_params_to_champion(many_stages, monkeypatch, tmp_path_factory):
    lab = many_stages
    raw = tiny_params()
    raw["studies"]["rate"]["budget"] = {"tokens": 1500}
    raw["studies"]["rate"]["variants"]["40"]["encoding"] = "words"
    own = {
        "tokenizers": {"words": {"corpus": "tiny", "kind": "wordpiece", "vocab_size": 300}},
        "encodings": {"words": {"corpus": "tiny", "tokenizer": "words"}},
    }  # fmt: skip
    whole(lab, raw, own)
    (lab.path / "data/studies/rate/99").mkdir(parents=True)  # left by a variant that was taken out

    planned = lab.sesame("plan").splitlines()
    assert not any(line.startswith(("variant@", "study@", "encode@words")) for line in planned), "a plain run leaves studies out"
    assert re.search(r"^rate +2 +How much should be masked\?$", lab.sesame("study"), re.M)
    output = lab.sesame("study", "rate")
    assert "power    unknown: no study with these measures has run" in output
    assert "19 stages: 0 cached, 19 done, 0 failed" in output
    assert "rate: How much should be masked? (2 seeds)" in output and "Against 15" in output and "data/report/studies/rate.html" in output
    assert not (lab.path / "data/studies/rate/99").exists()
    assert stale(lab) == set() and (lab.path / "studies/dvc.lock").exists() and not (lab.path / "data/models").exists()

    assert (lab.path / "data/encoded/words/tokenizer.json").exists() and not (lab.path / "data/metrics/encode/words.json").exists()

    # the ledger: what the compare page needs stands in one run a variant and seed
    monkeypatch.chdir(lab.path)
    mlflow.set_tracking_uri(f"sqlite:///{lab.path}/mlflow.db")
    runs = mlflow.search_runs(experiment_names=["sesame"], output_format="list")
    [parent] = [run for run in runs if run.data.tags.get("stage") == "study" and "seed" not in run.data.tags]
    rows = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert {(run.data.tags["study"], run.data.tags["variant"], run.data.tags["model"], run.data.tags["seed"]) for run in rows} == {
        ("rate", variant, "bert", seed) for variant in ("15", "40") for seed in ("1", "2")
    }
    assert all({"parameters", "tokens", "flops", "seconds", "perplexity", "same"} <= run.data.metrics.keys() for run in rows)
    assert {(run.data.params["variant"], run.data.params["mlm_probability"]) for run in rows} == {("15", "0.15"), ("40", "0.4")}
    for run in rows:  # the curve of its training
        curve = mlflow.MlflowClient().get_metric_history(run.info.run_id, "curves/loss")
        with open(lab.path / f"data/variants/rate/{run.data.tags['variant']}/{run.data.tags['seed']}/curve.csv") as file:
            written = [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(file)]
        assert [(point.step, point.value) for point in curve] == written and len(written) > 1
    assert {name.partition("@")[0] for name in recorded(lab)} >= {"variant", "transfer", "study", "encode"}
    tuned = [run for run in runs if run.data.tags.get("stage") == "transfer" and "seed" in run.data.tags]
    assert len(tuned) == 4 and {"study", "variant", "model", "task", "seed", "init", "milestone"} <= tuned[0].data.tags.keys()
    *_, lines = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
    exec(lines.replace("'masking'", "'rate'"), names := {"mlflow": mlflow})
    assert len(names["rows"]) == 4 and names["rows"]["metrics.perplexity"].notna().all()
    kept = {file.path for file in mlflow.MlflowClient().list_artifacts(parent.info.run_id)}
    assert {"rate.csv", "rate.html", "rate.json", "figures"} <= kept
    listed = lab.sesame("runs", "--study", "rate")
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["15", "1"], ["15", "2"], ["40", "1"], ["40", "2"]]
    assert "no study 'rates' in studies/params (there are: rate)" in lab.sesame("runs", "--study", "rates", code=1)

    priced = lab.sesame("price", "rate")
    assert [line.split()[:2] for line in priced.splitlines()[2:6]] == [["15", "4"], ["40", "4"], ["comparison", "1"], ["all", "16"]]

    # the registry has what was asked for, and only then
    client = mlflow.MlflowClient()
    assert client.search_registered_models() == []
    said = lab.sesame("champion", "rate")
    version = client.get_model_version_by_alias("sesame-rate", "champion")
    assert f"sesame-rate version {version.version}, alias champion: " in said
    assert away("models:/sesame-rate@champion", lab.path, tmp_path_factory.mktemp("away")) < 0

    # an edit of one variant touches its stages and the table, a recipe leaves pre-training alone, and one more seed the other seeds
    def edited(place: str, value: dict) -> set[str]:
        raw["studies"]["rate"]["variants"]["40"][place] = value
        write_params(lab, raw, own)
        return stale(lab)

    tuned = {"transfer@rate-40-1", "transfer@rate-40-2", "study@rate"}
    assert edited("recipe", {"epochs": 1}) == tuned
    assert edited("change", {"objective": {"mlm_probability": 0.5}}) == tuned | {"variant@rate-40-1", "variant@rate-40-2"}
    again = lab.sesame("study", "rate")
    assert "19 stages: 14 cached, 5 done, 0 failed" in again
    raw["studies"]["rate"]["seeds"] = [1, 2, 3]
    write_params(lab, raw, own)
    planned = lab.sesame("plan", "study@rate")
    shown = "3 seeds a variant detect differences from these on, in four cases of five: bits_per_byte 0."
    assert f"power    {shown}" in planned
    more = {line.split()[0] for line in planned.splitlines() if " to run " in line}
    assert more == {"resolve", "study@rate", *(f"{stage}@rate-{variant}-3" for stage in ("variant", "transfer") for variant in (15, 40))}

    # each variant is trained at the best of its learning rates, and without them the earlier models are back
    raw["studies"]["rate"] |= {"seeds": [1, 2], "learning_rates": {"factors": [0.5, 1], "seed": 9}}
    write_params(lab, raw, own)
    said = lab.sesame("study", "rate")
    assert "Each variant has the learning rate of 2 with the lowest validation loss" in said and stale(lab) == set()
    chosen = {name: json.loads((lab.path / f"data/variants/rate/{name}/rate.json").read_text())["factor"] for name in ("15", "40")}
    runs = mlflow.search_runs(experiment_names=["sesame"], filter_string="tags.stage = 'study'", output_format="list")
    logged = {run.data.params["variant"]: run.data.params["learning_rate"] for run in runs[:4] if "seed" in run.data.tags}
    assert {name: float(rate) for name, rate in logged.items()} == {name: 0.003 * factor for name, factor in chosen.items()}
    assert [line.split()[:2] for line in lab.sesame("price", "rate").splitlines()[2:4]] == [["15", "6"], ["40", "6"]]
    del raw["studies"]["rate"]["learning_rates"]
    write_params(lab, raw, own)
    assert " 0 done, 0 failed" in re.sub(r"[1-5] done", "0 done", lab.sesame("study", "rate")), "all but the table are in the cache"
    assert not list((lab.path / "data/variants/rate").glob("*/rate*"))
