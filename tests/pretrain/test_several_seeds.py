"""A model that is pre-trained with several seeds: each is the training of that seed alone, and a killed stage trains none twice."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch
from mlflow import MlflowClient
from safetensors.torch import load_file

from components import params
from components.evaluations.evaluate import compare
from components.evaluations.one_model import evaluate_model
from components.models.pretrainings import pretrainings
from components.params.models import BETWEEN_SEEDS
from tests.conftest import ran, tiny_params
from tests.pretrain.test_pretrain import weights, write_params


def metrics(stage: str, name: str) -> dict:
    return json.loads(Path(f"data/metrics/{stage}/{name}.json").read_text())


def test_each_repeat_is_the_training_of_its_seed_and_none_is_trained_twice(project, start):
    alone, seeds = {}, (1, 1 + BETWEEN_SEEDS, 1 + 2 * BETWEEN_SEEDS)
    for seed in seeds:
        write_params(budget={"steps": 30}, seed=seed)
        ran("pretrain", "gpt")
        alone[seed] = weights("gpt"), metrics("pretrain", "gpt")
    write_params(budget={"steps": 30}, seed=1, pretrainings=3)
    child = start("-m", "components.pretrain", "gpt")
    while not list(Path(".sesame/checkpoints").glob("gpt-*-trained/trained.json")) and psutil.pid_exists(child.pid):
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    said = ran("pretrain", "gpt")
    assert "seed 1: trained by the previous attempt" in said and f"seed {seeds[1]}\n" in said
    assert not list(Path(".sesame/checkpoints").glob("*")), "what waited is removed at the end"
    folders = dict(zip(seeds, pretrainings(Path("data/models/gpt")), strict=True))
    assert folders[seeds[2]] == Path("data/models/gpt/pretrainings/3")
    for seed, folder in folders.items():
        repeated = load_file(folder / "model.safetensors")
        assert all(torch.equal(value, repeated[key]) for key, value in alone[seed][0].items()), seed
    made, cost = metrics("pretrain", "gpt"), [own["cost"] for _, own in alone.values()]
    assert made["loss"] == alone[1][1]["loss"], "the figures are those of the first"
    assert {seed: own["loss"] for seed, own in made["seeds"].items()} == {str(seed): own["loss"] for seed, (_, own) in alone.items()}
    for key in ("tokens", "flops"):
        assert made["cost"][key] == sum(own[key] for own in cost)


@pytest.mark.long
def test_a_seed_that_is_killed_goes_on_in_its_own_run(project, start):
    """Not in a second one, beside a first that seems to be at work for ever."""
    write_params(budget={"steps": 60}, pretrainings=2)
    ledger = {"SESAME_TRACKING": "on", "MLFLOW_TRACKING_URI": f"sqlite:///{project}/ledger.db"}
    child = start("-m", "components.pretrain", "gpt", **ledger)
    checkpoints = Path(".sesame/checkpoints")
    # the first seed's is removed before the second begins
    while not (list(checkpoints.glob("*-trained/trained.json")) and list(checkpoints.glob("*/last.ckpt"))) and psutil.pid_exists(child.pid):
        time.sleep(0.001)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    again = start("-m", "components.pretrain", "gpt", **ledger)
    assert again.wait() == 0
    client = MlflowClient(ledger["MLFLOW_TRACKING_URI"])
    runs = {run.info.run_name: run for run in client.search_runs(["1"])}
    assert len(runs) == len(client.search_runs(["1"])) == 2 and {run.info.status for run in runs.values()} == {"FINISHED"}
    second = runs[f"gpt seed {1 + BETWEEN_SEEDS}"]
    assert re.match(r"from step 0 on .*; from step \d+ on ", second.data.tags["attempts"])
    steps = [point.step for point in client.get_metric_history(second.info.run_id, "curves/train_loss")]
    assert steps == list(range(2, 61, 2)), "log_every is 2"


def of_pretrained(folder: Path) -> list[dict]:
    rows = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    return [row for row in rows if row["init"] == "pretrained"]


def test_evaluations_ask_all_pretrainings_and_each_seed_of_a_tuning_has_its_own(project):
    Path("data/corpora/tiny/test.txt").write_text(
        "\n\n".join(f"{name} {said}" for name in ("mary", "john", "anna") for said in ("sees an old dog .", "was here .")) + "\n"
    )
    raw = tiny_params(
        evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}},
        evaluate={"models": ["gpt"], "evaluations": ["pairs"], "twins": [1, 2]},
    )
    raw["models"]["gpt"] |= {"pretrainings": 2}
    raw["finetune"] |= {"seeds": [1, 2]}
    raw["adapt"] = {"models": ["gpt"], "methods": ["full"], "tasks": ["same"], "recipes": {"full": raw["finetune"]["recipes"]["gpt"]}}
    raw["learning_curve"] = {"models": ["gpt"], "tasks": ["same"], "train_examples": [60], "min_steps": 1, "baselines": ["majority"]}
    Path("params.yaml").write_text(json.dumps(raw))
    ran("pretrain", "gpt")
    ran("evaluations", "pairs")
    assert "2 pre-trainings" in ran("evaluations.evaluate", "gpt-pairs")
    items, measured = pd.read_csv("data/evaluated/gpt/pairs/items.csv"), metrics("evaluate", "gpt-pairs")
    assert measured["pretrainings"] == pytest.approx([items["score"].mean(), items["score_2"].mean()])
    assert measured["score"] == pytest.approx(sum(measured["pretrainings"]) / 2)
    answers = [evaluate_model("minimal_pairs", "pairs", folder) for folder in pretrainings(Path("data/models/gpt"))]
    trained, twins = items[["score", "score_2"]].to_numpy().T, items[["random_1", "random_2"]].to_numpy().T
    assert measured["error"] == compare(answers[0], trained, twins)["error"], "over pre-trainings, too"
    margins = [each.averaged["margin"] for each in answers]
    assert measured["margin"] == pytest.approx(sum(margins) / 2) and margins[0] != margins[1]
    ran("finetune", "gpt-same")
    with_both = metrics("finetune", "gpt-same")
    assert with_both["pretrainings"] == 2
    ran("finetune.adapt", "gpt-full-same")
    ran("finetune.learning_curve", "gpt-same")
    for folder in ("adapted/gpt/full/same", "learning_curves/gpt/same/60"):
        assert of_pretrained(Path("data", folder)) == of_pretrained(Path("data/scores/gpt/same")), "with the same pre-trainings"
    # the second seed begins from the second pre-training: with the first one's weights there, it comes out differently
    scores = with_both["pretrained"]["test"]["accuracy"]["values"]
    first = Path("data/models/gpt/model.safetensors").read_bytes()
    Path("data/models/gpt/pretrainings/2/model.safetensors").write_bytes(first)
    before = Path("data/scores/gpt/same/predictions.jsonl").read_text()
    ran("finetune", "gpt-same")
    after = Path("data/scores/gpt/same/predictions.jsonl").read_text()
    assert metrics("finetune", "gpt-same")["pretrained"]["test"]["accuracy"]["values"][::2] == scores[::2]

    def of(lines: str, seed: int) -> list[str]:
        return [line for line in lines.splitlines() if json.loads(line)["seed"] == seed and json.loads(line)["init"] == "pretrained"]

    assert of(before, 1) == of(after, 1) and of(before, 2) != of(after, 2)


def test_a_sweep_over_seeds_trains_none_twice_and_studies_have_their_own():
    raw = tiny_params()
    raw["models"]["gpt"] |= {"pretrainings": 3}
    assert [params.check(raw | {"seed": top}).models["gpt"].seeds[0] for top in (1, 2, 3)] == [1, 2, 3]
    drawn = [seed for own in (1, 2, 3, 2**32 - 1) for seed in params.check(with_seed(raw, own)).models["gpt"].seeds]
    assert len({*drawn}) == 12 and all(0 <= seed < 2**32 for seed in drawn)
    checked = params.check(raw)
    study = params.Study.model_validate({
        "question": "?", "model": "gpt", "base": "gpt", "evaluations": ["pairs"], "seeds": [1], "budget": {"steps": 1},
        "plot": {"x": "loss", "y": ["pairs"]}, "variants": {"gpt": {}},
    })  # fmt: skip
    assert params.varied(checked.models, study, "gpt", 9).seeds == [9]


def with_seed(raw: dict, seed: int) -> dict:
    return raw | {"models": raw["models"] | {"gpt": raw["models"]["gpt"] | {"seed": seed}}}
