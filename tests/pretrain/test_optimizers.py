"""Muon: torch's own rule for one matrix, query, key and value apart, no harm by a gradient that is no number; how the default is found."""

import copy

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from components import optimizers, params
from components.core.errors import SesameError
from components.models import store
from components.models.recurrent_encoder_decoder.config import RecurrentEncoderDecoderArchitecture
from components.optimizers.adamw.config import AdamW
from components.optimizers.muon import optimizer as optimizer_of_muon
from components.optimizers.muon.config import Muon
from components.optimizers.muon.optimizer import orthogonal
from components.params.models import OPTIMIZERS
from tests.conftest import tiny_params


def built(settings, module: nn.Module, layers: list[nn.Module]):
    optimizer = optimizers.build(settings, module, layers, lambda name: 0)
    optimizer.found_inf = torch.zeros(())
    return optimizer


def steps(optimizer, module: nn.Module, count: int, rows: torch.Tensor) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        module(rows).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("shape", [(24, 12), (12, 24)])
def test_a_matrix_moves_as_under_torchs_muon(shape):
    """But for the precision: theirs always multiplies in bfloat16."""
    torch.manual_seed(0)
    ours = nn.Linear(shape[1], shape[0], bias=False)
    theirs, rows = copy.deepcopy(ours), torch.randn(64, shape[1])
    begun = ours.weight.detach().clone()
    settings = Muon(name="muon", learning_rate=1e-3, weight_decay=0.1)
    steps(built(settings, ours, [ours]), ours, 5, rows)
    steps(torch.optim.Muon(theirs.parameters(), lr=0.02, weight_decay=0.1, momentum=0.95), theirs, 5, rows)
    moved = (theirs.weight - begun).norm()
    assert (ours.weight - theirs.weight).norm() < 0.02 * moved


def test_singular_values_come_near_one():
    values = torch.linalg.svdvals(orthogonal(torch.randn(1, 48, 16, generator=torch.Generator().manual_seed(1)), 5))
    assert values.min() > 0.6 and values.max() < 1.3


def test_query_key_and_value_are_matrices_of_their_own(tokens):
    """What turns one leaves the others; all else is AdamW's, with its rate."""
    model = store.build(params.check(tiny_params()).models["gpt"].architecture, tokens)
    settings = Muon(name="muon", learning_rate=1e-3, weight_decay=0)
    optimizer = built(settings, model, model.stacked())
    counts = {group["matrices"]: sum(p.numel() for p in group["params"]) for group in optimizer.param_groups if group["matrices"]}
    layers = [p for layer in model.stacked() for p in layer.parameters() if p.ndim == 2]
    assert sum(counts.values()) == sum(p.numel() for p in layers) and set(counts) == {1, 3}
    assert {group["full_lr"] for group in optimizer.param_groups} == {1e-3, 0.02}
    weight = model.stacked()[0].attention.query_key_value.weight
    before, weight.grad = weight.detach().clone(), torch.randn_like(weight)
    optimizer.step()
    query = slice(len(weight) // 3)
    alone = orthogonal(weight.grad[None, query], 5)[0]
    assert torch.equal(orthogonal(weight.grad.view(3, -1, weight.shape[1]), 5)[0], alone)
    assert ((before - weight)[query] / 0.02 - alone).norm() < 0.05 * alone.norm()  # in bf16, where the hardware has it


def test_small_matrices_are_updated_together_as_each_alone(monkeypatch, tokens):
    models = [store.build(params.check(tiny_params()).models["gpt"].architecture, tokens) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    before = [parameter.detach().clone() for parameter in models[0].parameters()]
    for model, together in zip(models, (2**22, 1), strict=True):
        monkeypatch.setattr(optimizer_of_muon, "TOGETHER", together)
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        built(Muon(name="muon", learning_rate=1e-3), model, model.stacked()).step()
    for own, alone, start in zip(models[0].parameters(), models[1].parameters(), before, strict=True):
        assert (own - alone).norm() <= 0.02 * (alone - start).norm()


def of_name(name: str) -> params.Optimizer:
    return TypeAdapter(params.Optimizer).validate_python({"name": name, "learning_rate": 1e-2})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_gradient_that_is_no_number_changes_neither_weights_nor_state(name):
    settings, module, rows = of_name(name), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), torch.randn(4, 8)
    optimizer = built(settings, module, [module[0]])
    steps(optimizer, module, 2, rows)
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict()["state"]))
    module(rows * float("nan")).sum().backward()
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    after = module.state_dict(), optimizer.state_dict()["state"]
    assert all(torch.equal(before[0][key], after[0][key]) for key in before[0])
    assert all(torch.equal(before[1][i][key], after[1][i][key]) for i in before[1] for key in before[1][i])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_training_goes_on_as_if_nothing_had_been(name):
    """AdamW's loading looks for a step in each state: Muon's had none, and no training by it could be resumed."""
    torch.manual_seed(0)
    rows, settings = torch.randn(4, 8), of_name(name)
    modules = [nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))]
    modules += [copy.deepcopy(modules[0]) for _ in range(2)]
    whole, first, second = (built(settings, module, [module[0]]) for module in modules)
    steps(whole, modules[0], 6, rows)
    steps(first, modules[1], 3, rows)
    modules[2].load_state_dict(modules[1].state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(second, modules[2], 3, rows)
    assert all(torch.equal(a, b) for a, b in zip(modules[0].parameters(), modules[2].parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "change", "counts"),
    [
        ("gpt", {"activation": "swiglu"}, {1: 4, 2: 2, 3: 2}), ("gpt", {"activation": "gelu"}, {1: 6, 3: 2}), ("elmo", {}, {1: 4, 4: 8}),
    ],
)  # fmt: skip
def test_gates_are_matrices_of_their_own(tokens, name, change, counts):
    block = params.check(tiny_params()).models[name].architecture.model_copy(update=change)
    model = store.build(block, tokens)
    optimizer = built(Muon(name="muon", learning_rate=1e-3), model, model.stacked())
    found = {}
    for group in optimizer.param_groups:
        if group["matrices"]:
            found[group["matrices"]] = found.get(group["matrices"], 0) + len(group["params"])
    assert found == counts


def test_a_recurrent_writer_is_trained_by_muon_as_its_reader_is(tokens):
    """Half of a GRU's translator was AdamW's without a word."""
    sizes = {"num_layers": 2, "hidden_size": 16, "max_length": 32}
    model = store.build(RecurrentEncoderDecoderArchitecture(name="recurrent_encoder_decoder", **sizes), tokens)
    optimizer = built(Muon(name="muon", learning_rate=1e-3), model, model.stacked())
    gates = {id(p) for group in optimizer.param_groups if group["matrices"] == 3 for p in group["params"]}
    wanted = {name for name, p in model.named_parameters() if "weight_ih" in name or "weight_hh" in name}
    assert {name for name, p in model.named_parameters() if id(p) in gates} == wanted and any("decoder" in name for name in wanted)


def test_a_model_without_layers_is_refused():
    with pytest.raises(SesameError, match="optimizer muon: the model has no layers with matrices; take adamw"):
        built(Muon(name="muon", learning_rate=1e-3), nn.Linear(2, 2), [])


def test_a_block_without_a_name_is_adamw_and_mistakes_have_their_place():
    raw = tiny_params()
    block = params.check(raw).models["bert"].optimizer
    assert type(block) is AdamW and "name" not in block.settings()
    raw["models"]["bert"]["optimizer"] |= {"name": "muon", "momentum": 2}
    with pytest.raises(SesameError, match=r"models\.bert\.optimizer\.momentum: Input should be less than 1"):
        params.check(raw)
    raw["models"]["bert"]["optimizer"] = {"learning_rate": 1e-3, "momentum": 0.9}
    with pytest.raises(SesameError, match=r"models\.bert\.optimizer\.momentum: unknown key"):
        params.check(raw)
    raw["models"]["bert"]["optimizer"] = {"learning_rate": 1e-3, "name": "sgd"}
    with pytest.raises(SesameError, match=r"models\.bert\.optimizer: no name 'sgd' \(there are: adamw, .*muon.*\)"):
        params.check(raw)
