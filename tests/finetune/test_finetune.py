"""Fine-tuning: inputs, frozen weights, that a learnable task is learned, that seeds repeat, scores over seeds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Fabric

from components import models, params, tasks
from components.baseline import __main__ as baseline
from components.errors import SesameError
from components.finetune import data, loop, methods
from components.models.heads import ScalarMix
from components.tasks import Example
from components.tasks.metrics import summary
from components.tokenizer import CLS, PAD, SEP
from components.tracking import Run
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]


def test_pairs_are_joined_or_kept_apart_and_cuts_counted(tokens):
    rows = [Example("1", "the dog sees the river", "a man", "yes"), Example("2", "the dog " * 40, "a man", "no")]
    joined, apart = data.encode(rows, TASK, tokens, 20, joined=True), data.encode(rows, TASK, tokens, 20, joined=False)
    assert joined.cut == apart.cut == 1 and joined.targets.tolist() == [1, 0]
    for texts, segments in zip(joined.texts, joined.segments, strict=True):
        ids, segments = texts[0].tolist(), segments.tolist()
        assert len(ids) == len(segments) <= 20 and ids[0] == CLS and ids[-1] == SEP and ids.count(SEP) == 2
        assert segments[: ids.index(SEP) + 1] == [0] * (ids.index(SEP) + 1) and set(segments[ids.index(SEP) + 1 :]) == {1}
    a_man = tokens.encode(["a man"])[0]
    assert joined.texts[1][0][-len(a_man) - 1 : -1].tolist() == a_man, "the longer text is cut, the shorter stays whole"
    assert all(len(texts) == 2 and texts[1].tolist() == [CLS, *a_man, SEP] for texts in apart.texts)


def test_batches_hold_every_example_once_without_needless_padding(tokens):
    rows = [Example(str(i), "river " * (1 + i % 15), None, "yes") for i in range(103)]
    encoded = data.encode(rows, TASK.model_copy(update={"table": TASK.table.model_copy(update={"text_b": None})}), tokens, 32, joined=True)
    seen = []
    for [(ids, lengths)], _, index in data.batches(encoded, 8, np.random.default_rng(0)):
        seen += index.tolist()
        assert ids.shape[1] == lengths.max() and (ids[lengths < ids.shape[1], -1] == PAD).all()
    assert sorted(seen) == list(range(103))


def build(name: str, tokens, seed: int = 0):
    torch.manual_seed(seed)
    recipe = CHECKED.finetune.recipes[name].model_copy(update={"epochs": 40, "learning_rate": 0.01})
    method = methods.METHODS[recipe.method]
    return method(models.build(CHECKED.models[name].architecture, tokens), recipe, 2, pair=True), recipe, method


def train(name: str, tokens, rows, seed: int = 0):
    module, recipe, method = build(name, tokens, seed)
    encoded = data.encode(rows, TASK, tokens, 32, method.joined)
    fabric = Fabric(accelerator="cpu", precision="32-true")
    encoded = module.inputs(encoded, fabric)
    fitted = loop.fit(fabric, module, encoded, recipe, seed, False, lambda epoch, loss: None)
    return module, fitted.predict(encoded), encoded.targets


@pytest.fixture
def rows(built):
    """Whether the text begins with an article: learnable by any model, and true of half of the texts."""
    texts = tasks.read(built / "data/tasks/same", "train")[:60]
    return [Example(row.id, row.text_a, row.text_b, "yes" if row.text_a.startswith("The") else "no") for row in texts]


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_a_learnable_task_is_learned_and_a_seed_repeats(name, tokens, rows):
    _, found, gold = train(name, tokens, rows)
    assert (found == gold).float().mean() > 0.95
    assert torch.equal(found, train(name, tokens, rows)[1])


def test_frozen_features_stay_frozen(tokens, rows):
    untouched, _, _ = build("elmo", tokens)
    trained, _, _ = train("elmo", tokens, rows)
    for key, value in untouched.model.state_dict().items():
        assert torch.equal(value, trained.model.state_dict()[key]), key
    assert not torch.equal(untouched.head.mix.weights, trained.head.mix.weights)
    assert models.count_parameters(trained, trainable=True) == models.count_parameters(trained.head)


def test_mix_starts_as_the_plain_mean():
    layers = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(ScalarMix(4)(layers), layers.mean(2))


def test_regression_predicts_in_the_tasks_own_unit(tokens, built):
    task = TASK.model_copy(update={"kind": "regression", "labels": [], "metric": "pearson", "range": (0, 5)})
    rows = [Example(str(i), "the dog", "a man", 4.0 + 0.1 * (i % 2)) for i in range(40)]
    module, recipe, method = build("bert", tokens)
    module.head.output = torch.nn.Linear(16, 1)
    encoded = data.encode(rows, task, tokens, 32, method.joined)
    fitted = loop.fit(Fabric(accelerator="cpu", precision="32-true"), module, encoded, recipe, 0, True, lambda epoch, loss: None)
    assert fitted.flops > 0
    assert fitted.predict(encoded).mean() == pytest.approx(4.05, abs=0.1)


def test_nan_is_one_line(tokens, rows):
    module, recipe, method = build("bert", tokens)
    torch.nn.init.constant_(module.head.output.weight, float("nan"))
    with pytest.raises(SesameError, match="not a number in epoch 1"):
        loop.fit(Fabric(accelerator="cpu"), module, data.encode(rows, TASK, tokens, 32, True), recipe, 0, False, lambda epoch, loss: None)


def test_baseline_uses_the_same_examples(project):
    found = baseline.baseline(CHECKED, "same", Run(None))
    assert found["protocol"].endswith("60 labelled examples") and found["baseline"]["test"]["accuracy"]["n"] == 1
    assert not Path("data/metrics/baseline/same.json").exists(), "the frame writes metrics, not the body"


def test_spread_over_seeds():
    found = summary([{"accuracy": 0.5, "pearson": None}, {"accuracy": 0.7, "pearson": 0.1}])
    assert found["accuracy"] == {"mean": 0.6, "std": pytest.approx(0.1414, abs=1e-4), "n": 2, "values": [0.5, 0.7]}
    assert found["pearson"]["mean"] is None and found["pearson"]["std"] is None
