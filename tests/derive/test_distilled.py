"""A student of a teacher: the losses by hand, what the student begins with, a training like others, and wrong settings."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file
from torch.nn.functional import cosine_similarity

from components import params
from components.core.errors import SesameError
from components.derive import distilled, smaller
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.distillation import config
from components.objectives.distillation.objective import Distillation
from components.objectives.examples.rows import isolate
from components.objectives.scoring import IGNORED
from components.pretrain.cost import training_flops
from components.pretrain.module import Pretraining
from components.text import encode
from tests.conftest import run_stage, tiny_params
from tests.derive.test_smaller import ALBERT, DECODER, ENCODER, _models, _name, saved

OBJECTIVES = {"bert": {"name": "mlm", "next_sentence": True}, "gpt": {"name": "clm"}}
BOTH = pytest.mark.parametrize("architecture", [ENCODER, DECODER], ids=["bert", "gpt"])


def by(architecture: dict, **changes) -> dict:
    return {
        "name": "distilled", "change": {"num_layers": 2}, "objective": OBJECTIVES[_name(architecture)],
        "optimizer": {"learning_rate": 0.003}, "budget": {"steps": 12}, "batch_size": 8,
        "trainer": {"threads": 1, "precision": "32-true", "validations": 2}, "run": {"accelerator": "cpu", "checkpoint_seconds": 0.001},
    } | changes  # fmt: skip


def raw(architecture: dict, **changes) -> dict:
    derived = {"less": {"start": _name(architecture), "on": "encoded/tiny", "by": by(architecture, **changes)}}
    return tiny_params(models=_models(architecture), derived=derived)


def taught(tokens, architecture: dict, **weights) -> Distillation:
    """The objective, whose teacher is the model in data/models."""
    weights = {
        "temperature": 2.0, "soft_weight": 5.0, "hard_weight": 2.0, "cosine_weight": 1.0, "layer_weight": 0.0, "relation_weight": 0.0,
        "relation_heads": None, "relation_layer": None, **weights,
    }  # fmt: skip
    name = _name(architecture)
    return Distillation(config.Distillation(hard=OBJECTIVES[name], teacher=f"data/models/{name}", teacher_key="", **weights), tokens)


@BOTH
def test_losses_by_hand(project, tokens, architecture):
    teacher = saved(tokens, architecture)
    objective = taught(tokens, architecture, temperature=3.0)
    torch.manual_seed(5)
    student = store.build(params.check(raw(architecture)).architecture("less"), tokens).eval()
    rows, counts = objective.batches(encode.load(Path("data/encoded/tiny"), "train"), 8, 32, 1)[0]
    losses, _ = objective.losses(student, rows, None)
    if architecture is ENCODER:
        states = [model(rows["ids"], rows["lengths"], rows["segment_ids"]) for model in (student, teacher)]
        real = torch.arange(states[0].shape[1]) < rows["lengths"][:, None]
        at = torch.nonzero(rows["labels"] != IGNORED).tolist()
        asked = [(row, int(rows["positions"][row, target])) for row, target in at]
    else:
        ids = rows["ids"][:, :-1]
        states = [model(ids, *isolate(ids)) for model in (student, teacher)]
        real = torch.ones_like(ids, dtype=torch.bool)
        asked = [(row, place) for row in range(8) for place in range(32) if rows["ids"][row, place + 1] != 2]  # [CLS] is not asked for
        assert len(asked) < 8 * 32
    own, told = (torch.stack([model.logits(state[at]) for at in asked]) for model, state in zip((student, teacher), states, strict=True))
    p, q = (told / 3).softmax(1), (own / 3).softmax(1)
    assert float(losses["soft"][0]) == pytest.approx(9 * float((p * (p / q).log()).sum()), rel=1e-4)
    assert int(losses["soft"][1]) == int((own.argmax(1) == told.argmax(1)).sum())
    assert float(losses["cosine"][0]) == pytest.approx(float((1 - cosine_similarity(*states, dim=2))[real].sum()), rel=1e-4)
    assert (counts["soft"], counts["cosine"]) == (len(asked), int(real.sum())) and counts["teacher"] == counts[objective.main]
    hard, _ = objective.hard.losses(student, rows, None)
    assert all(torch.equal(losses[name][0], value) for name, (value, _) in hard.items())
    assert losses["teacher"][0].item() == objective.hard.losses(teacher, rows, None)[0][objective.main][0].item()
    assert objective.weights == dict.fromkeys(hard, 2.0) | {"soft": 5.0, "cosine": 1.0, "teacher": 0.0, "layer": 0.0, "relation": 0.0}
    same, _ = objective.losses(teacher, rows, None)
    assert float(same["soft"][0]) == pytest.approx(0, abs=1e-3) and float(same["cosine"][0]) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("architecture", [ENCODER, DECODER, ALBERT], ids=["bert", "gpt", "albert"])
def test_what_layers_do_by_hand(project, tokens, architecture):
    """Their states, and how tokens relate by queries, keys and values: token by token, head by head."""
    teacher = saved(tokens, architecture)
    weights = {
        "soft_weight": 0.0,
        "cosine_weight": 0.0,
        "layer_weight": 1.0,
        "relation_weight": 1.0,
        "relation_heads": 4,
        "relation_layer": 2,
    }
    objective = taught(tokens, architecture, **weights)
    torch.manual_seed(5)
    student = store.build(params.check(raw(architecture, layers="random")).architecture("less"), tokens).eval()
    rows, counts = objective.batches(encode.load(Path("data/encoded/tiny"), "train"), 3, 32, 1)[0]
    losses, _ = objective.losses(student, rows, None)
    assert not any(own._forward_hooks for own in (*student.modules(), *teacher.modules()))
    if architecture is DECODER:
        ids = rows["ids"][:, :-1]
        positions, mask = isolate(ids)
        states, seen = [model._states(ids, positions, mask) for model in (student, teacher)], mask[:, 0]
        for model, own in zip((student, teacher), states, strict=True):  # before the norm that follows all layers
            own[-1] = model.blocks[-1](own[-2], model.positions, mask, causal=True)
    else:
        seen = (torch.arange(rows["ids"].shape[1]) < rows["lengths"][:, None])[:, None].expand(-1, rows["ids"].shape[1], -1)
        states = [model.layers(rows["ids"], rows["lengths"], rows["segment_ids"]) for model in (student, teacher)]
    real = torch.ones(seen.shape[:2], dtype=torch.bool) if architecture is DECODER else seen[:, 0]
    expected = sum(((states[0][own] - states[1][its]) ** 2).mean(2)[real].sum() for own, its in ((1, 2), (2, 4)))
    assert float(losses["layer"][0]) == pytest.approx(float(expected), rel=1e-4)
    first = architecture is DECODER  # pre-LN
    last, second = student.blocks[1], teacher.blocks[1]
    inner = [states[0][1], states[1][1]] if not first else [last.attention_norm(states[0][1]), second.attention_norm(states[1][1])]
    x, y = (block.attention.query_key_value(own) for block, own in zip((last, second), inner, strict=True))
    total = 0.0
    for row, place in torch.nonzero(real).tolist():
        for part, head in itertools.product(range(3), range(4)):
            cut = slice(part * 16 + head * 4, part * 16 + head * 4 + 4)
            q, p = (torch.softmax(own[row, seen[row, place], cut] @ own[row, place, cut] / 2, 0) for own in (x, y))
            total += float((p * (p / q).log()).sum()) / 4
    assert float(losses["relation"][0]) == pytest.approx(total, rel=1e-3)
    assert counts["layer"] == counts["relation"] == int(real.sum()) and "cosine" not in losses
    same, _ = objective.losses(teacher, rows, None)
    assert float(same["layer"][0]) == pytest.approx(0, abs=1e-4)


def test_a_teaching_has_distilberts_weights_by_default():
    own = params.check(raw(ENCODER)).derived["less"].by
    assert (own.soft_weight, own.hard_weight, own.cosine_weight, own.temperature) == (5, 2, 1, 2)
    assert own.layer_weight == own.relation_weight == 0


def test_relations_are_of_any_width(project, tokens):
    saved(tokens, ENCODER)
    changes = {"change": {"num_layers": 1, "hidden_size": 8, "num_heads": 1}, "layers": "random", "cosine_weight": 0, "relation_weight": 1}
    student = store.build(params.check(raw(ENCODER, **changes, relation_heads=2)).architecture("less"), tokens)
    objective = taught(tokens, ENCODER, soft_weight=0.0, cosine_weight=0.0, relation_weight=1.0, relation_heads=2)
    rows, _ = objective.batches(encode.load(Path("data/encoded/tiny"), "train"), 8, 32, 1)[0]
    losses, _ = objective.losses(student, rows, None)
    losses["relation"][0].backward()
    assert float(losses["relation"][0]) > 0 and student.blocks[0].attention.query_key_value.weight.grad.abs().sum() > 0


def test_the_teachers_way_forward_is_paid_for(project, tokens):
    saved(tokens, DECODER)
    objective = taught(tokens, DECODER)
    student = store.build(params.check(raw(DECODER)).architecture("less"), tokens)
    rows, _ = objective.batches(encode.load(Path("data/encoded/tiny"), "train"), 8, 32, 1)[0]
    alone, both = training_flops(student, objective.hard, rows), training_flops(student, objective, rows)
    own = training_flops(store.load(Path("data/models/gpt"))[0], objective.hard, rows) / 3
    assert both - alone == pytest.approx(own, rel=0.05), "a third of forward and backward"
    assert all(parameter.grad is None for parameter in objective.teacher.parameters())


def test_a_student_begins_with_layers_of_the_teacher(project, tokens):
    teacher = saved(tokens, ENCODER, absent=["pooler", "next_sentence"])
    encoding, student = Path("data/encoded/tiny"), Path("students/less")

    def begun(**changes) -> tuple[LanguageModel, float, list[str]]:
        settings = raw(ENCODER, **{"objective": {"name": "mlm", "next_sentence": False}} | changes)
        YAML().dump(settings, Path("params.yaml"))
        checked = params.check(settings)
        own, by_ = distilled._block(checked, "less"), checked.derived["less"].by
        share = distilled.initialise(own, by_, Path("data/models/bert"), encoding, student)
        return store.load(student)[0], share, store.about(student).absent

    model, share, absent = begun()
    assert share == 1 and absent == ["next_sentence", "pooler"], "never trained, and not now"
    for own, layer in ((0, 0), (1, 2)):
        assert all(map(torch.equal, model.blocks[own].parameters(), teacher.blocks[layer].parameters()))
    assert all(map(torch.equal, begun(layers=[1, 3])[0].blocks[0].parameters(), teacher.blocks[1].parameters()))
    model, share, _ = begun(change={"num_layers": 2, "intermediate_size": 20})
    assert 0.5 < share < 1 and torch.equal(model.blocks[1].attention.output.weight, teacher.blocks[2].attention.output.weight)
    model, share, absent = begun(change={"num_layers": 2, "hidden_size": 8}, layers="random", cosine_weight=0)
    assert share == 0 and model.width == 8 and absent == ["next_sentence", "pooler"]


@BOTH
def test_a_student_is_taught_and_a_killed_teaching_goes_on(project, tokens, monkeypatch, architecture):
    saved(tokens, architecture, absent=["pooler", "next_sentence"] if architecture is ENCODER else ())
    teacher = Path("data/models", _name(architecture), "model.safetensors")
    before = teacher.read_bytes()
    objective = {"name": "mlm", "next_sentence": False} if architecture is ENCODER else {"name": "clm"}
    YAML().dump(raw(architecture, objective=objective), project / "params.yaml")
    done = run_stage("components.derive", "less")
    assert done.returncode == 0, done.stderr
    whole, metrics = load_file("data/models/less/model.safetensors"), json.loads(Path("data/metrics/derive/less.json").read_text())
    curve = [row.split(",") for row in Path("data/models/less/curve.csv").read_text().splitlines()]
    soft = curve[0].index("soft_loss")
    assert float(curve[-1][soft]) < float(curve[1][soft]), "nearer to the teacher"
    assert metrics["bytes"] < metrics["bytes_before"] and metrics["from_teacher"] == 1 and metrics["cost"]["flops"] > 0
    about = store.about(Path("data/models/less"))
    assert about.derived_by == ["distilled on tiny"] and about.lineage[-1]["tokens"] == metrics["tokens"]
    assert about.architecture.num_layers == 2 and about.absent == (["next_sentence", "pooler"] if architecture is ENCODER else [])
    assert teacher.read_bytes() == before and not any("teacher" in key for key in whole)

    update, updates = Pretraining._update, []

    def dies(*args):
        updates.append(update(*args))
        if len(updates) == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Pretraining, "_update", dies)
        assert run_stage("components.derive", "less").returncode != 0
    again = run_stage("components.derive", "less")
    assert again.returncode == 0 and "resumed at step" in again.stdout, again.stdout + again.stderr
    resumed = load_file("data/models/less/model.safetensors")
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items()), "the same bits"


def test_a_save_is_of_one_teacher(project, tokens):
    saved(tokens, DECODER)
    YAML().dump(raw(DECODER), project / "params.yaml")

    def place() -> Path:
        checked = params.check(raw(DECODER, layers="random"))
        distilled.initialise(distilled._block(checked, "less"), checked.derived["less"].by, *distilled._paths(checked, "less"))
        return distilled.run_id_file(checked, "less")

    first = place()
    assert place() == first
    saved(tokens, DECODER, lambda model: model.token_embedding.weight.data.mul_(2))
    assert place() != first


@pytest.mark.parametrize(("architecture", "changes", "said"), [
    (ENCODER, {"objective": {"name": "electra"}}, "objective electra: distillation is made for mlm and clm alone"),
    (ENCODER, {"temperature": 1e20}, "derived.less.by.temperature: Input should be less than or equal to 1000"),
    (ENCODER, {"soft_weight": 1e30}, "derived.less.by.soft_weight: Input should be less than or equal to 1000000"),
    (ENCODER, {"soft_weight": 0, "cosine_weight": 0}, "nothing is learned from the teacher"),
    (ENCODER, {"soft_weight": 0, "temperature": 8}, "temperature has no effect: soft_weight is 0"),
    (ENCODER, {"relation_heads": 2}, "relation_heads has no effect: relation_weight is not set"),
    (ENCODER, {"relation_weight": 1, "relation_heads": 3}, "relation_heads: 3 does not divide the total width of the "
            "student's "
            "heads, 16"),
    (ENCODER, {"relation_weight": 1, "relation_layer": 5}, "relation_layer: 5 does not exist; the teacher has 4 "
            "layers"),
    (ENCODER, {"layer_weight": 1, "layers": "random", "change": {"num_layers": 8}},
     "layer_weight: the student's 8 layers are more than the teacher's 4"),
    (ENCODER, {"layer_weight": 1, "trainer": {"threads": 1, "compile": True}}, "a compiled model does not show its "
            "inner "
            "states"),
    (ENCODER, {"change": {"num_layers": 2, "hidden_size": 8}, "layers": "random", "cosine_weight": 0, "layer_weight": 1},
     "layer_weight needs the same hidden_size, and here it is 8 and 16; take relation_weight"),
    (ENCODER, {"change": {"num_layers": 2, "hidden_size": 8}}, "derived.less.by: cosine_weight needs the same "
            "hidden_size, and "
            "here it "
            "is 8 "
            "and 16"),
    (ENCODER, {"change": {"hidden_size": 8}, "cosine_weight": 0}, "the teacher's hidden_size is 16, not 8; take "
            "layers: "
            "random"),
    (ENCODER, {"change": {"num_layers": 6}}, "do not fit the student's 6"),
    (ENCODER, {"layers": [0, 7]}, r"layers: \[0, 7\] of the teacher's 4 do not fit the student's 2"),
    (ENCODER, {"layers": [0]}, r"layers: \[0\] of the teacher's 4 do not fit the student's 2"),
    (ENCODER, {"change": {"max_length": 64}}, "change.max_length: 64 is more than the 32 tokens that the teacher "
            "reads"),
    (ENCODER, {"change": {"name": "decoder"}}, "a student has its teacher's architecture, encoder"),
    (ENCODER, {"change": {"depth": 3}}, "by: change.depth: unknown key"),
    (ENCODER, {"change": {"num_layers": 2, "shared_layers": "all"}}, "student and teacher share weights between "
            "different "
            "layers"),
    (ALBERT, {"change": {"num_layers": 2, "layer_groups": 1}}, "student and teacher share weights between different "
            "layers"),
    (DECODER, {"objective": {"name": "mlm"}}, "objective mlm can't train architecture decoder"),
])  # fmt: skip
def test_wrong_settings_are_a_line(architecture, changes, said):
    with pytest.raises(SesameError, match=said):
        params.check(raw(architecture, **changes))


def test_a_teacher_of_another_vocabulary_is_one_line(project, tokens):
    settings = raw(ENCODER)
    settings["tokenizers"]["other"] = settings["tokenizers"]["tiny"]
    settings["encodings"]["other"] = {"corpus": "tiny", "tokenizer": "other"}
    settings["derived"]["less"]["on"] = "encoded/other"
    with pytest.raises(SesameError, match="less.on: encoded/other has another tokenizer than the text of models.bert"):
        params.check(settings)
    saved(tokens, ENCODER)
    Path("data/models/bert/tokenizer.model").write_bytes((project / "data/encoded/tiny/tokenizer.model").read_bytes() + b"\x08\x01")
    YAML().dump(raw(ENCODER), project / "params.yaml")
    done = run_stage("components.derive", "less")
    assert done.returncode == 2 and "data/models/bert has another vocabulary than data/encoded/tiny; encode the text" in done.stderr


def test_one_of_each_group_makes_a_student_that_shares(project, tokens):
    saved(tokens, ALBERT)
    model, _ = store.load(Path("data/models/bert"))
    student = store.build(params.check(raw(ALBERT)).architecture("less"), tokens)
    assert smaller.copy_weights(student, model, [0, 2]) == {}
    assert torch.equal(student.blocks[1].attention.output.weight, model.blocks[2].attention.output.weight)
