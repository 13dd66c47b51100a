"""Layers left out: what the rule says is what happens, and what is not read is not computed."""

import numpy as np
import pytest
import torch
from lightning import Fabric

from components import params
from components.core.errors import SesameError
from components.finetune import loop, methods
from components.finetune.methods.early_exit import EarlyExitKind
from components.labs.efficiency import exits, measure
from components.models import store
from components.tasks import Example
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]
FABRIC = Fabric(accelerator="cpu", precision="32-true")


def built(tokens, name: str = "bert", layers: int = 3, **changes):
    torch.manual_seed(0)
    block = CHECKED.models[name].architecture
    model = store.build(type(block).model_validate(block.model_dump() | {"num_layers": layers}), tokens)
    recipe = CHECKED.finetune.recipes["bert"].model_copy(update={"method": "early_exit", **changes})
    kind = methods.build_kind(TASK, recipe, "same")
    return methods.build(model, tokens, recipe, kind, pair=True), kind, recipe


@pytest.fixture(scope="module")
def rows() -> list[Example]:
    """Whether the text begins with an article."""
    texts = ["the dog sees the river", "two children", "my friend knows a man", "the old woman", "a small bird", "two men sing"]
    return [Example(str(i), text, "a man", "yes" if text.startswith("the") else "no") for i, text in enumerate(texts * 4)]


@pytest.mark.parametrize("name", ["bert", "gpt"])
@pytest.mark.parametrize("pair", ["joined", "apart"])
def test_leaving_early_is_reading_no_further(name, pair, tokens, rows):
    module, kind, _ = built(tokens, name, pair=pair)
    module.eval()
    split = kind.encode(rows[:4], tokens)
    with torch.no_grad():
        for batch in measure.in_batches(split, 1):
            every = module(batch.texts, batch.segments)  # (1, exits, labels)
            for exit in range(3):
                counted = []
                hooks = [block.register_forward_hook(lambda *_, counted=counted: counted.append(1)) for block in module.model.stacked()]
                at, logits = module.predict_until(lambda at, _, exit=exit: at == exit, batch.texts, batch.segments)
                for hook in hooks:
                    hook.remove()
                assert at == exit and len(counted) == exit + 1
                torch.testing.assert_close(logits, every[:, exit])


def test_all_classifiers_learn_and_the_last_one_answers(tokens, rows):
    module, kind, recipe = built(tokens, epochs=30, learning_rate=3e-3, dropout=0.0)
    assert isinstance(kind, EarlyExitKind) and module.layers == [1, 2, 3]
    split = kind.encode(rows, tokens)
    fitted = loop.fit(FABRIC, module, kind, split, recipe, 1, lambda epoch, loss: None)
    labels = np.array([TASK.labels.index(row.label) for row in rows])
    logits = measure.logits(module.eval(), split)
    assert logits.shape == (24, 3, 2)
    assert ((logits.argmax(2) == labels[:, None]).mean(0) > 0.9).all(), "each exit by itself"
    said = fitted.predict(split)
    assert said.logits is None and said.values == [TASK.labels[i] for i in logits[:, -1].argmax(1)]
    [batch] = measure.in_batches(split, 24)
    output = module(batch.texts, batch.segments)
    targets = torch.tensor([split.targets[i] for i in batch.index])
    alone = [torch.nn.functional.cross_entropy(output[:, exit], targets) for exit in range(3)]
    torch.testing.assert_close(kind.loss(output, split, batch), sum(alone))


def test_the_rule_and_the_run_leave_at_the_same_place(tokens, rows):
    module, kind, _ = built(tokens)
    module.eval()
    for head in module.head:  # as sure as a trained one is
        head.output.weight.data *= 20
    split = kind.encode(rows[:6], tokens)
    logits = measure.logits(module, split)
    places = {}
    for threshold in (0.4, 0.6, 0.9, 1.0):
        leaving = exits.ExitRule([1.0, 2.0, 0.5], threshold)
        with torch.no_grad():
            ran = [module.predict_until(leaving.confident, batch.texts, batch.segments)[0] for batch in measure.in_batches(split, 1)]
        places[threshold] = leaving.exits(logits).tolist()
        assert ran == places[threshold]
    assert places[0.4] == [0] * 6 and places[1.0] == [2] * 6, "two labels: one has half at least; and at 1 none is left"
    assert places[0.6] != places[1.0]


def test_a_batch_is_left_as_a_whole():
    leaving = exits.ExitRule([1.0], 0.8)
    sure, unsure = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.1, 0.0]])
    assert leaving.confident(0, sure) and not leaving.confident(0, unsure) and not leaving.confident(0, torch.cat([sure, unsure]))
    assert not exits.ExitRule([9.0], 0.8).confident(0, sure), "its temperature has made it less sure"


def test_operations_fall_with_the_layers(tokens, rows):
    module, kind, _ = built(tokens)
    module.eval()
    split = kind.encode(rows[:3], tokens)
    spent = [
        measure.flops(lambda texts, segments, exit=exit: module.predict_until(lambda at, _: at == exit, texts, segments), split, 3)
        for exit in range(3)
    ]
    assert spent[0] < spent[1] < spent[2] and spent[2] - spent[1] == pytest.approx(spent[1] - spent[0], rel=0.01)


def test_chosen_layers_and_what_can_not_be(tokens):
    module, _, _ = built(tokens, exits=[2])
    assert module.layers == [2, 3] and len(module.head) == 2
    raw = tiny_params()
    early = raw["finetune"]["recipes"]["bert"] | {"method": "early_exit"}
    for model, recipe, message in (
        ("bert", early | {"exits": [5]}, r"finetune.recipes.bert.exits: layer 5 does not exist; models.bert has \d"),
        ("bert", early | {"exits": [2, 1]}, r"exits \[2, 1\]: list each layer once"),
        (
            "bert",
            raw["finetune"]["recipes"]["bert"] | {"exits": [1]},
            "exits has no effect with method full: it needs early_exit",
        ),
        ("elmo", early, "method early_exit needs architecture encoder or decoder, and models.elmo is bilm"),
    ):
        raw["finetune"]["recipes"][model] = recipe
        with pytest.raises(SesameError, match=message):
            params.check(raw)
        raw = tiny_params()
