"""What holds for every family, a new one included: padding changes nothing, no token sees what it predicts, a saved model comes back."""

from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from components import params
from components.models import store
from components.models.contract import LanguageModel
from components.params.models import ARCHITECTURES
from components.text.tokenizer import PAD, SPECIALS
from tests.models.test_canine import Ascii
from tests.pretrain.test_device import PAIRS

FAMILIES = {architecture["name"]: architecture for architecture, _ in PAIRS.values()} | {"static": {"name": "static", "vector_size": 16}}
LENGTH, SHORTER = 12, 7


def test_every_family_is_tried():
    advice = "add a small model of the family, with an objective, to PAIRS of tests/pretrain/test_device.py"
    assert FAMILIES.keys() == set(ARCHITECTURES), advice


def built(name: str, tokens) -> tuple[LanguageModel, params.Architecture]:
    architecture = TypeAdapter(params.Architecture).validate_python(FAMILIES[name])
    torch.manual_seed(0)
    model = store.build(architecture, Ascii() if architecture.of_characters else tokens).eval()
    for parameter in model.parameters():  # of any size that is seen: some are initialised with zeros
        torch.nn.init.normal_(parameter, 0, 0.2)
    return model, architecture


def drawn(rows: int, seed: int) -> torch.Tensor:
    return torch.randint(len(SPECIALS), 80, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_padding_changes_nothing(name, tokens):
    model, _ = built(name, tokens)
    ids = drawn(2, 1)
    ids[1, SHORTER:] = PAD
    both = model.layers(ids, torch.tensor([LENGTH, SHORTER]))
    alone = model.layers(ids[1:, :SHORTER], torch.tensor([SHORTER]))
    assert len(both) == len(alone) == model.num_layers + 1
    for padded, layer in zip(both, alone, strict=True):
        assert layer.shape == (1, SHORTER, model.width)
        torch.testing.assert_close(padded[1:, :SHORTER], layer, atol=1e-5, rtol=1e-4)
    lengths = torch.tensor([LENGTH, SHORTER])
    torch.testing.assert_close(
        model.pool(both[-1], lengths)[1:], model.pool(alone[-1], lengths[1:]), atol=1e-5, rtol=1e-4
    )  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_token_sees_what_it_predicts(name, tokens):
    """Of the families that read a text, or write one, from left to right: what follows is changed, and the states before are the same."""
    model, architecture = built(name, tokens)
    ids, others, lengths = drawn(2, 1), drawn(2, 2), torch.full((2,), LENGTH)
    others[:, :SHORTER] = ids[:, :SHORTER]
    if architecture.reads in ("left_to_right", "recurrent", "no_context"):
        states = [torch.stack(model.layers(text, lengths)) for text in (ids, others)]
        same = SHORTER
    elif architecture.reads == "source_then_target":
        states = [model(drawn(2, 3), lengths, target)[None] for target in (ids, others)]
        same = SHORTER + 1  # the state at a place predicts the token there
    else:
        pytest.skip(f"{name} reads {architecture.reads}: its objective hides what is predicted")
    torch.testing.assert_close(states[0][:, :, :same], states[1][:, :, :same], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(states[0][:, :, same:], states[1][:, :, same:], atol=1e-3), "the others did change"


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_saved_model_comes_back(name, tokens, project):
    model, architecture = built(name, tokens)
    if architecture.of_characters:
        pytest.skip("its tokenizer here has no file; tests/models/test_canine.py saves one")
    folder = Path("data/models/one")
    store.save(folder, model.state_dict(), architecture, tokens, [], [])
    again, _ = store.load(folder)
    ids, lengths = drawn(2, 1), torch.full((2,), LENGTH)
    assert all(torch.equal(a, b) for a, b in zip(model.layers(ids, lengths), again.eval().layers(ids, lengths), strict=True))
