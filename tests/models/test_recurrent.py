"""The recurrent language model: against torch's own layers, a stream in windows, dropouts, a text from its end, what it writes."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from components import objectives, params
from components.core.errors import SesameError
from components.generate import search
from components.models import store
from components.models.recurrent.config import RecurrentArchitecture
from components.models.recurrent.decoding import Decoding
from components.objectives.bptt.config import RecurrentLM
from components.objectives.examples.shuffled_text import next_token_labels
from components.objectives.scoring import IGNORED
from components.params import Greedy
from components.text.tokenizer import CLS, MASK, PAD, SEP
from tests.conftest import tiny_params

OFF = {"embedding_dropout": 0, "input_dropout": 0, "hidden_dropout": 0, "dropout": 0, "weight_dropout": 0}


def built(tokens, seed=0, **settings):
    torch.manual_seed(seed)
    return store.build(
        RecurrentArchitecture(name="recurrent", **({"num_layers": 2, "hidden_size": 12, "max_length": 32} | settings)), tokens
    )


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_it_is_what_torch_has(tokens, cell):
    model = built(tokens, cell=cell, inner_size=20).eval()
    ids = torch.randint(5, tokens.vocab_size, (3, 9))
    x = model.token_embedding(ids)
    for layer in model.cells:
        x, _ = layer(x)
    hidden, _ = model(ids)
    torch.testing.assert_close(hidden, x)
    torch.testing.assert_close(model.logits(hidden), linear(x, model.token_embedding.weight, model.output_bias))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_stream_is_read_in_windows(tokens, cell):
    model = built(tokens, cell=cell).eval()
    ids = torch.randint(5, tokens.vocab_size, (2, 12))
    whole, _ = model(ids)
    first, states = model(ids[:, :7])
    second, _ = model(ids[:, 7:], states)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)


def test_dropouts_are_of_what_they_say(tokens):
    """Each alone: whole tokens, the same places of all tokens of a row, and state matrices of which half is left."""
    ids = torch.randint(5, tokens.vocab_size, (4, 10))
    for name, part in (("input_dropout", 0), ("hidden_dropout", 1), ("dropout", 2)):
        model = built(tokens, hidden_size=200, **OFF | {name: 0.5}).train()
        x = model._read(ids, None)[0][part]
        dropped = x == 0
        assert (dropped == dropped[:, :1]).all() and dropped.float().mean() == pytest.approx(0.5, abs=0.08), name
        assert not torch.equal(dropped[0], dropped[1])
    model = built(tokens, **OFF | {"embedding_dropout": 0.5}).train()
    rows = torch.arange(5, tokens.vocab_size)[None].repeat(1, 2)
    zero = (model._read(rows, None)[0][0] == 0).all(2)[0]
    assert torch.equal(*zero.chunk(2)) and zero.float().mean() == pytest.approx(0.5, abs=0.15)

    model = built(tokens, **OFF | {"weight_dropout": 0.5}).train()
    one, other = model(ids)[0], model(ids)[0]
    assert not torch.equal(one, other) and torch.equal(model(ids[:, :1])[0], model(ids[:, :1])[0])  # the first token has no state before it
    one.sum().backward()
    assert (model.cells[0].weight_hh_l0.grad == 0).float().mean() == pytest.approx(0.5, abs=0.1)
    assert torch.equal(model.eval()(ids)[0], model(ids)[0])


def test_the_dropouts_are_ulmfits_by_default():
    """Howard and Ruder 2018, section 4.1."""
    block = RecurrentArchitecture(name="recurrent", hidden_size=8)
    assert [getattr(block, name) for name in OFF] == [0.05, 0.4, 0.3, 0.4, 0.5]


def test_padding_changes_nothing(tokens):
    for backward in (False, True):
        model = built(tokens, backward=backward).eval()
        ids = torch.randint(5, tokens.vocab_size, (2, 9))
        alone = model.layers(ids[:1, :6], torch.tensor([6]))
        beside = model.layers(ids, torch.tensor([6, 9]))
        for one, other in zip(alone, beside, strict=True):
            torch.testing.assert_close(one[0], other[0, :6])
        torch.testing.assert_close(model.pool(alone[-1], torch.tensor([6]))[0], model.pool(beside[-1], torch.tensor([6, 9]))[0])


def test_backward_is_forward_of_the_text_turned_round(tokens):
    ahead, back = built(tokens).eval(), built(tokens, backward=True).eval()
    ids, lengths = torch.randint(5, tokens.vocab_size, (1, 8)), torch.tensor([8])
    torch.testing.assert_close(back.top(ids, lengths), ahead.top(ids.flip(1), lengths).flip(1))
    torch.testing.assert_close(back.pool(back.top(ids, lengths), lengths), ahead.pool(ahead.top(ids.flip(1), lengths), lengths))


def test_layers_of_several_widths_are_not_mixed(tokens):
    model = built(tokens, inner_size=20)
    ids, lengths = torch.randint(5, tokens.vocab_size, (1, 8)), torch.tensor([8])
    assert model.top(ids, lengths).shape == (1, 8, 12)
    with pytest.raises(SesameError, match="layers of 20 and 12 can't be mixed: leave architecture.inner_size out, or take a method"):
        model.features(ids, lengths)


@pytest.mark.parametrize("backward", [False, True])
def test_the_loss_goes_over_lanes(tokens, train_split, backward):
    """Two windows with the state between them are the loss of one window of both; the gradient stops where the window does."""
    short, long = (objectives.build(RecurrentLM(name="bptt", window=size, backward=backward), tokens) for size in (8, 16))
    model = built(tokens, cell="gru", backward=backward, **OFF)
    few, many = (own.batches(train_split, 3, 32, seed=1) for own in (short, long))
    assert many.tokens(0) == 2 * few.tokens(0) == 48
    losses, carry = short.losses(model, few[0].tensors, None)
    more, _ = short.losses(model, few[1].tensors, carry)
    whole, _ = long.losses(model, many[0].tensors, None)
    torch.testing.assert_close(losses["bptt"][0] + more["bptt"][0], whole["bptt"][0])
    assert not carry.requires_grad
    text = short.explain(few, 1)
    lane = few[1].tensors["ids"][0]
    assert text[0]["text"] == tokens.stream((lane.flip(0) if backward else lane).tolist())
    whole = few.text.read(0, 0, few.text.size)
    start = few.text.size - 17 if backward else 8
    assert whole[start : start + 9].tolist() == (lane.flip(0) if backward else lane).tolist()
    assert text[0]["documents"] == few.text.documents(0, start, start + 9)


def test_both_directions_are_asked_the_same(tokens, train_split):
    """Of every document its text and its end: back, the `[SEP]` that always follows on a `[CLS]` is not asked, and the `[CLS]` is."""
    ahead, back = (objectives.build(RecurrentLM(name="bptt", window=5, backward=own), tokens) for own in (False, True))
    document = torch.tensor([[CLS, 20, 21, SEP, 30, SEP]])
    assert next_token_labels(torch.cat([document, document], 1)).tolist() == [20, 21, SEP, 30, SEP, IGNORED, 20, 21, SEP, 30, SEP]
    turned = next_token_labels(torch.cat([document, document], 1).flip(1), backward=True)
    assert turned.tolist() == [30, SEP, 21, 20, CLS, IGNORED, 30, SEP, 21, 20, CLS]

    model = built(tokens, cell="gru", backward=True, **OFF).eval()
    batches = back.batches(train_split, 3, 32, seed=1)
    read = [batches[step] for step in range(batches.epoch_steps())]
    for rows, counts in read:
        ids = rows["ids"]
        each = nn.functional.cross_entropy(model.logits(model(ids[:, :-1])[0]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        asked = ((ids[:, :-1] != CLS) & (ids[:, 1:] != PAD)).flatten()
        torch.testing.assert_close(back.losses(model, rows, None)[0]["bptt"][0], each[asked].sum())
        assert counts["bptt"] == asked.sum() and counts["bytes"] == tokens.byte_lengths[ids[:, 1:].flatten()[asked]].sum()
    forward = ahead.batches(train_split, 3, 32, seed=1)
    counted = [sum(batch.counts[part] for batch in (forward[step] for step in range(len(read)))) for part in ("bptt", "bytes")]
    assert counted == pytest.approx([sum(counts[part] for _, counts in read) for part in ("bptt", "bytes")], rel=0.02)


def test_what_is_written_ends_where_a_text_does(tokens, train_split):
    """Ahead at the end of a sentence; back also where the document begins, which a model that reads ahead never says."""
    for backward, end, never in ((False, SEP, CLS), (True, SEP, MASK), (True, CLS, MASK)):
        objective, model = objectives.build(RecurrentLM(name="bptt", backward=backward), tokens), built(tokens, backward=backward).eval()
        script = iter([20, 21, 22, end])

        def logits(hidden, script=script, never=never):
            scores = torch.zeros(tokens.vocab_size)
            scores[next(script)], scores[never] = 1000, 2000
            return scores

        model.logits = logits
        [shown] = objective.samples(model, train_split, ["a man"])
        assert shown["output"] == tokens.decode([22, 21, 20] if backward else [20, 21, 22]) and not list(script)


def test_samples_and_decoding_agree(tokens, train_split):
    """What is written a token at a time is what the whole text says; a model that reads from the end does not go on with a text."""
    model = built(tokens).eval()
    ids = torch.tensor([[CLS, 20, 21], [CLS, 25, 30]])
    decoding = Decoding(model, ids, torch.tensor([3, 3]), 10)
    limits = search.Limits(3, torch.tensor([0, 1, 2]), 5)
    texts = [[], []]
    for rows, written in search.one_by_one(decoding, model.logits, Greedy(kind="greedy"), limits, torch.arange(2)):
        for row, token in zip(rows.tolist(), written.tolist(), strict=True):
            texts[row].append(token)
    for row, text in enumerate(texts):
        whole = torch.cat([ids[row], torch.tensor(text[:-1], dtype=torch.long)])[None]
        logits = model.logits(model(whole)[0])[0, 2:]
        logits[:, [0, 1, 2]] = -torch.inf
        assert logits.argmax(1).tolist() == text
    back = built(tokens, backward=True).eval()
    with pytest.raises(SesameError, match="reads a text from its end"):
        Decoding(back, ids, torch.tensor([3, 3]), 10)
    for own, backward in ((model, False), (back, True)):
        objective = objectives.build(RecurrentLM(name="bptt", backward=backward), tokens)
        one, other = (objective.samples(own, train_split, ["a man"]) for _ in range(2))
        assert one == other and one[0]["output"]


def test_direction_and_objective_go_together():
    raw = tiny_params()
    raw["models"]["gpt"] |= {"architecture": {"name": "recurrent", "hidden_size": 8, "backward": True}, "objective": {"name": "bptt"}}
    with pytest.raises(Exception, match=r"objective.backward and architecture.backward differ"):
        params.Params.model_validate(raw)
    raw["models"]["gpt"]["objective"] = {"name": "clm"}
    with pytest.raises(
        Exception, match=r"objective clm can't train architecture recurrent; allowed: \['bptt', 'quick_thoughts', 'skip_thoughts'\]"
    ):
        params.Params.model_validate(raw)


def test_the_top_learns_first(tokens):
    model = built(tokens, num_layers=3)
    assert [model.depth(name) for name in ("token_embedding.weight", "cells.0.weight_hh_l0", "cells.2.bias_hh_l0", "output_bias")] == [
        0,
        1,
        3,
        4,
    ]
    assert isinstance(model.cells[0], nn.LSTM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer": {"recompute": True}}, "trainer.recompute and run.strategy fsdp need separate layers, which "
                "recurrent "
                "does "
                "not have"),
        ({"run": {"strategy": "fsdp"}}, "trainer.recompute and run.strategy fsdp need separate layers, which recurrent "
                "does "
                "not have"),
        ({"optimizer": {"learning_rate": 0.1, "schedule": "inverse_sqrt", "warmup": 0}}, "inverse_sqrt decays from "
                "the end "
                "of the "
                "warm-up"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(changes, message):
    raw = tiny_params()
    raw["models"]["gpt"] |= {"architecture": {"name": "recurrent", "hidden_size": 8}, "objective": {"name": "bptt"}}
    params.Params.model_validate(raw)
    raw["models"]["gpt"] |= changes
    with pytest.raises(Exception, match=message):
        params.Params.model_validate(raw)


def test_one_layer_has_no_inner_ones():
    with pytest.raises(
        Exception,
        match=(
            "inner_size has no effect: it is the size of the layers below the last, and num_layers is 1; leave it out"
        ),
    ):
        RecurrentArchitecture(name="recurrent", num_layers=1, hidden_size=8, inner_size=16)
