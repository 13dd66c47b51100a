"""The recurrent encoder-decoder: against torch's layers and the paper's formulas, padding, a token at a time, that it learns to look."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from components import objectives, params
from components.core.errors import SesameError
from components.generate import search
from components.models import store
from components.models.recurrent_encoder_decoder.config import RecurrentEncoderDecoderArchitecture
from components.models.recurrent_encoder_decoder.decoding import Decoding
from components.objectives.denoising.config import Denoising
from components.objectives.examples.source_target import generate_target, smoothed_losses
from components.params import Beam, Greedy
from components.pretrain.sizing import size
from components.text.tokenizer import CLS, PAD, SEP
from tests.conftest import run_stage, tiny_params

KINDS = ("additive", "dot", "none")


class Vocabulary:
    vocab_size = 40


def built(tokens=Vocabulary, seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"num_layers": 2, "hidden_size": 12, "embedding_size": 10, "max_length": 32}
    return store.build(RecurrentEncoderDecoderArchitecture(name="recurrent_encoder_decoder", **sizes | settings), tokens)


def pairs(rows=3, source=9, target=7):
    ids, targets = torch.randint(5, 40, (rows, source)), torch.randint(5, 40, (rows, target))
    return ids, torch.randint(3, source + 1, (rows,)), targets


@torch.no_grad()
def test_the_encoder_is_torchs_in_two_directions():
    """Over packed sequences, which never see padding."""
    model = built().eval()
    ids, _, _ = pairs()
    lengths = torch.tensor([9, 3, 6])
    theirs = nn.GRU(10, 6, num_layers=2, bidirectional=True, batch_first=True)
    for i, layer in enumerate(model.encoder):
        for suffix, own in (("", layer.ahead), ("_reverse", layer.back)):
            for name, weight in own.named_parameters():
                getattr(theirs, name.replace("l0", f"l{i}{suffix}")).copy_(weight)
    packed, ends = theirs(pack_padded_sequence(model.token_embedding(ids), lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    real = torch.arange(9) < lengths[:, None]
    top = model.top(ids, lengths)
    torch.testing.assert_close(top[real], expected[real])
    torch.testing.assert_close(model.pool(top, lengths), torch.cat([ends[2], ends[3]], 1))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_is_that_of_the_formulas(kind):
    """Bahdanau et al. 2015, section 3 and appendix A.2: row by row, token by token, with torch's GRU as f; the layers above are torch's."""
    model = built(attention=kind).eval()
    ids, lengths, targets = pairs()
    hidden = model(ids, lengths, targets)
    assert hidden.shape == (3, 7, 10) and model.logits(hidden).shape == (3, 7, 40)
    cell = nn.GRUCell(10 + 12, 12)
    for name, weight in model.decoder[0].named_parameters():
        getattr(cell, name.removesuffix("_l0")).copy_(weight)
    for row, length in enumerate(lengths.tolist()):
        annotations = model.top(ids[row : row + 1, :length], torch.tensor([length]))[0]
        ends = torch.cat([annotations[-1, :6], annotations[0, 6:]])
        state, above = model.bridge(ends).tanh().chunk(2)
        states, contexts, embedded = [], [], model.token_embedding(torch.cat([torch.tensor([CLS]), targets[row, :-1]]))
        for vector in embedded:
            if kind == "none":
                context = ends
            else:
                energies = [
                    model.attention.score(torch.tanh(model.attention.query(state) + model.attention.key(own))) if kind == "additive"
                    else (state @ own)[None] for own in annotations
                ]  # fmt: skip
                context = torch.cat(energies).softmax(0) @ annotations
            state = cell(torch.cat([vector, context])[None], state[None])[0]
            states.append(state)
            contexts.append(context)
        top, _ = model.decoder[1](torch.stack(states)[None], above[None, None])
        both = linear(torch.cat([top[0], torch.stack(contexts), embedded], 1), model.readout.weight, model.readout.bias)
        torch.testing.assert_close(hidden[row], both.view(7, 2, 10).amax(1))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_sees_what_is_before_it_and_all_of_the_source_but_its_padding(kind):
    model = built(attention=kind).double().eval()
    ids, _, targets = pairs(rows=2)
    lengths = torch.tensor([9, 6])
    hidden = model(ids, lengths, targets)
    for place in (0, 4):
        other = targets.clone()
        other[:, place] += 1
        moved = (model(ids, lengths, other) - hidden).abs().amax((0, 2))
        assert (moved[: place + 1] == 0).all() and (moved[place + 1 :] > 0).all()
    for place, seen in ((5, [True, True]), (6, [True, False])):
        other = ids.clone()
        other[:, place:] -= 1
        moved = (model(other, lengths, targets) - hidden).abs().amax(2)
        assert [bool((row > 0).all()) for row in moved] == seen and [bool((row == 0).all()) for row in moved] != seen
    alone = model(ids[1:, :6], lengths[1:], targets[1:])
    torch.testing.assert_close(alone[0], hidden[1])


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_token_at_a_time_computes_what_all_at_once_do(kind, num_layers):
    """For rows that are kept, left out and reordered on the way."""
    model = built(attention=kind, num_layers=num_layers).eval()
    ids, lengths, targets = pairs()
    whole, decoding = model(ids, lengths, targets), Decoding(model, ids, lengths, 10)
    first = decoding.read(decoding.opening())
    torch.testing.assert_close(torch.cat([first, decoding.read(targets[:, :2])], 1), whole[:, :3])
    decoding.select(rows := torch.tensor([2, 0, 0]), 1)
    torch.testing.assert_close(decoding.read(targets[rows, 2:3]), whole[rows, 3:4])
    decoding.select(torch.tensor([1, 2, 0]))
    rows = rows[[1, 2, 0]]
    torch.testing.assert_close(decoding.read(targets[rows, 3:5]), whole[rows, 4:6])
    decoding.select(torch.tensor([2]))
    torch.testing.assert_close(decoding.read(targets[2:3, 5:6]), whole[2:3, 6:])


@pytest.mark.parametrize("kind", KINDS)
def test_searches_find_what_the_whole_model_says(kind):
    """Greedy search writes what the objective's own samples are; as many beams as there are texts find the likeliest of all."""
    model = built(attention=kind).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    ids, lengths, _ = pairs(rows=5)
    limits = search.Limits(SEP, torch.tensor([PAD, 1, CLS, 4]), 8)
    with torch.no_grad():
        model.output_bias[limits.forbidden] = -1e4  # the samples know of nothing that is forbidden
    texts = [[] for _ in ids]
    begun = Decoding(model, ids, lengths, 9), model.logits
    for rows, tokens in search.one_by_one(*begun, Greedy(kind="greedy"), limits, torch.arange(5)):
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            texts[row] += [token] if token != SEP else []
    assert texts == [generate_target(model, own[:length].tolist(), 8) for own, length in zip(ids, lengths.tolist(), strict=True)]

    short = search.Limits(SEP, torch.tensor([PAD, 1, CLS, 4, *range(8, 40)]), 3)
    found = search.beams(Decoding(model, ids, lengths, 4), model.logits, Beam(kind="beam", beams=30, length_penalty=0), short)
    letters = [5, 6, 7]
    ended = [[a] for a in letters] + [[a, b] for a in letters for b in letters] + [[]]
    all_texts = [[*text, SEP] for text in ended] + [[a, b, c] for a in letters for b in letters for c in letters]
    for row, (text, *others) in enumerate(found):
        assert text not in others and len(others) == 29
        sums = [log_probability(model, ids[row, : lengths[row]], own, [SEP, *letters]) for own in all_texts]
        best = all_texts[int(torch.tensor(sums).argmax())]
        assert text == [token for token in best if token != SEP]


@torch.no_grad()
def log_probability(model, source, target, allowed) -> float:
    """Of a text, out of all pieces; those that are allowed alone can be in it."""
    assert set(target) <= set(allowed)
    scores = model.logits(model(source[None], torch.tensor([len(source)]), torch.tensor([target])))[0].log_softmax(1)
    return float(scores.gather(1, torch.tensor(target)[:, None]).sum())


@pytest.mark.long
def test_it_learns_to_turn_a_text_round_and_where_to_look():
    """Each place looks at what it writes; the ends of the encoder alone do not get there in as many steps."""
    steps = 0
    for kind in ("additive", "dot"):
        model, losses = reverser(kind), []
        for loss in islice(losses_of(model), 900):  # a seed, and a processor, takes three times the steps of another
            losses.append(loss)
            if max(losses[-10:]) < 0.05:
                break
        steps = max(steps, len(losses))
        assert max(losses[-10:]) < 0.05, losses[::60]
        ids, lengths, targets = reversing()
        length = int(lengths[0]) - 2
        weights = Decoding.attention_weights(model.eval(), ids[0, : length + 2], targets[0, : length + 1])
        assert weights.shape == (1, length + 1, length + 2)
        near = [weights[0, i, length - 1 - i : length + 2 - i].sum() for i in range(length)]
        assert sum(near) / length > 0.6, "at the token that is written or beside it, where states know of it, too"
        texts = [generate_target(model, own[:size].tolist(), 20) for own, size in zip(ids, lengths.tolist(), strict=True)]
        right = [text == own[: len(text)].tolist() and own[len(text)] == SEP for text, own in zip(texts, targets, strict=True)]
        assert sum(right) > 24, right
    without = list(islice(losses_of(reverser("none")), steps))
    assert min(without[-10:]) > 0.1, without[::60]


def reverser(attention: str):
    return built(attention=attention, num_layers=1, hidden_size=32, embedding_size=None, dropout=0.0).train()


def losses_of(model) -> Iterator[float]:
    """The loss of each step of a training without an end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        ids, lengths, targets = reversing()
        loss = smoothed_losses(model, {"ids": ids, "lengths": lengths, "targets": targets})[0] / (targets != PAD).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach())


def reversing(rows=32):
    """`[CLS] text [SEP]` of three to six tokens, and the text from its end."""
    lengths = torch.randint(3, 7, (rows,))
    ids, targets = torch.full((rows, 8), PAD), torch.full((rows, 7), PAD)
    for row, length in enumerate(lengths.tolist()):
        text = torch.randint(5, 15, (length,))
        ids[row, : length + 2] = torch.cat([torch.tensor([CLS]), text, torch.tensor([SEP])])
        targets[row, : length + 1] = torch.cat([text.flip(0), torch.tensor([SEP])])
    return ids, lengths + 2, targets


def test_without_attention_both_ends_are_looked_at():
    model = built(attention="none").eval()
    weights = Decoding.attention_weights(model, torch.arange(5, 11), torch.arange(5, 8))
    assert weights[0].tolist() == [[0.5, 0, 0, 0, 0, 0.5]] * 3 and model.attention is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_learns_and_bf16_computes_nearly_the_same(kind, tokens, train_split):
    model, objective = built(tokens, attention=kind, tie_word_embeddings=False), objectives.build(Denoising(name="denoising"), tokens)
    rows = objective.batches(train_split, 4, 32, seed=1)[0].tensors
    exact, _ = objective.losses(model.eval(), rows, None)
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = objective.losses(model, rows, None)
        losses["denoising"][0].backward()
    torch.testing.assert_close(losses["denoising"][0], exact["denoising"][0], rtol=1e-2, atol=0)
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    one, other = model.train()(rows["ids"], rows["lengths"], rows["targets"]), model(rows["ids"], rows["lengths"], rows["targets"])
    assert not torch.equal(one, other), "dropout"


def test_a_task_reads_the_encoder():
    model = built(embedding_size=None, num_layers=3).eval()
    ids, lengths, _ = pairs()
    assert model.features(ids, lengths).shape == (3, 9, 4, 12)
    names = ("token_embedding.weight", "encoder.0.ahead.weight_hh_l0", "encoder.2.back.bias_hh_l0", "decoder.0.weight_hh_l0", "output_bias")
    assert [model.depth(name) for name in names] == [0, 1, 3, 4, 4]
    narrow = built()
    assert narrow.top(ids, lengths).shape == (3, 9, 12)
    with pytest.raises(SesameError, match="an embedding of 10 and layers of 12 can't be mixed: leave architecture.embedding_size out"):
        narrow.features(ids, lengths)


def test_what_a_training_takes_is_known_before():
    raw = tiny_params()["models"]["gpt"]
    architecture = {"name": "recurrent_encoder_decoder", "num_layers": 3, "hidden_size": 16, "max_length": 12}
    block = params.Model.model_validate(raw | {"architecture": architecture, "objective": {"name": "translation"}, "prompts": []})
    taken = size(block, 40)
    assert taken.parameters == store.count_parameters(store.build(block.architecture, Vocabulary))
    assert 2 < taken.flops / taken.parameters < 3 and taken.activation_bytes > 0, "6 for each weight, which reads one of the two sides"


def test_a_task_tunes_what_denoising_has_made(project):
    """Through the stages: all weights with rates that fall from layer to layer, and all layers mixed."""
    raw = tiny_params()
    architecture = {"name": "recurrent_encoder_decoder", "num_layers": 2, "hidden_size": 16, "max_length": 32}
    objective = {"name": "denoising", "noise": {"kind": "prefix"}}
    raw["models"] = {"rnn": raw["models"]["bert"] | {"architecture": architecture, "objective": objective, "prompts": ["the dog"]}}
    recipe = raw["finetune"]["recipes"]["bert"] | {"epochs": 1}
    raw["adapt"] = {"models": ["rnn"], "methods": ["full", "mix"], "tasks": ["same"]}
    raw["adapt"]["recipes"] = {"full": recipe | {"layer_decay": 0.5}, "mix": recipe | {"method": "mix"}}
    raw["finetune"] |= {"models": [], "recipes": {}, "seeds": [1]}
    raw["studies"] = {}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    stages = ("pretrain", "rnn"), ("pretrain.sample", "rnn"), ("finetune.adapt", "rnn-full-same"), ("finetune.adapt", "rnn-mix-same")
    for stage, name in stages:
        done = run_stage(f"components.{stage}", name)
        assert done.returncode == 0, done.stderr
    assert json.loads(Path("data/samples/rnn.json").read_text())[0]["prompt"] == "the dog"


@pytest.mark.parametrize(("changes", "said"), [
    ({"hidden_size": 7}, "hidden_size 7 is odd, and each direction of the encoder has half of it"),
    ({"attention": "multi_head"}, "'additive', 'dot' or 'none'"),
    ({"num_heads": 2}, "Extra inputs are not permitted"),
])  # fmt: skip
def test_bad_settings_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(params.Architecture).validate_python({"name": "recurrent_encoder_decoder", "hidden_size": 8, **changes})
