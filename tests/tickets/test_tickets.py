"""Lottery tickets: which weights go, by hand; what is trained where; a whole run with its page."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune.task_setup import PreparedModel
from components.labs.tickets import __main__ as page
from components.labs.tickets import masks, rounds
from components.labs.tickets.rounds import KINDS, TicketTraining, folder_of
from components.models import sparse, store
from tests.conftest import save_random, tiny_params

WEIGHTS = [torch.tensor([[0.1, -0.9], [0.4, 0.3]]), torch.tensor([[-0.2, 0.8]])]
ALL = [torch.ones_like(weight, dtype=torch.bool) for weight in WEIGHTS]


def places(own: masks.Masks) -> list[list]:
    return [mask.int().tolist() for mask in own]


def test_the_smallest_go_round_by_round():
    """A third of six, then of the four that are left: of all matrices together, by what they are now."""
    first = masks.prune(ALL, WEIGHTS, 1 / 3)
    assert places(first) == [[[0, 1], [1, 1]], [[0, 1]]] and masks.count(first) == 4
    for gone in (5.0, 0.0):  # whatever stands in its place: it neither comes back nor goes again
        assert places(masks.prune(first, [torch.tensor([[gone, 0.01], [0.4, 0.3]]), WEIGHTS[1]], 0.25)) == [[[0, 0], [1, 1]], [[0, 1]]]


def test_controls_keep_as_many():
    first = masks.prune(ALL, WEIGHTS, 2 / 3)  # -0.9 and 0.8 stay
    assert places(masks.worst(first, WEIGHTS)) == [[[1, 0], [0, 0]], [[1, 0]]]
    half = masks.prune(ALL, WEIGHTS, 1 / 2)
    assert places(masks.worst(half, WEIGHTS)) == places([~mask for mask in half])
    wide = [torch.rand(50, 40, generator=torch.Generator().manual_seed(1)) < 0.3, torch.rand(7, 9) < 0.5]
    anywhere = masks.random(wide, 3)
    assert [int(own.sum()) for own in anywhere] == [int(own.sum()) for own in wide]
    assert places(masks.random(wide, 3)) == places(anywhere) != places(masks.random(wide, 4))
    overlap = float((anywhere[0] & wide[0]).sum() / wide[0].sum())
    assert overlap == pytest.approx(0.3, abs=0.06), "where the ticket is has no say"


def checked(**changes) -> params.Params:
    raw = tiny_params()
    raw["tickets"] = {"models": ["gpt"], "tasks": ["same"], "seeds": [1, 2], "rounds": 2, "prune": 0.5} | changes
    return params.check(raw)


@pytest.fixture
def made(project, tokens) -> params.Params:
    own = checked()
    save_random(own, "gpt", tokens)
    return own


def test_a_ticket_begins_where_the_model_did_and_keeps_its_zeros(made, monkeypatch):
    from components.finetune.task_setup import TaskSetup

    setup = TaskSetup.load(made, "same", {"train": 40, "dev": 20, "test": 20})
    tuning = TicketTraining(setup, Path("data/models/gpt"), made.finetune.recipes["gpt"], 1)
    whole = tuning.train()
    kept = masks.prune([torch.ones_like(own, dtype=torch.bool) for own in whole.weights], whole.weights, 0.5)
    start = sparse.matrices(store.load(Path("data/models/gpt"))[0])
    ticket = tuning.train(kept)
    with monkeypatch.context() as patched:
        patched.setattr(masks, "apply", lambda matrices, _: masks.copy(matrices, whole.weights))
        twice = tuning.train(kept)
    assert ticket.scores["sparsity"] == pytest.approx(0.5, abs=0.01) and whole.scores["sparsity"] == 0
    assert all((own[~mask] == 0).all() and (own[mask] != 0).all() for own, mask in zip(ticket.weights, kept, strict=True))
    moved = [float((own - begun)[mask].abs().max()) for own, begun, mask in zip(ticket.weights, start, kept, strict=True)]
    steps = -(-40 // tuning.recipe.batch_size) * tuning.recipe.epochs
    assert 0 < max(moved) <= steps * tuning.recipe.learning_rate, "Adam can't have come further from the pre-trained weights"
    far = [float((own - begun)[mask].abs().max()) for own, begun, mask in zip(twice.weights, start, kept, strict=True)]
    assert max(far) > max(moved), "as it would from where the whole model ended"
    again = tuning.train(kept)
    assert again.predictions == ticket.predictions and all(map(torch.equal, again.weights, ticket.weights))
    other = tuning.train(kept, pretrained=False)
    assert all((own[~mask] == 0).all() for own, mask in zip(other.weights, kept, strict=True))
    assert not torch.equal(other.weights[0], ticket.weights[0])


def test_weights_drawn_anew_are_those_of_the_layers_alone(made, monkeypatch):
    from components.finetune.task_setup import TaskSetup

    begun = {}
    monkeypatch.setattr("components.finetune.loop.fit", lambda fabric, module, *_: begun.update(module.state_dict()) or 1 / 0)
    setup = TaskSetup.load(made, "same", {"train": 40, "dev": 20, "test": 20})
    with pytest.raises(ZeroDivisionError):
        TicketTraining(setup, Path("data/models/gpt"), made.finetune.recipes["gpt"], 1).train(pretrained=False)
    start = store.load(Path("data/models/gpt"))[0].state_dict()
    same = {name for name, value in start.items() if torch.equal(begun[f"model.{name}"], value)}
    assert "token_embedding.weight" in same and "blocks.0.attention.query_key_value.weight" not in same


def test_a_run_and_its_page(project, tokens, monkeypatch):
    made, read, encode = checked(train_examples=60), {}, PreparedModel.encode
    save_random(made, "gpt", tokens)
    monkeypatch.setattr(
        PreparedModel, "encode", lambda model, rows: read.setdefault(model.seed, {row.id for row in rows["train"]}) and encode(model, rows)
    )
    for seed in (1, 2):
        found = rounds.rounds(made, f"gpt-same-{seed}", Run(None))
        assert found["protocol"].endswith("60 labelled examples, others for each seed")
        (folder_of(f"gpt-same-{seed}") / "metrics.json").write_text(json.dumps(found))
    assert len(read[1]) == len(read[2]) == 60 and read[1] != read[2]
    frame = pd.read_csv(folder_of("gpt-same-1") / "scores.csv")
    assert frame.groupby("round")["kind"].apply(list).tolist() == [["ticket", "reinitialised"], [*KINDS], [*KINDS]]
    zeros = frame.groupby("round")["sparsity"].agg(["min", "max"])
    assert zeros["max"].tolist() == pytest.approx([0, 0.5, 0.75], abs=0.01) and zeros["min"].tolist() == pytest.approx(
        zeros["max"].tolist()
    )
    found = page.tickets(made, "all", Run(None))
    said = found["readings"]["gpt-same"]
    assert said.startswith("gpt on same: ") and "as many weights anywhere" in said
    text = page.PAGE.read_text()
    assert "<svg" in text and "less whole" in text and "75%" in text and said.split(":")[0] in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prune": 1.0}, "tickets.prune"),
        ({"seeds": [1, 1]}, "tickets.seeds: 1 is listed twice"),
        ({"seeds": [1]}, "tickets.seeds"),
        ({"models": ["elmo"]}, "tickets.models: elmo's recipe trains no weights that could be pruned"),
        ({"models": ["gpd"]}, "no 'gpd' in models"),
    ],
)
def test_wrong_params(changes, said):
    with pytest.raises(SesameError, match=said):
        checked(**changes)


def test_a_run_that_is_not_declared():
    with pytest.raises(SesameError, match="is not in tickets of studies/params.yaml .there are: gpt-same-1, gpt-same-2"):
        rounds.rounds(checked(), "gpt-same-9", Run(None))
