"""Masked models fill holes: the easiest first, in a drawn order, and again."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from components import params
from components.core.errors import SesameError
from components.generate.filling import Filler, fills, load
from components.models import store
from components.models.xlnet.config import XLNetArchitecture
from components.params import Beam, Greedy, Sample
from components.text.tokenizer import CLS, MASK, SEP, SPECIALS
from pipelines import cli
from tests.conftest import tiny_params

ARCHITECTURE = params.check(tiny_params()).models["bert"].architecture
GREEDY, DRAWN = Greedy(kind="greedy"), Sample(kind="sample", seed=3)
TEXT = "[MASK] [MASK] the [MASK] dog [MASK] the [MASK]"


@pytest.fixture
def filler(project, tokens) -> Filler:
    """With random weights, so far from a start that what stands around a hole matters."""
    torch.manual_seed(1)
    model = store.build(ARCHITECTURE, tokens)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name and "weight" in name and parameter.ndim == 1 else 0.0, 1.0)
    store.save(Path("data/models/bert"), model.state_dict(), ARCHITECTURE, tokens)
    return load("bert", rounds=0)


def scores(filler: Filler, ids: list[int], place: int) -> torch.Tensor:
    """Log-probabilities of ordinary pieces at a place, by the whole model."""
    with torch.no_grad():
        hidden = filler.model(torch.tensor([ids]), torch.tensor([len(ids)]))
        own = filler.model.logits(hidden)[0, place]
    own[: len(SPECIALS)] = -torch.inf
    return own.log_softmax(0)


def filled(filler: Filler, ids: list[int], first) -> list[int]:
    """One hole after another, `first` (max, min) of those that are left by how likely their best piece is."""
    ids = list(ids)
    while left := [i for i, own in enumerate(ids) if own == MASK]:
        best = first(left, key=lambda i: float(scores(filler, ids, i).max()))
        ids[best] = int(scores(filler, ids, best).argmax())
    return ids


def test_the_likeliest_of_all_holes_is_filled_first(filler):
    ids = filler.source(TEXT)
    assert ids[0] == CLS and ids[-1] == SEP and ids.count(MASK) == 5
    expected = filled(filler, ids, max)
    assert expected != filled(filler, ids, min), "or the order made no difference here"
    assert filler.write([ids], GREEDY) == [expected[1:-1]] and list(filler.stream(ids, GREEDY)) == [filler.tokens.decode(expected)]


def test_what_was_written_is_written_anew_beside_the_rest(filler):
    ids = filler.source(TEXT)
    filler.rounds = 20
    [found] = filler.write([ids], GREEDY)
    for place in [i for i, own in enumerate(ids) if own == MASK]:
        others = [CLS, *found, SEP]
        others[place] = MASK
        assert int(scores(filler, others, place).argmax()) == found[place - 1], "no single piece could be better: a fixed point"


def test_draws_depend_on_the_seed_and_the_number_of_the_text(filler):
    filler.rounds = 1
    ids = filler.source(TEXT)
    both = filler.write([ids, ids], DRAWN)
    assert both == filler.write([ids, ids], DRAWN) and both[0] != both[1]
    assert filler.write([ids], DRAWN)[0] == both[0] != filler.write([ids], DRAWN.model_copy(update={"seed": 4}))[0]
    assert not {*both[0]} & {*range(len(SPECIALS))}


def test_the_order_of_holes_is_drawn(filler):
    """Of the likeliest piece alone there is nothing to draw but which hole is next."""
    ids = filler.source(TEXT)
    found = {tuple(filler.write([ids], Sample(kind="sample", seed=seed, top_k=1))[0]) for seed in range(8)}
    assert len(found) > 1


def test_the_command_and_what_can_not_be(filler, tokens):
    def said(*args: str) -> str:
        done = CliRunner().invoke(cli.app, ["generate", *args])
        return done.output.strip() if done.exit_code == 0 else str(done.exception)

    [expected] = filler.write([filler.source(TEXT)], GREEDY)
    assert said("bert", TEXT) == filler.tokens.decode(expected)
    assert "[MASK]" not in said("bert", TEXT, "--how", "sample", "--rounds", "2")
    assert "put a [MASK] into the text" in said("bert", "the dog")
    assert "--max-new-tokens has no effect: bert fills as many masks as TEXT has" in said("bert", TEXT, "--max-new-tokens", "3")
    assert "the text has 33 tokens, and the model reads 32" in said("bert", "[MASK] " * 31)
    assert "fills its masks greedily or by sampling" in said("bert", TEXT, "--how", "beam")
    with pytest.raises(SesameError, match="beam search is for models from left to right"):
        filler.write([filler.source(TEXT)], Beam(kind="beam"))
    store.save(Path("data/models/bert"), filler.model.state_dict(), ARCHITECTURE, tokens, ["head_transform"])
    assert "bert has no trained head for masked tokens" in said("bert", TEXT)


@torch.no_grad()
def test_xlnet_fills_holes_by_what_stands_in_none(project, tokens):
    block = XLNetArchitecture(name="xlnet", num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32, max_length=32)
    torch.manual_seed(1)
    model = store.build(block, tokens)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    store.save(Path("data/models/xlnet"), model.state_dict(), block, tokens)
    assert fills("xlnet")
    filler = load("xlnet", rounds=0)
    ids = filler.source("the [MASK] sees the river")
    hole = torch.tensor([ids]) == MASK
    hidden = filler.model.at_holes(torch.tensor([ids]), torch.tensor([len(ids)]), hole.nonzero()[:, 1:], hole)
    logits = filler.model.logits(hidden)[0, 0]
    logits[: len(SPECIALS)] = -torch.inf
    [written] = filler.write([ids], GREEDY)
    assert written[ids.index(MASK) - len(tokens.prefix)] == int(logits.argmax())
    store.save(Path("data/models/headless"), model.state_dict(), block, tokens, absent=["head_bias"])
    with pytest.raises(SesameError, match="headless has no trained head for masked tokens"):
        load("headless", rounds=0)
