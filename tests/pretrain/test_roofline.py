"""The roofline: bytes and FLOPs by hand, what a compiler joins, and a published speed of a GPU."""

import pytest
import torch

from components import params
from components.pretrain import roofline, sizing
from components.pretrain.roofline import Device, Operation, Times
from pipelines.money import cards
from tests.pretrain.test_device import PAIRS


def gpt(compiled: bool = True, **architecture) -> params.Model:
    """GPT-2 small."""
    sizes = {"num_layers": 12, "hidden_size": 768, "num_heads": 12, "intermediate_size": 3072, "max_length": 1024}
    return params.Model.model_validate({
        "encoding": "none", "objective": {"name": "clm", "isolate_documents": False}, "optimizer": {"learning_rate": 6e-4},
        "architecture": {"name": "decoder", **sizes, **architecture}, "budget": {"steps": 1}, "batch_size": 16,
        "trainer": {"compile": compiled},
    })  # fmt: skip


def test_an_operation_moves_what_it_reads_and_writes():
    with torch.device("meta"):
        a, b, one, ids, table = (
            torch.empty(64, 256),
            torch.empty(256, 32),
            torch.empty(1),
            torch.zeros(8).long(),
            torch.empty(10_000, 4),
        )
    with roofline._Recorder() as recorder:
        torch.add((a @ b).t(), one.expand(32, 64))
        torch.nn.functional.embedding(ids, table)
    product, added, looked_up = recorder.operations
    assert (product.name, product.flops, product.bytes) == (
        "aten::mm",
        2 * 64 * 256 * 32,
        4 * (64 * 256 + 256 * 32 + 64 * 32),
    )
    assert (added.flops, added.bytes) == (0, 4 * (2 * 64 * 32 + 1)), "one number is read, however wide it is expanded"
    assert looked_up.bytes == 2 * 4 * 8 * 4, "not the table"
    with torch.device("meta"):
        query, key, value = torch.empty(3, 4, 8).unbind()
    with roofline._Recorder() as recorder:
        torch.stack([query, key, value])
        query.add_(key)
    stacked, in_place = recorder.operations
    assert stacked.bytes == 2 * 4 * 96, "three parts of one memory"
    assert in_place.bytes == 4 * 3 * 32, "two are read and one is written"


def test_an_operation_takes_the_longer_of_two_times_and_a_gpu_waits_for_the_host():
    here = Device(flops=100.0, bandwidth=10.0, launch=1.0)
    found = roofline.times([Operation("a", 500, {1: 20}, {2: 10}), Operation("b", 10, {1: 50}, {})], here)
    assert found == Times(5.0, 5.0, 2.0) and found.total(here) == 10 and found.total(here._replace(queued=False)) == 12
    small = Times(0.5, 0.25, 2.0)
    assert small.total(here) == 2 and (small.limit, Times(3, 1, 2).limit, Times(1, 3, 2).limit) == (
        "starts of kernels",
        "products",
        "memory",
    )


def test_a_compiler_keeps_what_only_joined_operations_use():
    """x -> product -> y -> two operations by z -> w, which the backward pass reads -> product."""
    operations = [
        Operation("mm", 10, {1: 100}, {2: 50}), Operation("gelu", 0, {2: 50}, {3: 50}), Operation("mul", 0, {3: 50, 2: 50}, {4: 50}),
        Operation("mm", 10, {4: 50}, {5: 7}), Operation("sum", 0, {5: 7}, {6: 1}),
    ]  # fmt: skip
    first, joined, second, last = roofline.fused(operations)
    assert (joined.reads, joined.writes) == ({2: 50}, {4: 50}) and first is operations[0] and second is operations[3]
    assert last.writes == {6: 1}, "a result that none reads is written"
    [added] = roofline.fused([Operation("add_", 0, {1: 8, 2: 8}, {1: 8})])
    assert added.writes == {1: 8}, "and so is a gradient that is added up"


def test_flops_are_those_that_are_counted_elsewhere():
    """But for attention, whose fused kernel computes its weights again for the backward pass."""
    config = gpt(num_layers=2)
    _, forward_and_backward, _, tokens = roofline._recorded(config.model_dump_json(), 50304, 2, 1024, 4, True)
    recorded = sum(operation.flops for operation in forward_and_backward) / tokens
    assert recorded == pytest.approx(sizing.size(config, 50304).flops, rel=0.05)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_update_reads_and_writes_each_weight(optimizer):
    config = gpt().model_copy(update={"optimizer": params.Model.model_validate(
        gpt().model_dump() | {"optimizer": {"name": optimizer, "learning_rate": 1e-3}}).optimizer})  # fmt: skip
    _, _, update, _ = roofline._recorded(config.model_dump_json(), 50304, 2, 1024, 4, True)
    moved, weights = sum(operation.bytes for operation in update), sizing.size(config.model_copy(update={
        "architecture": config.architecture.model_copy(update={"num_layers": 2})}), 50304).parameters  # fmt: skip
    if optimizer == "adamw":
        assert moved == 28 * weights
    else:  # the products of the Newton-Schulz iterations
        assert moved > 28 * weights / 2 and sum(operation.flops for operation in update) > 5 * 2 * 2 * 768**3


def test_a_published_speed_is_predicted():
    """A compiled GPT-2 of 124 M parameters, 16 rows of 1,024 tokens in bf16, takes 90 ms a step on an A100 of 80 GB (Karpathy 2024, "Let's
    reproduce GPT-2"). Without the compiler memory takes three times as long."""
    card = cards.CARDS["A100 80"]
    device = Device(cards.PRODUCTS * card.teraflops * 1e12, cards.MEMORY * card.gigabytes * 1e9, cards.LAUNCH)
    compiled, tokens = roofline.step(gpt(), 50304, 16, 1, True, device)
    plain, _ = roofline.step(gpt(compiled=False), 50304, 16, 1, True, device)
    assert tokens == pytest.approx(16 * 1024, rel=0.01) and compiled.total(device) == pytest.approx(0.090, rel=0.1)
    assert plain.products == compiled.products and 2 < plain.memory / compiled.memory < 4
    tiny, _ = roofline.step(
        gpt(compiled=False, num_layers=2, hidden_size=128, num_heads=2, intermediate_size=512), 2048, 1, 1, True, device
    )
    assert tiny.limit == "starts of kernels"


def test_long_rows_are_extrapolated(monkeypatch):
    """A token of 8,192 has more of attention's products than one of 2,048; so do its FLOPs."""
    device, config = Device(1e14, 1e12, 1e-6), gpt(num_layers=2, max_length=1024)
    exact, tokens = roofline.step(config, 2048, 2, 1, True, device)
    flops = sizing.size(config, 2048).flops
    monkeypatch.setattr(sizing, "MAX_LENGTH", 256)
    extrapolated, as_many = roofline.step(config, 2048, 2, 1, True, device)
    assert as_many == pytest.approx(tokens, rel=0.01) and extrapolated.starts == exact.starts
    assert extrapolated.products == pytest.approx(exact.products, rel=0.05) and extrapolated.limit == exact.limit
    assert extrapolated.total(device) == pytest.approx(exact.total(device), rel=0.05)
    assert sizing.size(config, 2048).flops == pytest.approx(flops, rel=0.01)


def test_what_is_recomputed_takes_its_time():
    """Once more the forward pass: a third more products, and a row has a tenth of the activations (Chen et al. 2016)."""
    config, device = gpt(compiled=False), Device(1e14, 1e12, 1e-6)
    again = config.model_copy(update={"trainer": config.trainer.model_copy(update={"recompute": True})})
    plain, recomputed = (roofline.step(each, 2048, 2, 1, True, device)[0] for each in (config, again))
    assert 1.2 < recomputed.products / plain.products < 1.35 and recomputed.memory > plain.memory
    size, smaller = sizing.size(config, 2048), sizing.size(again, 2048)
    assert smaller.flops == size.flops, "those of a budget in FLOPs"
    assert smaller.activation_bytes < 0.25 * size.activation_bytes


@pytest.mark.parametrize("pair", PAIRS)
def test_every_family_is_recorded(pair):
    architecture, objective = PAIRS[pair]
    config = params.Model.model_validate({
        "encoding": "none", "objective": objective, "optimizer": {"learning_rate": 1e-3}, "architecture": architecture,
        "budget": {"steps": 1}, "batch_size": 4,
    })  # fmt: skip
    times, tokens = roofline.step(config, 300, 4, 1, True, Device(1e12, 1e11, 1e-6))
    assert tokens > 0 and times.products + times.memory > 0 and times.starts > 0
