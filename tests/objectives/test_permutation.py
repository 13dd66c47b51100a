"""Permutation language modelling: orders, what each stream may see, memory; loss and memory of `transformers`' XLNet."""

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from torch.nn.functional import cross_entropy
from transformers import XLNetConfig, XLNetLMHeadModel

from components import objectives, params
from components.models import store
from components.models.xlnet.config import XLNetArchitecture
from components.models.xlnet.hub import LAYOUTS
from components.objectives.permutation.batches import PermutedBatches
from components.objectives.permutation.config import PermutationLM
from components.objectives.scoring import IGNORED
from components.optimizers import parameter_groups
from components.text.tokenizer import MASK, PAD, SPECIALS
from tests.conftest import tiny_params

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}


@pytest.fixture
def model(tokens):
    torch.manual_seed(0)
    return store.build(XLNetArchitecture(name="xlnet", **SIZES), tokens).eval()


def ask(rows: int, length: int, targets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Orders (rows, length) and the places asked (rows, targets), drawn."""
    asked = torch.stack([torch.randperm(length)[:targets] for _ in range(rows)])
    order = torch.zeros(rows, length, dtype=torch.long)
    return order.scatter(1, asked, torch.arange(1, targets + 1).expand(rows, -1)), asked


@torch.no_grad()
def test_loss_and_memory_are_those_of_transformers(tokens):
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=tokens.vocab_size, d_model=32, n_layer=3, n_head=4, d_inner=48, mem_len=5)
    theirs = XLNetLMHeadModel(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    layout = LAYOUTS["xlnet"]
    block = layout.architecture(config.to_dict())
    ours = store.build(block, tokens).eval()
    shapes = {key: value.shape for key, value in ours.state_dict().items()}
    state, absent, _ = layout.read(layout.prepare(theirs.state_dict(), block), shapes)
    ours.load_state_dict(state, strict=False)
    assert absent == ["pooler"]
    ids, segments = torch.randint(5, tokens.vocab_size, (3, 12)), (torch.arange(12) > 6).long().expand(3, -1)
    order, asked = ask(3, 12, 4)
    hidden_from = (order[:, None] >= order[:, :, None]) & (order[:, None] > 0)
    memory = torch.randn(3, 3, 5, 32)
    expected = theirs(
        ids, perm_mask=hidden_from.float(), target_mapping=torch.zeros(3, 4, 12).scatter(2, asked[:, :, None], 1), token_type_ids=segments,
        mems=list(memory.transpose(0, 1).transpose(1, 2)), labels=ids.gather(1, asked), use_mems=True,
    )  # fmt: skip
    states, left = ours(ids, order, asked, segments, memory)
    loss = cross_entropy(ours.logits(states).flatten(0, 1), ids.gather(1, asked).flatten())
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)
    for layer, own in enumerate(left.unbind(1)):
        torch.testing.assert_close(own, expected.mems[layer].transpose(0, 1), atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_prediction_sees_what_stands_before_it_in_the_order_and_nothing_else(model, tokens):
    """Not even through what other tokens have seen of it."""
    ids, memory = torch.randint(5, tokens.vocab_size, (1, 12)), torch.zeros(1, 2, 0, 16)
    order, asked = ask(1, 12, 4)
    for parameter in model.parameters():
        parameter.mul_(20 if parameter.ndim > 1 else 1)

    def states(ids: torch.Tensor) -> torch.Tensor:
        return model(ids, order, asked, torch.zeros_like(ids), memory)[0][0]

    before = states(ids)
    for rank, place in enumerate(asked[0].tolist()):
        changed = ids.clone()
        changed[0, place] = (ids[0, place] - 5 + 7) % (tokens.vocab_size - 5) + 5
        moved = (states(changed) - before).abs().amax(1) > 1e-4
        assert moved.tolist() == [later > rank for later in range(4)], f"the token predicted as number {rank + 1}"


def test_memory_is_read_and_not_trained(model, tokens):
    ids = torch.randint(5, tokens.vocab_size, (2, 8))
    order, asked = ask(2, 8, 2)
    memory = torch.randn(2, 2, 4, 16, requires_grad=True)
    states, left = model(ids, order, asked, torch.zeros_like(ids), memory)
    assert left.shape == memory.shape and not left.requires_grad
    assert not torch.allclose(states, model(ids, order, asked, torch.zeros_like(ids), memory * 0)[0], atol=1e-4)
    objective = objectives.build(PermutationLM(name="permutation", memory=4), tokens)
    rows = {"ids": ids, "order": order, "positions": asked, "labels": ids.gather(1, asked)}
    (fresh, first), (later, _) = objective.losses(model, rows, None), objective.losses(model, rows, memory.detach())
    assert first.shape == (2, 2, 4, 16) and not torch.allclose(fresh["permutation"][0], later["permutation"][0], atol=1e-4)


def test_the_last_tokens_of_a_uniform_order_are_asked(tokens, train_split):
    batches = PermutedBatches(0.25, tokens, train_split, 8, 16, seed=0)
    asked, ranks, most = np.zeros(16), np.zeros((2, 4)), 0
    for step in range(batches.epoch_steps() * 3):
        rows, counts = batches[step]
        ordinary = rows["ids"] >= len(SPECIALS)
        real = rows["labels"] != IGNORED
        assert torch.equal(rows["ids"].gather(1, rows["positions"])[real], rows["labels"][real])
        for row, (order, places, own) in enumerate(zip(rows["order"], rows["positions"], real, strict=True)):
            targets = int(own.sum())
            there = rows["ids"][row] != PAD
            assert targets == (max(1, round(0.25 * int(ordinary[row].sum()))) if there.any() else 0)
            assert order[places[own]].tolist() == list(range(1, targets + 1)) and int((order[there] > 0).sum()) == targets
            assert (order[~there] > targets).all(), "nothing sees what is behind the end of a lane"
            asked[places[own]] += 1
            if targets > 1:
                ranks[int(places[0] > places[1]), 0] += 1
        assert counts["permutation"] == int(real.sum()) and counts["tokens"] == batches.tokens(step) == (rows["ids"] != PAD).sum()
        assert (rows["order"][~ordinary & (rows["ids"] != PAD)] == 0).all()
        most = max(most, rows["positions"].shape[1])
    assert 0.4 < ranks[0, 0] / ranks[:, 0].sum() < 0.6, "which comes first in the text says nothing of the order"
    assert asked.min() > 0.5 * asked.mean() and most == 4
    again = PermutedBatches(0.25, tokens, train_split, 8, 16, seed=0)
    for step in (7, 3):  # whatever was drawn before, as other workers do
        assert all(torch.equal(value, again[step].tensors[name]) for name, value in batches[step].tensors.items())
    first, second = batches[0].tensors["ids"], batches[1].tensors["ids"]
    stream = batches.text.read(0, 0, 32)
    assert np.array_equal(torch.cat([first[0], second[0]]).numpy(), stream), "a lane goes on where it has ended"


@pytest.fixture
def lab(project):
    """The tiny project with an XLNet in the place of ELMo."""
    raw = tiny_params()
    raw["models"]["elmo"] |= {"architecture": {"name": "xlnet", **SIZES}, "objective": {"name": "permutation"}}
    raw["models"]["elmo"]["prompts"] = ["the dog [MASK] the [MASK] river"]
    raw["models"]["elmo"]["trainer"]["accumulate"] = 2
    raw["finetune"]["recipes"]["elmo"]["method"] = "full"
    YAML().dump(raw, project / "params.yaml")


def test_killed_and_resumed_ends_the_same_with_its_memory(lab, start):
    done = start("-m", "tests.pretrain.killed_at", "elmo", "micro-batch", "saved")
    said, _ = done.communicate()
    ends = dict(line.split("\t") for line in said.splitlines() if "\t" in line)
    assert done.returncode == 0 and len(ends) == 3 and len(set(ends.values())) == 1, said


def test_what_it_fills_in_and_reads_is_shown(model, tokens, train_split):
    objective = objectives.build(PermutationLM(name="permutation"), tokens)
    [shown] = objective.samples(model, train_split, ["the dog [MASK] the [MASK] river"])
    assert shown["output"].count("|") == 1 and shown["output"].count(",") == 8
    with torch.no_grad():
        model.token_embedding.weight[MASK] = 100 * torch.randn(16)
    assert objective.samples(model, train_split, ["the dog [MASK] the [MASK] river"]) == [shown], "a [MASK] is nothing it has read"
    batches = objective.batches(train_split, 4, 16, seed=0)
    rows = objective.explain(batches, 0)
    assert len(rows) == 4 and all("1]" in row["text"] for row in rows) and "¶" in rows[0]["text"]


def test_biases_of_attention_are_not_decayed(model):
    groups = parameter_groups(model, 1e-3, 0.01)
    plain = {id(parameter) for group in groups if not group["weight_decay"] for parameter in group["params"]}
    attention = model.blocks[0].attention
    assert {id(attention.content_bias), id(attention.distance_bias), id(attention.segment_bias)} <= plain
    assert id(attention.segments) not in plain


def test_another_objective_can_not_train_it():
    raw = tiny_params()
    raw["models"]["bert"]["architecture"]["name"] = "xlnet"
    with pytest.raises(Exception, match=r"objective mlm can't train architecture xlnet; allowed: \['permutation'\]"):
        params.check(raw)
