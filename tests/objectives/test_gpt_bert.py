"""GPT-BERT: steps of two kinds, from rows of one text."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from components import objectives, params
from components.models import store
from components.models.decoder.config import DecoderArchitecture
from components.objectives.clm.config import CausalLM
from components.objectives.examples.rows import isolate
from components.objectives.gpt_bert.config import GptBert
from components.objectives.scoring import IGNORED
from components.pretrain.setup import set_up
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS
from tests.conftest import tiny_params
from tests.objectives.test_source_target import Vocabulary, running

LENGTH, BATCH = 32, 8


def built(**settings):
    return objectives.build(GptBert(name="gpt_bert", **settings), Vocabulary())


def test_a_share_of_the_steps_hides_tokens_and_the_others_read_left_to_right():
    batches = built(masked_steps=0.3, mlm_probability=0.2, mask_share=0.8, random_share=0.1).batches(running(2000), BATCH, LENGTH, seed=3)
    kinds, hidden, ordinary, seen = [], 0, 0, []
    for step in range(400):
        tensors, counts = batches[step]
        [text] = [torch.from_numpy(batches.read(step, step + 1))]
        kinds.append(bool(tensors["two_sided"].all()))
        assert kinds[-1] == bool(tensors["two_sided"].any()), "a step is of one kind"
        real = tensors["labels"] != IGNORED
        following = text.gather(1, tensors["positions"] + 1)
        assert torch.equal(tensors["labels"][real], following[real]), "what is predicted is the token after the position"
        assert counts["next_token"] == real.sum() and counts["tokens"] == batches.tokens(step)
        if not kinds[-1]:
            assert torch.equal(tensors["ids"], text[:, :-1])
            assert counts["next_token"] == ((text[:, 1:] != CLS) & (text[:, 1:] != PAD)).sum()
            continue
        inside = text[:, 1:-1] >= len(SPECIALS)
        assert (real.sum(1) == (0.2 * inside.sum(1)).round().clamp(min=1)).all()
        hidden, ordinary = hidden + int(real.sum()), ordinary + int(inside.sum())
        seen.append(tensors["ids"].gather(1, (tensors["positions"] + 1).clamp(max=LENGTH - 1))[real])
        seen[-1] = torch.where(seen[-1] == MASK, 0, torch.where(seen[-1] == following[real], 1, 2))
        changed = (tensors["ids"] != text[:, :-1]).sum()
        assert changed <= real.sum(), "no other token is touched"
    assert np.mean(kinds) == pytest.approx(0.3, abs=3 * np.sqrt(0.3 * 0.7 / 400))
    shares = torch.bincount(torch.cat(seen), minlength=3) / hidden
    assert shares.tolist() == pytest.approx([0.8, 0.1, 0.1], abs=0.02) and hidden / ordinary == pytest.approx(0.2, abs=0.01)


def test_a_causal_step_is_gpts_and_a_masked_one_reads_its_document_on_both_sides():
    text, tokens = running(200), Vocabulary()
    sizes = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": LENGTH, "dropout": 0}
    torch.manual_seed(0)
    model = store.build(DecoderArchitecture(name="decoder", positions="rotary", **sizes), tokens).eval()
    mixed, causal = built(), objectives.build(CausalLM(name="clm"), tokens)
    batches, gpts = mixed.batches(text, BATCH, LENGTH, seed=3), causal.batches(text, BATCH, LENGTH, seed=3)
    kinds = batches.is_masked(np.arange(12)).tolist()
    with torch.no_grad():
        step = kinds.index(False)
        (mine, _), = [mixed.losses(model, batches[step].tensors, None)[0]["next_token"]]  # fmt: skip
        assert mine == pytest.approx(float(causal.losses(model, gpts[step].tensors, None)[0]["clm"][0]), rel=1e-5)

        tensors = batches[kinds.index(True)].tensors
        row = next(i for i, ids in enumerate(tensors["ids"]) if CLS in ids[1:])
        ids, end = tensors["ids"][row : row + 1], int((tensors["ids"][row, 1:] == CLS).nonzero()[0]) + 1
        states = model(ids, *isolate(ids, torch.tensor([True])))
        alone = model(ids[:, :end], mask=torch.ones(1, 1, end, end, dtype=torch.bool))
        assert torch.allclose(states[:, :end], alone, atol=1e-5), "of its document all tokens are seen, of the next one none"
        places, labels = tensors["positions"][row], tensors["labels"][row]
        real = labels != IGNORED
        expected = cross_entropy(model.logits(states[0, places[real]]), labels[real], reduction="sum")
        alone = {name: tensor[row : row + 1] for name, tensor in tensors.items()}
        assert mixed.losses(model, alone, None)[0]["next_token"][0] == pytest.approx(float(expected), rel=1e-5)


def test_flops_are_those_of_both_kinds_of_steps(project):
    """They fall evenly with the share of masked steps; without any they are those of GPT."""

    def per_token(**objective) -> float:
        raw = tiny_params(studies={})
        raw["models"]["gpt"] |= {"objective": objective, "prompts": []}
        return set_up(params.check(raw).models["gpt"], None).train.phases[0].flops_per_token

    few, more, most = (per_token(name="gpt_bert", masked_steps=share) for share in (0.2, 0.4, 0.8))
    assert few - more > 0.01 * few, "a masked step predicts fewer tokens"
    assert more - most == pytest.approx(2 * (few - more), rel=0.01)
    assert 2 * few - more == pytest.approx(per_token(name="clm"), rel=0.05), "but for the positions that predict nothing"
    assert per_token(name="gpt_bert", masked_steps=1e-9) == per_token(name="gpt_bert", masked_steps=1e-8), "none is met: all are causal"


def test_padding_behind_the_text_is_seen_by_no_token():
    ids = torch.tensor([[CLS, 20, 21, SEP, PAD, PAD]])
    _, mask = isolate(ids, torch.tensor([True]))
    assert mask[0, 0, :4, :4].all() and not mask[0, 0, :4, 4:].any()


def test_validation_is_causal_and_of_every_token():
    text = running(40)
    batches = built().validation(text, 4, LENGTH)
    read = [batches[step] for step in range(batches.epoch_steps())]
    assert not any(batch.tensors["two_sided"].any() for batch in read)
    assert sum(batch.counts["next_token"] for batch in read) == int((text.shards[0].tokens != CLS).sum())
    assert not any((batch.tensors["ids"] == MASK).any() for batch in read)
