"""What is masked, paired, packed and streamed; that a batch depends on (seed, step) only."""

import re

import numpy as np
import pytest
import torch
from scipy import stats

from components import encode, objectives, params
from components.encode import Split
from components.errors import SesameError
from components.keyed import uniform
from components.models import store
from components.models.bilm.block import BiLMArchitecture
from components.models.decoder.block import DecoderArchitecture
from components.objectives.bilm.batches import LaneBatches
from components.objectives.bilm.objective import pack, unpack
from components.objectives.clm.objective import PackedBatches, isolate
from components.objectives.examples.segments import exchanged, pairs
from components.objectives.mlm.batches import MaskedBatches
from components.objectives.mlm.block import MaskedLM
from components.objectives.mlm.control import from_b_alone
from components.objectives.noise.tokens import mask
from components.objectives.scoring import IGNORED, Sums
from components.pretrain.batch import batch
from components.tokenizer import CLS, MASK, PAD, SEP, SPECIALS
from tests.conftest import tiny_params

CONFIG = MaskedLM(name="mlm")


def test_keyed_numbers_are_uniform_and_independent_of_shape():
    values = uniform(1, 2, np.arange(200_000))
    assert abs(values.mean() - 0.5) < 0.005 and abs(np.histogram(values, 10, (0, 1))[0] / 200_000 - 0.1).max() < 0.004
    assert np.array_equal(uniform(1, 2, np.arange(5, 9)), values[5:9])
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
    assert not np.array_equal(uniform(1, 3, np.arange(10)), values[:10])


def test_masker_shares():
    """15 % of the ordinary tokens are targets; of these 80 % [MASK], 10 % another ordinary token, 10 % unchanged."""
    rows, length, vocab = 2000, 60, 500
    ids = np.random.default_rng(0).integers(len(SPECIALS), vocab, (rows, length))
    ids[:, 0], ids[:, 30], ids[:, 50], ids[:, 51:] = CLS, SEP, SEP, PAD
    masked, labels = mask(ids, CONFIG, np.arange(len(SPECIALS), vocab), (1, 0), np.arange(rows))
    target, real = labels != IGNORED, ids >= len(SPECIALS)
    assert not target[~real].any() and np.array_equal(labels[target], ids[target]) and np.array_equal(masked[~target], ids[~target])
    assert (target.sum(1) == round(0.15 * 48)).all()
    changed = masked[target]
    assert (changed == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (changed == ids[target]).mean() == pytest.approx(0.1, abs=0.01)
    random = changed[(changed != MASK) & (changed != ids[target])]
    assert (random >= len(SPECIALS)).all() and len(np.unique(random)) > 0.8 * (vocab - len(SPECIALS))
    assert np.histogram(target[:, 1:30].sum(0), 5)[0].sum() == 29 and target[:, 1:30].mean(0).std() < 0.01  # no favoured place


def test_mask_depends_on_seed_epoch_and_example_only():
    ids = np.random.default_rng(0).integers(len(SPECIALS), 500, (8, 20))
    ordinary, examples = np.arange(len(SPECIALS), 500), np.arange(8)
    together = mask(ids, CONFIG, ordinary, (1, 0), examples)[0]
    alone = np.concatenate([mask(ids[i : i + 1], CONFIG, ordinary, (1, 0), examples[i : i + 1])[0] for i in range(8)])
    assert np.array_equal(together, alone)
    assert not np.array_equal(together, mask(ids, CONFIG, ordinary, (1, 1), examples)[0])


def test_whole_words_are_masked_whole():
    """No word is masked in part, never more than the share unless a single word is, little less, and no place more often than another."""
    rows, length, vocab = 3000, 60, 500
    rng = np.random.default_rng(0)
    ids, starts_word = rng.integers(len(SPECIALS), vocab, (rows, length)), np.arange(vocab) % 3 == 0
    ids[:, 0], ids[:, 30], ids[:, 50], ids[:, 51:] = CLS, SEP, SEP, PAD
    config = CONFIG.model_copy(update={"whole_word": True})
    _, labels = mask(ids, config, np.arange(len(SPECIALS), vocab), (1, 0), np.arange(rows), starts_word)
    target, real = labels != IGNORED, ids >= len(SPECIALS)
    for row in range(rows):
        opens = np.flatnonzero(real[row] & (starts_word[ids[row]] | ~np.roll(real[row], 1)))
        words = [target[row, a:b][real[row, a:b]] for a, b in zip(opens, [*opens[1:], length], strict=True)]
        assert all(word.all() or not word.any() for word in words)
        assert target[row].sum() <= round(0.15 * 48) or sum(word.any() for word in words) == 1
    assert not target[~real].any() and 0.145 < target[real].mean() <= 7 / 48
    assert target[:, 6:25].mean(0).std() < 0.015  # no favoured place, but beside specials, where words are short


@pytest.mark.parametrize("seed", range(5))
def test_tokens_of_a_step_are_those_of_its_batch_in_every_epoch(tokens, train_split, seed):
    """A budget in tokens asks for them before any batch is made, past the ends of epochs, and a resumed run in between."""
    config = CONFIG.model_copy(update={"next_sentence": True})
    counting = objectives.build(config, tokens).batches(train_split, 4, 32, seed)
    reading = objectives.build(config, tokens).batches(train_split, 4, 32, seed)
    counted = [counting.tokens(step) for step in range(3 * counting.epoch_steps() + 2)]
    assert counted == [int(reading[step]["lengths"].sum()) for step in range(len(counted))]
    assert counting.tokens(0) == counted[0], "back from the third epoch"


@pytest.mark.parametrize("next_sentence", [True, False])
def test_static_masks_are_those_of_the_first_epoch(tokens, train_split, next_sentence):
    def epoch(config, number):
        batches = objectives.build(config, tokens).batches(train_split, 4, 32, seed=1)
        steps = batches.epoch_steps()
        found = [batches[number * steps + i]["ids"] for i in range(steps)]
        return {tuple(row) for ids in found for row in torch.nn.functional.pad(ids, (0, 32 - ids.shape[1])).tolist()}

    config = CONFIG.model_copy(update={"next_sentence": next_sentence, "static": True})
    one, two = epoch(config, 0), epoch(config, 1)
    assert len(one & two) > 0.9 * len(one), "the same examples and masks in another order; a few fall out of the last batch"
    other = epoch(config.model_copy(update={"static": False}), 1)
    assert len(one & other) < 0.5 * len(one)


def test_next_sentence_pairs(train_split):
    everything = np.concatenate([pairs(train_split, 24, np.random.default_rng(seed)) for seed in range(4)])
    alone = everything[:, 4] == IGNORED
    assert (everything[alone, 2] == everything[alone, 3]).all(), "a segment left alone has no B and asks nothing"
    found = everything[~alone]
    starts = train_split.document_tokens
    document = np.searchsorted(starts, found[:, [0, 2]], side="right")
    random = found[:, 4] == 1
    assert (document[random, 0] != document[random, 1]).all(), "a random segment comes from another document"
    assert (document[~random, 0] == document[~random, 1]).all()
    assert np.array_equal(found[~random, 1] + 1, found[~random, 2]) or (found[~random, 1] < found[~random, 2]).all()
    sizes = (found[:, 1] - found[:, 0]) + (found[:, 3] - found[:, 2])
    assert (sizes <= 21).all() and (found[:, 1] > found[:, 0]).all() and (found[:, 3] > found[:, 2]).all()
    assert random.mean() == pytest.approx(0.5, abs=0.08)
    opens = np.isin(found[:, 0], starts + 1)  # neither answer is given away by where A stands
    assert random[opens].mean() == pytest.approx(0.5, abs=0.1) and random[~opens].mean() == pytest.approx(0.5, abs=0.1)
    opened = set(everything[:, 0].tolist()) | set(found[~random, 2].tolist())
    firsts = train_split.segments[:, 0]
    assert np.isin(firsts, list(opened)).mean() > 0.5, "segments not used as B go back and open the next example"


def with_marks(documents: int, seed: int) -> Split:
    """Documents of two to five segments, each of which opens with a piece (7) that stands nowhere else; all others are noise."""
    rng = np.random.default_rng(seed)
    tokens, segments, firsts = [], [], [0]
    for _ in range(documents):
        tokens.append(CLS)
        for number in range(rng.integers(2, 6)):
            start = len(tokens)
            tokens += [7] * (number == 0) + rng.integers(8, 60, rng.integers(3, 9)).tolist()
            segments.append((start, len(tokens)))
            tokens.append(SEP)
        firsts.append(len(segments))
    return Split(np.array(tokens), np.array(segments), np.array(firsts))


def test_the_second_segment_alone_tells_nothing_of_the_answer(tokens):
    """Drawn from anywhere, a random B opens its document in a third of the pairs and a true one never: right in two of three."""
    train, valid = (MaskedBatches(CONFIG, tokens, with_marks(documents, seed), 8, 40, 1) for seed, documents in enumerate((3000, 1500)))
    assert from_b_alone(train, valid) == pytest.approx(0.5, abs=0.035), "three standard errors of some 1,900 answers"
    asked = train.examples[train.examples[:, 4] != IGNORED]
    opens = train.text.segments[train.text.documents[:-1], 0]
    assert not np.isin(asked[:, 2], opens).any() and np.isin(asked[:, 0], opens).mean() > 0.3
    random, sizes = asked[:, 4] == 1, asked[:, 3] - asked[:, 2]
    assert stats.ks_2samp(sizes[random], sizes[~random]).pvalue > 0.01, "nor does its length"
    both = sizes + asked[:, 1] - asked[:, 0]
    assert stats.ks_2samp(both[random], both[~random]).pvalue > 0.01, "nor that of both"

    peek = MaskedBatches(CONFIG, tokens, with_marks(3000, 0), 8, 40, 1)
    told = peek.examples[:, 4] == 1
    peek.examples[told, 2] = np.random.default_rng(0).choice(opens, told.sum())  # what the figure is for
    peek.examples[told, 3] = peek.examples[told, 2] + 4
    assert from_b_alone(peek, peek) > 0.95


def test_segments_are_exchanged_between_documents_and_by_length():
    rng = np.random.default_rng(0)
    sizes = dict(enumerate(rng.integers(1, 90, 400).tolist()))
    documents = {row: 0 if row < 300 else row for row in sizes}  # one is longer than all others together
    others = exchanged(list(sizes), sizes, documents, rng)
    assert others.keys() == sizes.keys() and all(documents[row] != documents[other] for row, other in others.items())
    assert max(abs(sizes[row] - sizes[other]) for row, other in others.items()) < 12
    assert len(exchanged([1, 301], sizes, documents, rng)) == 2
    with pytest.raises(SesameError, match="two documents of more than one segment"):
        exchanged([0, 1], {0: 3, 1: 4}, {0: 0, 1: 0}, rng)


def test_masked_batch_layout(tokens, train_split):
    batches = MaskedBatches(CONFIG, tokens, train_split, 8, 24, seed=1)
    for step in (0, batches.epoch_steps() + 3):
        batch = batches[step]
        original = torch.where(batch["labels"] != IGNORED, batch["labels"], batch["ids"])
        for row, length in enumerate(batch["lengths"].tolist()):
            ids, segments = original[row], batch["segment_ids"][row]
            seps = (ids == SEP).nonzero().flatten().tolist()
            assert ids[0] == CLS and seps[-1] == length - 1 and (ids[length:] == PAD).all()
            assert len(seps) == (1 if batch["is_random"][row] == IGNORED else 2)
            assert (segments[: seps[0] + 1] == 0).all() and (segments[seps[0] + 1 : length] == 1).all() and (segments[length:] == 0).all()
        assert batches.tokens(step) == batch["lengths"].sum()


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_what_a_step_reads_is_shown_with_its_documents(name, project, tokens, train_split):
    """The text of a row stands in the documents that it is said to be of; a masked LM's targets are marked."""
    rows = batch(params.check(tiny_params()), name, 3)
    assert rows == batch(params.check(tiny_params()), name, 3) != batch(params.check(tiny_params()), name, 4) and len(rows) == 8
    for row in rows:
        text = re.sub(r"\[([^]]*) → [^]]*\]", r"\1", row["text"]).replace("¶", "")
        bounds, own = train_split.document_tokens, list(map(int, row["documents"].split()))
        source = "".join(tokens.stream(train_split.tokens[bounds[i] : bounds[i + 1]].tolist()) for i in own)
        assert all(re.sub(r"\W", "", segment) in re.sub(r"\W", "", source) for segment in text.split("|") if name == "bert"), (row, source)
        assert re.sub(r"\W", "", text)[:20] in re.sub(r"\W", "", source), (row, source)
    assert ("→" in rows[0]["text"]) == ("asked" in rows[0]) == (name == "bert")
    if name == "bert":
        assert {row["asked"] for row in rows} <= {"B follows A", "B is random", "no question"}
        assert all(len(row["documents"].split()) == 1 + (row["asked"] == "B is random") for row in rows)


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_batch_is_a_function_of_seed_and_step(name, project, tokens, train_split):
    block = _block(name)
    objective = objectives.build(block.objective, tokens)
    one, other = (objective.batches(train_split, 8, 24, seed=5) for _ in range(2))
    far = one.epoch_steps() + 1
    late = one[far]
    for step in (0, 1, far - 1):
        other[step]
    assert all(torch.equal(late[key], value) for key, value in other[far].items())
    third = objective.batches(train_split, 8, 24, seed=6)[far]
    assert any(not torch.equal(late[key], third[key]) for key in late if late[key].shape == third[key].shape) or len(late) == 0


def test_packed_rows_hold_every_token_once_an_epoch(train_split):
    batches = PackedBatches(train_split, 4, 16, seed=0)
    epoch = torch.cat([batches[step]["ids"][:, :-1].flatten() for step in range(batches.epoch_steps())])
    tokens = np.asarray(train_split.tokens)
    assert len(epoch) > 0.9 * len(tokens)
    assert (np.bincount(epoch, minlength=400) <= np.bincount(tokens, minlength=400)).all()
    row = batches[0]["ids"]
    assert torch.equal(row[:-1, -1], row[1:, 0]), "the last token of a row is predicted, then opens the next row"


def test_isolated_documents_do_not_see_each_other(tokens):
    block = DecoderArchitecture(name="decoder", num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32, max_length=24)
    model = store.build(block, tokens).eval()
    first, second = [CLS, 10, 11, 12, SEP], [CLS, 20, 21, 22, 23, SEP]
    packed = torch.tensor([first + second])
    positions, mask_ = isolate(packed)
    assert positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]]
    with torch.no_grad():
        together, alone = model(packed, positions, mask_)[0, 5:], model(torch.tensor([second]))[0]
        leaky = model(packed, positions)[0, 5:]
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(leaky, alone, atol=1e-4), "resetting positions alone must not be enough"


def test_lanes_continue_and_run_backwards(train_split):
    batches = LaneBatches(train_split, 4, 8, seed=0)
    first, second = batches[0], batches[1]
    assert torch.equal(first["forward"][:, -1], second["forward"][:, 0]) and torch.equal(first["backward"][:, -1], second["backward"][:, 0])
    size = batches.stream.size
    text = batches.stream.read(0, 0, size)
    assert np.array_equal(first["forward"][0].numpy(), text[:9]) and np.array_equal(first["backward"][0].numpy(), text[::-1][:9])


def test_elmo_states_survive_packing(tokens):
    model = store.build(BiLMArchitecture(name="bilm", hidden_size=16, projection_size=8), tokens).eval()
    ids = torch.randint(5, tokens.vocab_size, (3, 12))
    with torch.no_grad():
        ahead, _, _ = model(ids, ids)
        _, _, states = model(ids[:, :6], ids[:, :6])
        later, _, _ = model(ids[:, 6:], ids[:, 6:], unpack(pack(states), model))
    torch.testing.assert_close(ahead[:, 6:], later)


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_loss_of_shares_of_rows_adds_up(name, tokens, train_split):
    """Sums over parts of a batch are the batch's: the loss is the same however rows go to micro-batches and ranks."""
    block = _block(name)
    objective = objectives.build(block.objective, tokens)
    model = store.build(block.architecture, tokens).eval()
    rows = objective.batches(train_split, 8, 24, seed=0)[0]
    with torch.no_grad():
        whole, _ = objective.losses(model, rows, None)
        parts = [objective.losses(model, {key: value[i::3] for key, value in rows.items()}, None)[0] for i in range(3)]
    for part, (loss, correct) in whole.items():
        torch.testing.assert_close(sum(p[part][0] for p in parts), loss, rtol=1e-5, atol=1e-4)
        assert sum(int(p[part][1]) for p in parts) == int(correct)
    counts = objective.counts(rows)
    thirds = [objective.counts({k: v[i::3] for k, v in rows.items()}) for i in range(3)]
    assert all(int(counts[key]) == sum(int(third[key]) for third in thirds) for key in counts)
    fresh = float(whole[objective.main][0]) / int(counts[objective.main])
    assert fresh == pytest.approx(np.log(tokens.vocab_size), rel=0.05), "an untrained model guesses uniformly"


def test_figures_are_in_their_units():
    """6 targets of 2 bits each over 24 bytes; the other part has no perplexity."""
    sums = {
        "clm.loss": 12 * np.log(2), "clm.correct": 3.0, "clm.count": 6.0, "bytes": 24.0,
        "nsp.loss": 1.0, "nsp.correct": 1.0, "nsp.count": 4.0,
    }  # fmt: skip
    expected = {"loss": 2 * np.log(2), "perplexity": 4.0, "bits_per_byte": 0.5, "accuracy": 0.5, "nsp_loss": 0.25, "nsp_accuracy": 0.25}
    assert Sums(sums).figures("clm") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["gpt", "elmo"])
def test_that_a_document_opens_is_not_predicted(name, tokens, train_split):
    """`[CLS]` is no text: it has no share in the loss and is not counted."""
    block = _block(name)
    objective, model = objectives.build(block.objective, tokens), store.build(block.architecture, tokens).eval()
    rows = objective.batches(train_split, 8, 24, seed=0)[0]
    with torch.no_grad():
        if name == "gpt":
            ids, targets = rows["ids"][:, :-1], rows["ids"][:, 1:]
            hidden = model(ids, *isolate(ids))
        else:
            targets = torch.cat([rows["forward"][:, 1:], rows["backward"][:, 1:]])
            hidden = torch.cat(model(rows["forward"][:, :-1], rows["backward"][:, :-1])[:2])
        each = torch.nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), targets.flatten(), reduction="none")
        [(loss, _)] = objective.losses(model, rows, None)[0].values()
    text = targets.flatten() != CLS
    assert 0 < text.sum() < len(text)
    torch.testing.assert_close(loss, each[text].sum())
    assert objective.counts(rows)[objective.main] == text.sum()


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_too_small_a_text_is_one_line(name, tokens, train_split):
    whole, documents = train_split, train_split.documents
    few = encode.Split(whole.tokens[: whole.document_tokens[3]], whole.segments[: documents[3]], documents[:4])
    with pytest.raises(SesameError, match="less than one batch of 4000"):
        objectives.build(_block(name).objective, tokens).batches(few, 4000, 24, seed=0)


def _block(name: str) -> params.Model:

    return params.check(tiny_params()).models[name]
