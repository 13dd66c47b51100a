"""Smaller models of models: what is taken out is gone, what is left computes what it did, and wrong settings are a line."""

import json
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from torch import Tensor

from components import objectives, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import pruned, sparsified, truncated
from components.models import sparse, store
from components.models.contract import LanguageModel
from components.models.decoder.decoding import Decoding
from components.text import encode
from tests.conftest import run_stage, tiny_params

ENCODER = {"name": "encoder", "num_layers": 4, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
DECODER = {**ENCODER, "name": "decoder"}
ALBERT = {**ENCODER, "shared_layers": "all", "layer_groups": 2, "embedding_size": 8}
SHARED_ATTENTION = {**ENCODER, "shared_layers": "attention"}
FREE = {**DECODER, "activation": "swiglu", "biases": False, "norm": "rms_norm", "positions": "relative", "tie_word_embeddings": False}
EACH = pytest.mark.parametrize("architecture", [ENCODER, DECODER, ALBERT, SHARED_ATTENTION, FREE])
TRUNCATED = {"name": "truncated", "layers": [0, 2]}
GRADIENT = {"name": "pruned", "feed_forward": 0.5, "tokens": 500, "batch_size": 8}


def saved(tokens, architecture: dict, change=lambda state: None, absent=()) -> LanguageModel:
    """A model with random weights that are far from their start, so that all of them matter, in data/models/bert or gpt."""
    block = params.check(tiny_params(models=_models(architecture))).models[_name(architecture)].architecture
    torch.manual_seed(1)
    model = store.build(block, tokens).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    change(model)
    store.save(Path("data/models", _name(architecture)), model.state_dict(), block, tokens, absent, [{"by": "pretrained", "tokens": 1}])
    return model


def _name(architecture: dict) -> str:
    return {"encoder": "bert", "decoder": "gpt"}[architecture["name"]]


def _models(architecture: dict) -> dict:
    models = tiny_params()["models"]
    return models | {_name(architecture): models[_name(architecture)] | {"architecture": architecture}}


def checked(architecture: dict, by: dict, on: str | None = None) -> params.Params:
    name = _name(architecture)
    return params.check(
        tiny_params(models=_models(architecture), derived={"less": {"start": name, "on": on or f"models/{name}", "by": by}})
    )


def made(way, architecture: dict, by: dict, on: str | None = None) -> tuple[LanguageModel, dict]:
    """What a way makes, loaded as any model, and what it reports."""
    metrics = way.derive(checked(architecture, by, on), "less", Path("data/models/less"), Run(None))
    return store.load(Path("data/models/less"))[0].eval(), metrics


def by_gradient(architecture: dict) -> dict:
    return {**GRADIENT, "objective": {"name": {"bert": "mlm", "gpt": "clm"}[_name(architecture)]}}


def texts(rows: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randint(5, 100, (rows, 12), generator=torch.Generator().manual_seed(0)), torch.tensor([12, 7, 9][:rows])


@EACH
def test_the_layers_that_are_kept_follow_one_another(project, tokens, architecture):
    whole = saved(tokens, architecture, absent=["pooler"] if architecture is ENCODER else ())
    less, metrics = made(truncated, architecture, TRUNCATED)
    ids, lengths = texts()
    whole.blocks = torch.nn.ModuleList([whole.blocks[0], whole.blocks[2]])
    torch.testing.assert_close(less.top(ids, lengths), whole.top(ids, lengths), rtol=0, atol=0)
    hidden = torch.randn(3, 16)
    torch.testing.assert_close(less.logits(hidden), whole.logits(hidden), rtol=0, atol=0)
    about = store.about(Path("data/models/less"))
    assert about.architecture.num_layers == less.num_layers == len(less.stacked()) == 2
    assert about.lineage[-1] == {"by": "truncated", "on": _name(architecture), "layers": [0, 2]}
    assert about.absent == (["pooler"] if architecture is ENCODER else [])
    assert metrics["parameters"] == store.count_parameters(less)
    shared = architecture is ALBERT  # a layer of each group: as many weights as before, half of the time
    assert (metrics["bytes"] < metrics["bytes_before"]) != shared


def test_layers_of_one_group_go_on_sharing(project, tokens):
    saved(tokens, ALBERT)
    less, metrics = made(truncated, ALBERT, {"name": "truncated", "layers": 2})
    assert store.about(Path("data/models/less")).architecture.layer_groups == 1 and less.blocks[1].attention is less.blocks[0].attention
    assert metrics["bytes"] < metrics["bytes_before"]


def dead(model: LanguageModel) -> None:
    """Every other inner unit of each layer says nothing, however large its weights are."""
    for block in model.blocks:
        block.feed_forward[2].weight[:, ::2] = 0
        block.feed_forward[0].weight[::2] *= 10


def deaf(model: LanguageModel) -> None:
    """Nothing reads the first head of each layer, however large its weights are."""
    for block in model.blocks:
        block.attention.output.weight[:, :8] = 0
        block.attention.query_key_value.weight.unflatten(0, (3, 2, 8))[:, 0] *= 5


def tiny(model: LanguageModel) -> None:
    """Every other inner unit of each layer has small weights, of a gate and of what goes through it."""
    for block in model.blocks:
        block.feed_forward[2].weight[:, ::2] *= 0.1
        block.feed_forward[0].weight[::2] *= 0.1


@EACH
def test_units_that_change_no_loss_go_first(project, tokens, architecture):
    with torch.no_grad():
        whole = saved(tokens, architecture, dead)
    less, metrics = made(pruned, architecture, by_gradient(architecture), "encoded/tiny")
    assert {block.feed_forward[2].weight.shape for block in less.blocks} == {(16, 16)}
    ids, lengths = texts()
    torch.testing.assert_close(less.top(ids, lengths), whole.top(ids, lengths), rtol=1e-4, atol=1e-4)
    assert metrics["bytes"] < metrics["bytes_before"] and metrics["parameters"] < store.count_parameters(whole)
    assert metrics["cost"]["tokens"] >= 500 and metrics["cost"]["flops"] > metrics["cost"]["tokens"] * store.count_parameters(less)
    step = store.about(Path("data/models/less")).lineage[-1]
    assert (step["by"], step["on"], step["feed_forward"]) == ("pruned", "tiny", 0.5)


@pytest.mark.parametrize("importance", ["gradient", "magnitude"])
@pytest.mark.parametrize("architecture", [ENCODER, DECODER, ALBERT, SHARED_ATTENTION])
def test_heads_that_nothing_reads_go_first(project, tokens, architecture, importance):
    """By magnitude the other one goes: the weights of these are large."""
    with torch.no_grad():
        whole = saved(tokens, architecture, deaf)
    own = {"heads": 0.5, "feed_forward": 0.0}
    if importance == "magnitude":
        made(pruned, architecture, {"name": "pruned", "importance": "magnitude"} | own)
    else:
        made(pruned, architecture, by_gradient(architecture) | own, "encoded/tiny")
    less = store.load(Path("data/models/less"))[0].eval()
    assert {block.attention.output.weight.shape for block in less.blocks} == {(16, 8)}
    assert {block.attention.query_key_value.weight.shape for block in less.blocks} == {(24, 16)}
    first = 8 if importance == "gradient" else 0
    assert torch.equal(less.blocks[0].attention.output.weight, whole.blocks[0].attention.output.weight[:, first : first + 8])
    ids, lengths = texts()
    if importance == "gradient":
        torch.testing.assert_close(less.top(ids, lengths), whole.top(ids, lengths), rtol=1e-4, atol=1e-4)
    if architecture is DECODER:  # and so it is written with
        read = Decoding(less, ids, lengths, 20).read(ids)
        torch.testing.assert_close(read, less.top(ids, torch.full((3,), 12)), rtol=1e-4, atol=1e-4)


@EACH
def test_what_is_left_by_magnitude_is_the_larger_half(project, tokens, architecture):
    with torch.no_grad():
        whole = saved(tokens, architecture, tiny)
    less, _ = made(pruned, architecture, {"name": "pruned", "feed_forward": 0.5, "importance": "magnitude"})
    own, kept = whole.blocks[0].feed_forward, less.blocks[0].feed_forward
    torch.testing.assert_close(kept[2].weight, own[2].weight[:, 1::2], rtol=0, atol=0)
    torch.testing.assert_close(kept[0].weight, own[0].weight[1::2], rtol=0, atol=0)


@pytest.mark.parametrize("architecture", [ENCODER, DECODER, ALBERT])
def test_a_score_is_the_mean_over_rows_of_what_the_loss_changes_by(project, tokens, architecture):
    """By differences, a row at a time: signs of two rows do not cancel each other out, and a shared unit is one in all layers."""
    model = saved(tokens, architecture).double()
    config = checked(architecture, by_gradient(architecture), "encoded/tiny").derived["less"].by.objective
    objective = objectives.build(config, tokens)
    batches = objective.batches(encode.load(Path("data/encoded/tiny"), "train"), 4, 32, 1)
    every = pruned.units_of(model, model_block(architecture))
    scores, _ = pruned.gradients(model, every, objective, batches, 1)
    rows, counts = batches[0]
    signs = set()
    for parts, own, columns, part in ((every[0], scores[0], slice(8, 16), 1), (every[1], scores[1], slice(3, 4), 3)):  # a head, a unit
        weight, changes = model.get_submodule(parts.out).weight, torch.zeros(4, dtype=torch.float64)
        before = weight.data[:, columns].clone()
        with torch.no_grad():
            for sign in (1, -1, 0):
                weight[:, columns] = before * (1 + sign * 0.02)
                for row in range(4):
                    losses, _ = objective.losses(model, {key: value[row : row + 1] for key, value in rows.items()}, None)
                    changes[row] += sign * sum(loss / max(1, counts[name]) for name, (loss, _) in losses.items()) / 0.04
        assert own[part] == pytest.approx(float(changes.abs().mean()), rel=0.01)
        signs |= {*changes.sign().tolist()}
    assert len(signs) == 2


def model_block(architecture: dict) -> params.Architecture:
    return checked(architecture, by_gradient(architecture), "encoded/tiny").architecture("less")


@pytest.mark.parametrize("scope", ["global", "local"])
@EACH
def test_the_smallest_weights_are_zero_and_no_others(project, tokens, architecture, scope):
    whole = saved(tokens, architecture, lambda model: model.blocks[0].feed_forward[0].weight.data.mul_(10))
    less, metrics = made(sparsified, architecture, {"name": "sparsified", "sparsity": 0.6, "scope": scope})
    pairs = list(zip(sparse.matrices(whole), sparse.matrices(less), strict=True))
    assert len(pairs) == {"none": 16, "all": 8, "attention": 10}[architecture.get("shared_layers", "none")], "a shared one once"
    before, after = (torch.cat([pair[i].detach().flatten() for pair in pairs]) for i in (0, 1))
    assert torch.equal(after[after != 0], before[after != 0]) and metrics["sparsity"] == pytest.approx(0.6, abs=0.001)
    assert torch.equal(whole.token_embedding.weight, less.token_embedding.weight)
    for old, new in pairs if scope == "local" else [(before, after)]:
        assert old[new == 0].abs().max() <= old[new != 0].abs().min() and float((new == 0).float().mean()) == pytest.approx(0.6, abs=0.002)
    first = float((less.blocks[0].feed_forward[0].weight == 0).float().mean())
    assert first < 0.3 if scope == "global" else first == pytest.approx(0.6, abs=0.002)
    lineage = store.about(Path("data/models/less")).lineage
    assert sparse.is_sparse(lineage) and not sparse.is_sparse(lineage[:-1]) and lineage[-1]["sparsity"] == 0.6


@pytest.mark.parametrize(
    ("sparsity", "said"), [(1e-9, "no more weights are zero than in bert; raise it"), (0.9999999, "all weights are zero; lower it")]
)
def test_a_share_that_comes_to_nothing_or_to_all_is_refused(project, tokens, sparsity, said):
    saved(tokens, ENCODER)
    with pytest.raises(SesameError, match=f"derived.less: with sparsity {sparsity:g} {said}"):
        made(sparsified, ENCODER, {"name": "sparsified", "sparsity": sparsity})


@pytest.mark.parametrize("architecture", [ENCODER, ALBERT])
@pytest.mark.parametrize("optimizer", [
    lambda own: torch.optim.AdamW(own, 0.01, weight_decay=0.1, fused=True), lambda own: torch.optim.SGD(own, 0.1, momentum=0.9),
])  # fmt: skip
def test_zeros_stay_zeros_whatever_trains_them(project, tokens, architecture, optimizer):
    saved(tokens, architecture)
    less, _ = made(sparsified, architecture, {"name": "sparsified", "sparsity": 0.5})
    zeros, free = [matrix == 0 for matrix in sparse.matrices(less)], less.token_embedding.weight.detach().clone()
    sparse.keep_zeros(less)
    stepped, before = optimizer(less.train().parameters()), [matrix.detach().clone() for matrix in sparse.matrices(less)]
    for _ in range(3):
        less.logits(less.top(*texts())).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(less.parameters(), 1.0)
        stepped.step()
        stepped.zero_grad()
    for zero, matrix, was in zip(zeros, sparse.matrices(less), before, strict=True):
        assert not matrix[zero].any() and (matrix != was)[~zero].float().mean() > 0.9
    assert not torch.equal(less.token_embedding.weight, free)


def test_a_smaller_model_is_a_model_like_others(project, tokens):
    saved(tokens, ENCODER)
    raw = tiny_params(models=_models(ENCODER), derived={
        "short": {"start": "bert", "on": "models/bert", "by": TRUNCATED},
        "narrow": {"start": "short", "on": "encoded/tiny", "by": by_gradient(ENCODER)},
    })  # fmt: skip
    recipe = raw["finetune"]["recipes"]["bert"]
    raw["finetune"] |= {"models": ["narrow"], "seeds": [1], "recipes": {"narrow": recipe}}
    YAML().dump(raw, project / "params.yaml")
    for stage, name in (("tasks", "same"), ("derive", "short"), ("derive", "narrow"), ("finetune", "narrow-same")):
        done = run_stage(f"components.{stage}", name)
        assert done.returncode == 0, done.stderr
    found = json.loads(Path("data/metrics/finetune/narrow-same.json").read_text())
    assert found["derived"] == ["truncated on bert", "pruned on tiny"]
    raw["finetune"]["recipes"]["narrow"] = recipe | {"method": "linear_probe", "layer": 3}
    with pytest.raises(SesameError, match="layer 3: derived.narrow has 0 .embedding. to 2"):
        params.check(raw)


def test_tuning_a_sparse_model_leaves_its_zeros(project, tokens):
    saved(tokens, ENCODER)
    recipe = tiny_params()["finetune"]["recipes"]["bert"]
    raw = tiny_params(models=_models(ENCODER), derived={
        "less": {"start": "bert", "on": "models/bert", "by": {"name": "sparsified", "sparsity": 0.5}},
        "tuned": {"start": "less", "on": "tasks/same", "by": {"name": "tuned", "recipe": recipe}},
        "on": {"start": "tuned", "on": "encoded/tiny", "by": _models(ENCODER)["bert"] | {"name": "pretrained"}},
    })  # fmt: skip
    for key in ("encoding", "architecture", "prompts"):
        raw["derived"]["on"]["by"].pop(key, None)
    with pytest.raises(
        SesameError, match=("derived.on: pre-training would change the zeros of less; make the model sparse after")
    ):
        params.check(raw)
    del raw["derived"]["on"]
    recipes = {"lora": recipe | {"method": "lora", "rank": 2}}
    filling = {"models": ["tuned"], "methods": ["lora"], "tasks": ["same"], "recipes": recipes}
    with pytest.raises(SesameError, match=(
        "adapt.recipes.lora.method lora adds low-rank matrices without zeros to those of tuned, which was sparsified"
    )):
        params.check(raw | {"adapt": filling})
    YAML().dump(raw, project / "params.yaml")
    for stage, name in (("tasks", "same"), ("derive", "less"), ("derive", "tuned")):
        done = run_stage(f"components.{stage}", name)
        assert done.returncode == 0, done.stderr
    less, tuned = (store.load(Path("data/models", name))[0] for name in ("less", "tuned"))
    for before, after in zip(sparse.matrices(less), sparse.matrices(tuned), strict=True):
        assert not after[before == 0].any() and not torch.equal(before, after)
    assert sparse.is_sparse(store.about(Path("data/models/tuned")).lineage)


@pytest.mark.parametrize(("by", "on", "said"), [
    ({"name": "truncated", "layers": 5}, None, "derived.less.by: layers: layer 4 does not exist; the model has 4 "
            "layers, "
            "0 to 3"),
    ({"name": "truncated", "layers": 4}, None, "derived.less.by: layers: these are all 4 layers of the model, and nothing is left out"),
    ({"name": "truncated", "layers": [0, 9]}, None, "layer 9 does not exist"),
    ({"name": "truncated", "layers": []}, None, "at least 1 item"),
    ({"name": "truncated", "layers": [2, 0]}, None, r"layers \[2, 0\]: list each layer once"),
    (TRUNCATED, "models/gpt", "by truncated needs on: models/bert, not models/gpt"),
    (TRUNCATED, "encoded/tiny", "by truncated needs on: models/bert, not encoded/tiny"),
    ({"name": "pruned", "heads": 0.5, "importance": "magnitude", "tokens": 9}, None, "tokens has no effect: importance: magnitude reads"),
    ({"name": "pruned", "feed_forward": 1.0, "importance": "magnitude"}, None, "feed_forward: 1 removes everything"),
    ({"name": "pruned", "feed_forward": 0.99, "importance": "magnitude"}, None, "feed_forward: 0.99 of 32 removes "
            "everything"),
    ({"name": "pruned", "feed_forward": 0.01, "importance": "magnitude"}, None, "feed_forward: 0.01 of 32 removes nothing"),
    ({"name": "pruned", "importance": "magnitude"}, None, "nothing is pruned"),
    ({"name": "pruned", "heads": 1.0, "importance": "magnitude"}, None, "heads: 1 removes everything"),
    ({"name": "pruned", "heads": 0.2, "importance": "magnitude"}, None, "heads: 0.2 of 2 removes nothing"),
    ({"name": "sparsified", "sparsity": 1.0}, None, "sparsity: 1 sets all weights to zero"),
    ({"name": "sparsified", "sparsity": 0.0}, None, "sparsity: 0 sets no weight to zero"),
    (GRADIENT, "encoded/tiny", "importance gradient needs an objective"),
    ({**GRADIENT, "objective": {"name": "mlm"}}, None, "by pruned needs on: encoded/<encoding>, not models/bert"),
    ({**GRADIENT, "objective": {"name": "clm"}}, "encoded/tiny", "objective clm can't train architecture encoder"),
])  # fmt: skip
def test_wrong_settings_are_a_line(by, on, said):
    with pytest.raises(SesameError, match=said):
        checked(ENCODER, by, on)


def test_layers_that_share_stay_in_equal_groups():
    with pytest.raises(
        SesameError,
        match=(
            r"layers \[0, 1, 2\]: take equally many from each group of 2 layers that share "
            r"weights"
        ),
    ):
        checked(ALBERT, {"name": "truncated", "layers": 3})


def test_heads_with_positions_of_their_own_stay():
    with pytest.raises(SesameError, match="heads can't be pruned with positions: relative"):
        checked(FREE, {"name": "pruned", "heads": 0.5, "importance": "magnitude"})
    with pytest.raises(
        SesameError, match=("rotary positions need heads of hidden_size / num_heads: leave head_size out")
    ):
        checked({**ENCODER, "head_size": 4, "positions": "rotary"}, TRUNCATED)


@pytest.mark.parametrize("by", [
    TRUNCATED, {"name": "pruned", "feed_forward": 0.5, "importance": "magnitude"}, {"name": "sparsified", "sparsity": 0.5},
])  # fmt: skip
def test_a_family_without_such_parts_is_one_line(by):
    with pytest.raises(
        SesameError,
        match=f"derived.less.by: {by['name']} needs a model of architecture encoder or decoder, and this one is bilm",
    ):
        params.check(tiny_params(derived={"less": {"start": "elmo", "on": "models/elmo", "by": by}}))


def test_text_in_other_pieces_is_one_line(project, tokens):
    raw = tiny_params(models=_models(ENCODER), derived={"less": {"start": "bert", "on": "encoded/other", "by": by_gradient(ENCODER)}})
    raw["tokenizers"]["other"] = raw["tokenizers"]["tiny"]
    raw["encodings"]["other"] = {"corpus": "tiny", "tokenizer": "other"}
    with pytest.raises(
        SesameError, match="derived.less.on: encoded/other has another tokenizer than the text of models.bert .tiny and other."
    ):
        params.check(raw)
    saved(tokens, ENCODER)
    Path("data/models/bert/tokenizer.model").write_bytes((project / "data/encoded/tiny/tokenizer.model").read_bytes() + b"\x08\x01")
    with pytest.raises(SesameError, match="data/models/bert has another vocabulary than data/encoded/tiny; encode the text with its own"):
        made(pruned, ENCODER, by_gradient(ENCODER), "encoded/tiny")


def test_a_loss_of_heads_that_were_never_trained_says_nothing(project, tokens):
    saved(tokens, ENCODER, absent=["head_transform"])
    with pytest.raises(SesameError, match="objective mlm needs head_transform, which is not trained in data/models/bert"):
        made(pruned, ENCODER, by_gradient(ENCODER), "encoded/tiny")
    electra = {**GRADIENT, "objective": {"name": "electra", "generator_layers": 0.5, "generator_size": 1}}
    with pytest.raises(SesameError, match="objective electra has networks of its own, which were not saved"):
        made(pruned, ENCODER, electra, "encoded/tiny")
