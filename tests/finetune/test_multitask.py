"""Several tasks at once: whose batch comes next, one model under all heads, a model like others in the end."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

from components import params
from components.core.errors import SesameError
from components.derive.multitask import heads, order
from components.finetune.task_setup import TaskSetup
from components.models import store
from tests.conftest import run_stage, tiny_params

RECIPE = {"method": "full", "learning_rate": 0.003, "epochs": 3, "batch_size": 8, "max_length": 32}


@pytest.fixture
def lab(project):
    """The tiny project with a second task, of scores, and a model tuned on both."""
    rows = [row.split("\t") for row in (project / "raw/pairs.tsv").read_text().splitlines()[1:]]
    scored = ["a\tb\tscore"] + [f"{a}\t{b}\t{len(a) / 20:.2f}" for a, b, _ in rows[:60]]
    (project / "raw/scores.tsv").write_text("\n".join(scored) + "\n")
    raw = tiny_params()
    source = {"source": {"kind": "files", "paths": ["raw/scores.tsv"]}}
    table = {"format": "tsv", "header": True, "text_a": "a", "text_b": "b", "label": "score"}
    raw["tasks"]["long"] = {
        "licence": "none", "kind": "regression", "range": [0, 5], "metrics": ["pearson"], "table": table, "train": source,
        "dev": {"share": 0.2}, "test": {"share": 0.2},
    }  # fmt: skip
    raw["derived"]["both"] = {"start": "bert", "on": "tasks", "by": {"name": "multitask", "tasks": ["same", "long"], "recipe": RECIPE}}
    raw["finetune"] |= {"models": ["both"], "seeds": [1]}
    raw["finetune"]["recipes"] = {"both": raw["finetune"]["recipes"]["bert"]}
    raw["studies"] = {}
    YAML().dump(raw, project / "params.yaml")
    for module, name in (("components.tasks", "same"), ("components.tasks", "long"), ("components.pretrain", "bert")):
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    return raw


def derive() -> dict[str, torch.Tensor]:
    done = run_stage("components.derive", "both")
    assert done.returncode == 0, done.stderr
    return load_file("data/models/both/model.safetensors")


def test_a_model_of_several_tasks_goes_on_like_any_other(lab):
    first = derive()
    metrics = json.loads(Path("data/metrics/derive/both.json").read_text())
    assert set(metrics["dev"]) == {"same", "long"} and metrics["cost"]["flops"] > 0 and metrics["cost"]["tokens"] > 1000
    assert metrics["dev"]["long"]["pearson"] is not None
    about = store.about(Path("data/models/both"))
    assert [step["by"] for step in about.lineage] == ["pretrained", "multitask"] and about.lineage[1]["on"] == "same + long"
    before = load_file("data/models/bert/model.safetensors")
    assert first.keys() == before.keys(), "no head goes along"
    moved = {key.partition(".")[0] for key in first if not torch.equal(first[key], before[key])}
    assert {"token_embedding", "blocks", "pooler"} <= moved and "head_transform" not in moved
    assert all(torch.equal(value, first[key]) for key, value in derive().items()), "the same bits again"
    for name in ("both-same",):
        done = run_stage("components.finetune", name)
        assert done.returncode == 0, done.stderr
    assert json.loads(Path("data/metrics/finetune/both-same.json").read_text())["derived"] == ["multitask on same + long"]


def test_one_model_stands_under_all_heads(lab):
    """What one task learns, the other reads with; each has an output of its own, and every weight learns once."""
    all_params = params.load()
    by = all_params.derived["both"].by
    prepared = heads({task: TaskSetup.load(all_params, task) for task in by.tasks}, Path("data/models/bert"), by)
    models = [own.module.model for own in prepared.values()]
    assert models[0] is models[1] and prepared["same"].module.head is not prepared["long"].module.head
    assert [own.kind.outputs for own in prepared.values()] == [2, 1]


def test_whose_batch_comes_next():
    examples, rng = {"large": 800, "small": 80}, np.random.default_rng(0)

    def drawn(epoch: int = 0, **changes) -> list[str]:
        block = {"name": "multitask", "tasks": list(examples), "recipe": {**RECIPE, "batch_size": 8, "epochs": 5}} | changes
        return order(examples, params.MultiTask(**block), epoch, rng)

    steps = drawn()
    assert (steps.count("large"), steps.count("small")) == (100, 10) and steps != sorted(steps)
    assert drawn(sampling="uniform").count("small") == pytest.approx(55, abs=20)
    shares = [np.mean([drawn(epoch, sampling="annealed").count("small") for _ in range(30)]) / 110 for epoch in range(5)]
    powers = 1 - 0.8 * np.arange(5) / 4
    assert shares == pytest.approx(80**powers / (80**powers + 800**powers), abs=0.02), "from its share of the examples nearly to a half"
    capped, warm = (np.mean([drawn(**own).count("small") for _ in range(30)]) / 110 for own in ({"cap": 160}, {"temperature": 2}))
    assert (capped, warm) == pytest.approx((80 / 240, 80**0.5 / (80**0.5 + 800**0.5)), abs=0.03), "T5's limit and temperature"


@pytest.mark.parametrize(("change", "said"), [
    ({"tasks": ["same"]}, "at least 2"), ({"tasks": ["same", "same"]}, "same is listed twice"),
    ({"tasks": ["same", "nowhere"]}, r"derived.both.by.tasks\[1\]: no 'nowhere' in tasks"),
    ({"recipe": {**RECIPE, "method": "bitfit"}}, r"recipe.method bitfit does not tune all weights"),
    ({"recipe": {**RECIPE, "patience": 1}}, "not available when several tasks are tuned at once"),
])  # fmt: skip
def test_wrong_settings_are_a_line(change, said):
    raw = tiny_params()
    block = {"name": "multitask", "tasks": ["same", "long"], "recipe": RECIPE} | change
    raw["tasks"]["long"] = raw["tasks"]["same"]
    raw["derived"]["both"] = {"start": "bert", "on": "tasks", "by": block}
    with pytest.raises(SesameError, match=said):
        params.check(raw)
    right = {"name": "multitask", "tasks": ["same", "long"], "recipe": RECIPE}
    raw["derived"]["both"] = {"start": "bert", "on": "tasks/same", "by": right}
    with pytest.raises(SesameError, match="by multitask needs on: tasks, not tasks/same"):
        params.check(raw)
    raw["derived"]["both"] = {"start": "bert", "on": "tasks", "by": {**right, "sampling": "uniform", "cap": 5}}
    with pytest.raises(SesameError, match="cap and temperature have no effect with sampling: uniform"):
        params.check(raw)


def test_a_loss_that_is_not_a_number_is_a_line(lab):
    lab["derived"]["both"]["by"]["recipe"] |= {"learning_rate": 1.0, "weight_decay": 1e20}
    YAML().dump(lab, Path("params.yaml"))
    done = run_stage("components.derive", "both")
    assert done.returncode == 2 and "not a number in epoch 1 of multi-task tuning; lower" in done.stderr
    assert not Path("data/models/both").exists()
