"""What is masked, paired, packed and streamed; that a batch depends on (seed, step) only."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from components import objectives, params
from components.core.errors import SesameError
from components.core.keyed import generator, uniform
from components.models import store
from components.models.bilm.config import BiLMArchitecture
from components.models.decoder.config import DecoderArchitecture
from components.objectives import sampling, scoring
from components.objectives.bilm.batches import BidirectionalBatches
from components.objectives.bilm.objective import pack, unpack
from components.objectives.clm.objective import PackedBatches
from components.objectives.denoising.batches import DenoisingBatches
from components.objectives.denoising.config import Denoising
from components.objectives.examples import batches as batches_module
from components.objectives.examples.masked import MaskedBatches, scatter_targets
from components.objectives.examples.rows import isolate
from components.objectives.examples.segments import match_partners, segment_pairs
from components.objectives.examples.shuffled_text import ShuffledText
from components.objectives.fillings import likeliest_fillings
from components.objectives.mlm.config import MaskedLM
from components.objectives.mlm.control import accuracy_from_b_alone
from components.objectives.noise.tokens import mask, random_subsets
from components.objectives.scoring import IGNORED, LossTotals, score
from components.pretrain.batch import batch
from components.pretrain.data import StepLoader
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS
from tests.conftest import tiny_params

CONFIG = MaskedLM(name="mlm")


def test_keyed_numbers_are_uniform_and_independent_of_shape():
    values = uniform(1, 2, np.arange(200_000))
    assert abs(values.mean() - 0.5) < 0.005 and abs(np.histogram(values, 10, (0, 1))[0] / 200_000 - 0.1).max() < 0.004
    assert np.array_equal(uniform(1, 2, np.arange(5, 9)), values[5:9])
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
    assert not np.array_equal(uniform(1, 3, np.arange(10)), values[:10])


def test_each_draw_is_of_its_own_numbers():
    """numpy takes a key for the same where zeros follow; and what is drawn in an epoch is not what orders its first shard."""
    drawn = [generator(*key).integers(2**60) for key in ((1,), (1, 0), (1, 0, 0), (1, 0, 0, 0), (1, 0, 1), (2**40, 0), (2**40, 0, 0))]
    assert len(set(drawn)) == len(drawn)
    assert generator(1, 0).integers(2**60) == drawn[1]


def test_the_order_of_shards_says_nothing_of_that_of_documents():
    """Eight shards of eight documents: those of the first shard don't stand in the order of the shards."""
    stream = ShuffledText(cut(with_marks(64, 0), 8), seed=3)
    for epoch in range(8):
        stream.read(epoch, 0, 1)
        assert sorted(stream.shards) == list(range(8)), "each once; else there is no reading to the end"
        stream.read(epoch, 0, stream.size)
        place = int(np.flatnonzero(stream.shards == 0)[0])
        assert not np.array_equal(stream.shards, stream.orders[place].documents)


def words(rows: int, length: int, vocab: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ordinary tokens of rows that are up to `length` long, one after another; how many each has; and the row of each token."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, length + 1, rows)
    return rng.integers(len(SPECIALS), vocab, sizes.sum()), sizes, np.repeat(np.arange(rows), sizes)


ORDINARY = np.arange(len(SPECIALS), 500)


def test_masker_shares():
    """15 % of the ordinary tokens are targets; of these 80 % [MASK], 10 % another ordinary token, 10 % unchanged."""
    tokens, sizes, row = words(4000, 60)
    seen, targets = mask(tokens, sizes, CONFIG, ORDINARY, (1, 0), np.arange(len(sizes)))
    assert np.array_equal(np.bincount(row[targets], minlength=len(sizes)), np.maximum(1, np.round(0.15 * sizes)))
    assert len(np.unique(targets)) == len(targets) and np.array_equal(np.delete(seen, targets), np.delete(tokens, targets))
    changed, own = seen[targets], tokens[targets]
    assert (changed == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (changed == own).mean() == pytest.approx(0.1, abs=0.01)
    random = changed[(changed != MASK) & (changed != own)]
    assert (random >= len(SPECIALS)).all() and len(np.unique(random)) > 0.8 * len(ORDINARY)


def test_all_subsets_are_alike():
    """Of 6 numbers 3: 20 subsets, each as often as another; and no place is favoured in a longer row."""
    rows = 40_000
    chosen = np.sort(random_subsets(np.full(rows, 6), np.full(rows, 3), uniform(1, np.arange(rows), np.arange(3)[:, None])), axis=0)
    found, counts = np.unique(chosen, axis=1, return_counts=True)
    assert found.shape == (3, 20) and (np.diff(found, axis=0) > 0).all() and stats.chisquare(counts).pvalue > 0.001
    chosen = random_subsets(np.full(rows, 60), np.full(rows, 9), uniform(2, np.arange(rows), np.arange(9)[:, None]))
    assert stats.chisquare(np.bincount(chosen.ravel(), minlength=60)).pvalue > 0.001
    assert random_subsets(np.array([2, 5]), np.array([1, 2]), np.full((2, 2), 0.99)).tolist() == [[1, 3], [-1, 4]]


def test_mask_depends_on_seed_epoch_and_example_only():
    tokens, sizes, row = words(8, 20)
    examples = np.arange(8) + 30
    together, targets = mask(tokens, sizes, CONFIG, ORDINARY, (1, 0), examples)
    alone = [mask(tokens[row == i], sizes[i : i + 1], CONFIG, ORDINARY, (1, 0), examples[i : i + 1])[0] for i in range(8)]
    assert np.array_equal(together, np.concatenate(alone))
    assert not np.array_equal(together, mask(tokens, sizes, CONFIG, ORDINARY, (1, 1), examples)[0])


def test_whole_words_are_masked_whole():
    """No word is masked in part, never more than the share unless a single word is, little less, and no place more often than another."""
    tokens, sizes, row = words(9000, 60)
    opens = (tokens % 3 == 0) | np.append(True, row[1:] != row[:-1])
    config = CONFIG.model_copy(update={"whole_word": True})
    _, targets = mask(tokens, sizes, config, ORDINARY, (1, 0), np.arange(len(sizes)), opens)
    target, word = np.isin(np.arange(len(tokens)), targets), np.cumsum(opens) - 1
    taken = np.bincount(word, target) / np.bincount(word)
    assert set(taken) == {0, 1}
    asked, words_ = np.bincount(row, target), np.bincount(row[opens], taken)
    limit = np.maximum(1, np.round(0.15 * sizes))
    assert ((asked <= limit) | (words_ == 1)).all() and (asked > 0).all()
    long = sizes >= 40
    assert asked[long].sum() == pytest.approx(limit[long].sum(), rel=0.02) and asked[long].sum() > 0.145 * sizes[long].sum()
    places = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    inner = long[row] & (places >= 6) & (places < 34)
    shares = np.bincount(places[inner], target[inner])[6:] / np.bincount(places[inner])[6:]
    assert shares.std() < 0.015, "no favoured place"


@pytest.mark.parametrize("seed", range(5))
def test_tokens_of_a_step_are_those_of_its_batch_in_every_epoch(tokens, train_split, seed):
    """A budget in tokens asks for them before any batch is made, past the ends of epochs, and a resumed run in between."""
    config = CONFIG.model_copy(update={"next_sentence": True})
    counting = objectives.build(config, tokens).batches(train_split, 4, 32, seed)
    reading = objectives.build(config, tokens).batches(train_split, 4, 32, seed)
    counted = [counting.tokens(step) for step in range(3 * counting.epoch_steps() + 2)]
    assert counted == [int(reading[step].tensors["lengths"].sum()) for step in range(len(counted))]
    assert counting.tokens(0) == counted[0], "back from the third epoch"


@pytest.mark.parametrize("next_sentence", [True, False])
def test_static_masks_are_those_of_the_first_epoch(tokens, train_split, next_sentence):
    def epoch(config, number):
        batches = objectives.build(config, tokens).batches(train_split, 4, 32, seed=1)
        steps = batches.epoch_steps()
        found = [batches[number * steps + i].tensors["ids"] for i in range(steps)]
        return {tuple(row) for ids in found for row in torch.nn.functional.pad(ids, (0, 32 - ids.shape[1])).tolist()}

    config = CONFIG.model_copy(update={"next_sentence": next_sentence, "static": True})
    one, two = epoch(config, 0), epoch(config, 1)
    assert len(one & two) > 0.9 * len(one), "the same examples and masks in another order; a few fall out of the last batch"
    other = epoch(config.model_copy(update={"static": False}), 1)
    assert len(one & other) < 0.5 * len(one)


def test_next_sentence_pairs(train_split):
    shard = train_split.shards[0]
    everything = np.concatenate([segment_pairs(shard, 24, np.random.default_rng(seed)) for seed in range(4)])
    alone = everything[:, 4] == IGNORED
    assert (everything[alone, 2] == everything[alone, 3]).all(), "a segment left alone has no B and asks nothing"
    found = everything[~alone]
    starts = shard.document_tokens
    document = np.searchsorted(starts, found[:, [0, 2]], side="right")
    random = found[:, 4] == 1
    assert (document[random, 0] != document[random, 1]).all(), "a random segment comes from another document"
    assert (document[~random, 0] == document[~random, 1]).all()
    between = (found[:, 2] - found[:, 1])[~random]
    assert set(between.tolist()) == {0, 1}, "B follows A, behind a [SEP] or in the same segment where that is read in pieces"
    ordinary = np.append(0, np.cumsum(shard.tokens > SEP))
    sizes = np.diff(ordinary[found[:, :4]])[:, ::2].sum(1)
    assert (sizes <= 21).all() and (found[:, 1] > found[:, 0]).all() and (found[:, 3] > found[:, 2]).all()
    assert random.mean() == pytest.approx(0.5, abs=0.08)
    opens = np.isin(found[:, 0], starts + 1)  # neither answer is given away by where A stands
    assert random[opens].mean() == pytest.approx(0.5, abs=0.1) and random[~opens].mean() == pytest.approx(0.5, abs=0.1)
    opened = set(everything[:, 0].tolist()) | set(found[~random, 2].tolist())
    firsts = shard.segments[:, 0]
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
    return Split((Shard(np.array(tokens), np.array(segments), np.array(firsts)),))


def test_the_second_segment_alone_tells_nothing_of_the_answer(tokens):
    """Drawn from anywhere, a random B opens its document in a third of the pairs and a true one never: right in two of three."""
    train, valid = (MaskedBatches(CONFIG, tokens, with_marks(documents, seed), 8, 40, 1) for seed, documents in enumerate((3000, 1500)))
    assert accuracy_from_b_alone(train, valid) == pytest.approx(0.5, abs=0.035), "three standard errors of some 1,900 answers"
    asked = train.examples[train.examples[:, 4] != IGNORED]
    opens = train.shard.segments[train.shard.documents[:-1], 0]
    assert not np.isin(asked[:, 2], opens).any() and np.isin(asked[:, 0], opens).mean() > 0.3
    random, sizes = asked[:, 4] == 1, asked[:, 3] - asked[:, 2]
    assert stats.ks_2samp(sizes[random], sizes[~random]).pvalue > 0.01, "nor does its length"
    both = sizes + asked[:, 1] - asked[:, 0]
    assert stats.ks_2samp(both[random], both[~random]).pvalue > 0.01, "nor that of both"

    peek = MaskedBatches(CONFIG, tokens, with_marks(3000, 0), 8, 40, 1)
    told = peek.examples[:, 4] == 1
    peek.examples[told, 2] = np.random.default_rng(0).choice(opens, told.sum())  # what the figure is for
    peek.examples[told, 3] = peek.examples[told, 2] + 4
    assert accuracy_from_b_alone(peek, peek) > 0.95


def test_segments_are_exchanged_between_documents_and_by_length():
    rng = np.random.default_rng(0)
    rows, sizes = np.arange(400), rng.integers(1, 90, 400)
    documents = np.where(rows < 300, 0, rows)  # one is longer than all others together
    others = match_partners(rows, sizes, documents, rng)
    assert (documents != documents[others]).all() and np.abs(sizes - sizes[others]).max() < 12
    assert len(match_partners(np.array([1, 301]), sizes, documents, rng)) == 2
    with pytest.raises(SesameError, match="two documents of more than one segment"):
        match_partners(np.array([0, 1]), np.array([3, 4]), np.array([0, 0]), rng)


def test_masked_batch_layout(tokens, train_split):
    batches = MaskedBatches(CONFIG, tokens, train_split, 8, 24, seed=1)
    for step in (0, batches.epoch_steps() + 3):
        batch, counts = batches[step]
        original = batch["ids"].clone()
        for row, (places, labels) in enumerate(zip(batch["positions"], batch["labels"], strict=True)):
            real = labels != IGNORED
            assert len(places[real].unique()) == real.sum() > 0
            original[row, places[real]] = labels[real]
        assert counts["mlm"] == (batch["labels"] != IGNORED).sum() and counts["tokens"] == batch["lengths"].sum()
        assert counts["bytes"] == sum(tokens.byte_lengths[i] for i in batch["labels"].flatten().tolist() if i != IGNORED)
        for row, length in enumerate(batch["lengths"].tolist()):
            ids, segments = original[row], batch["segment_ids"][row]
            seps = (ids == SEP).nonzero().flatten().tolist()
            assert ids[0] == CLS and seps[-1] == length - 1 and (ids[length:] == PAD).all()
            assert len(seps) == (1 if batch["answers"][row] == IGNORED else 2)
            assert (segments[: seps[0] + 1] == 0).all() and (segments[seps[0] + 1 : length] == 1).all() and (segments[length:] == 0).all()
        assert batches.tokens(step) == batch["lengths"].sum()


@pytest.mark.parametrize("max_length", [64, 61])
def test_batches_have_few_widths_and_none_beyond_what_a_model_reads(max_length):
    """A CPU compiles its bf16 products for each shape: of a text of all lengths there were as many shapes as batches."""
    text = of_lengths([[int(length)] for length in np.random.default_rng(0).integers(3, 90, 2000)])
    vocabulary = SimpleNamespace(vocab_size=200_000, pieces=[b"a"] * 200_000, byte_lengths=np.ones(200_000, int))
    read = MaskedBatches(MaskedLM(name="mlm", next_sentence=False), vocabulary, text, 8, max_length, seed=1)
    drawn = [read[step].tensors for step in range(read.epoch_steps())]
    rows = {batch["ids"].shape[1] for batch in drawn}
    targets = {batch["positions"].shape[1] for batch in drawn}
    assert rows == {8, 16, 24, 32, 40, 48, 56, max_length} and targets <= {4, 8, 12, 16}
    with batches_module.exact_widths():
        exact = MaskedBatches(read.config, vocabulary, text, 8, max_length, seed=1)[0].tensors
    assert exact["ids"].shape[1] == int(exact["lengths"].max()) and torch.equal(exact["ids"], drawn[0]["ids"][:, : exact["ids"].shape[1]])
    longest = {int(batch["lengths"].max()) for batch in drawn}
    assert len(longest) > 40, "the text has rows of all lengths"


def of_lengths(lengths: list[list[int]]) -> Split:
    """A document a list, a segment of so many tokens each; no two tokens of the text are the same."""
    tokens, segments, firsts = [], [], [0]
    for document in lengths:
        tokens.append(CLS)
        for length in document:
            segments.append((len(tokens), len(tokens) + length))
            tokens += [*range(100 + len(tokens), 100 + len(tokens) + length), SEP]
        firsts.append(len(segments))
    return Split((Shard(np.array(tokens), np.array(segments), np.array(firsts)),))


@pytest.mark.parametrize("inputs", [None, "segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"])
@pytest.mark.parametrize("question", ["nsp", "sop", None])
def test_every_token_is_in_a_row_of_an_epoch(inputs, question):
    """Also of segments that are longer than a row, as articles of one line each."""
    if inputs and (question is None) == inputs.endswith("pairs"):
        return
    rng = np.random.default_rng(0)
    text = of_lengths([[int(size) for size in rng.geometric(0.03, rng.integers(1, 5))] for _ in range(60)] + [[700], [900, 1, 40]])
    vocabulary = SimpleNamespace(vocab_size=20_000, pieces=[b"a"] * 20_000, byte_lengths=np.ones(20_000, int))
    config = MaskedLM(name="mlm", inputs=inputs, next_sentence=question == "nsp", sentence_order=question == "sop")
    batches = MaskedBatches(config, vocabulary, text, 1, 32, seed=1)
    for epoch in range(2):
        read, first = set(), epoch * batches.epoch_steps()
        batches.tokens(first)  # has the epoch loaded
        for step in range(first, first + len(batches.order)):
            rows, _ = batches[step]
            read |= set(scatter_targets(rows["ids"], rows["positions"], rows["labels"], rows["labels"]).flatten().tolist())
            assert rows["ids"].shape[1] <= 32
        whole = set(text.shards[0].tokens.tolist()) - {CLS, SEP}
        assert whole <= read, f"{len(whole - read)} of {len(whole)} tokens are in no row"
    assert batches.left_out == 0


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_what_a_step_reads_is_shown_with_its_documents(name, project, tokens, train_split):
    """The text of a row stands in the documents that it is said to be of; a masked LM's targets are marked."""
    with pytest.raises(SesameError, match=f"step 13: the pre-training of {name} has 12"):
        batch(params.check(tiny_params()), name, 13)
    rows = batch(params.check(tiny_params()), name, 3)
    assert rows == batch(params.check(tiny_params()), name, 3) != batch(params.check(tiny_params()), name, 4) and len(rows) == 8
    for row in rows:
        text = re.sub(r"\[([^]]*) → [^]]*\]", r"\1", row["text"]).replace("¶", "")
        shard, own = train_split.shards[0], list(map(int, row["documents"].split()))
        bounds = shard.document_tokens
        source = "".join(tokens.stream(shard.tokens[bounds[i] : bounds[i + 1]].tolist()) for i in own)
        assert all(re.sub(r"\W", "", segment) in re.sub(r"\W", "", source) for segment in text.split("|") if name == "bert"), (row, source)
        assert re.sub(r"\W", "", text.split("|")[0])[:20] in re.sub(r"\W", "", source), (row, source)
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
    late = one[far].tensors
    for step in (0, 1, far - 1):
        other[step]
    assert all(torch.equal(late[key], value) for key, value in other[far].tensors.items())
    third = objective.batches(train_split, 8, 24, seed=6)[far].tensors
    assert any(not torch.equal(late[key], third[key]) for key in late if late[key].shape == third[key].shape) or len(late) == 0


def cut(text: Split, parts: int) -> Split:
    """The same text in several shards."""
    [whole] = text.shards
    bounds, shards = whole.document_tokens, []
    for documents in np.array_split(np.arange(len(whole)), parts):
        first, last = documents[0], documents[-1] + 1
        own = slice(whole.documents[first], whole.documents[last])
        segments, openings = whole.segments[own] - bounds[first], whole.documents[first : last + 1] - whole.documents[first]
        shards.append(Shard(whole.tokens[bounds[first] : bounds[last]], segments, openings))
    return Split(tuple(shards))


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_a_text_in_shards_is_read_whole_and_shuffled_within_them(name, tokens, train_split):
    text, objective = cut(train_split, 3), objectives.build(_block(name).objective, tokens)
    assert len(text) == len(train_split) and text.num_tokens == train_split.num_tokens
    batches, whole = (objective.batches(own, 4, 24, seed=2) for own in (text, train_split))
    assert batches.epoch_steps() == pytest.approx(whole.epoch_steps(), rel=0.1)
    steps, shards = range(2 * batches.epoch_steps()), []
    for step in steps:
        shown = objective.explain(batches, step)
        if name == "bert":
            assert batches.tokens(step) == batches[step].counts["tokens"]
            shards.append({int(np.searchsorted(text.first_documents, int(i), "right")) for row in shown for i in row["documents"].split()})
    read = [set("".join(row["documents"] + " " for step in part for row in objective.explain(batches, step)).split()) for part in (
        steps[: len(steps) // 2], steps[len(steps) // 2 :])]  # fmt: skip
    assert all(len(own) > 0.9 * len(text) for own in read), "nearly every document is met in every epoch"
    if name == "bert":
        assert all(len(own) == 1 for own in shards), "a step is of one shard"
        assert len([a for a, b in zip(shards, shards[1:], strict=False) if a != b]) in (4, 5, 6), (
            "one after another in two epochs, of which the second may be shorter"
        )
    again = objective.batches(text, 4, 24, seed=2)
    for step in (steps[-1], 0):
        assert all(torch.equal(value, batches[step].tensors[key]) for key, value in again[step].tensors.items())


def joined(*texts: Split) -> Split:
    return Split(tuple(shard for text in texts for shard in text.shards))


def test_a_shard_that_is_one_document_asks_nothing(tokens):
    """And a segment that makes no token is no example; what B alone tells is asked of the first shard, wherever the reading stands."""
    one = Split((Shard(np.array([CLS, 9, 10, SEP, SEP, 11, 12, SEP]), np.array([[1, 3], [4, 4], [5, 7]]), np.array([0, 3])),))
    text = joined(with_marks(60, 0), one)
    batches = MaskedBatches(CONFIG, tokens, text, 1, 40, 1)
    shown = [batches[step].counts for step in range(batches.epoch_steps())]
    assert all(counts["mlm"] > 0 for counts in shown) and {counts["nsp"] for counts in shown} == {0, 1}
    first = generator(1, 0).permutation(2)[0]
    assert batches.index != first
    batches.restart()
    assert batches.index == first
    with pytest.raises(SesameError, match="at least two documents"):
        MaskedBatches(CONFIG, tokens, one, 1, 40, 1)
    spans_ = MaskedBatches(CONFIG.model_copy(update={"next_sentence": False, "whole_word": True}), tokens, one, 1, 3, 1)
    assert spans_.epoch_steps() == 4, "windows of one piece, without the one of a bare [SEP]"


def test_a_stream_holds_every_document_once_an_epoch(train_split):
    stream = ShuffledText(cut(train_split, 3), seed=4)
    [whole] = train_split.shards
    bounds = whole.document_tokens
    documents = sorted(whole.tokens[a:b].tolist() for a, b in zip(bounds, bounds[1:], strict=False))
    for epoch in (0, 1):
        text = stream.read(epoch, 0, stream.size)
        opens = np.flatnonzero(text == CLS)
        assert sorted(part.tolist() for part in np.split(text, opens[1:])) == documents
        parts = [stream.read(epoch, a, min(a + 37, stream.size)) for a in range(0, stream.size, 37)]
        assert np.array_equal(np.concatenate(parts), text)
    assert not np.array_equal(stream.read(0, 0, 500), stream.read(1, 0, 500))


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
@pytest.mark.parametrize("workers", [0, 3])
def test_steps_come_in_order_from_any_number_of_workers(name, workers, tokens, train_split, monkeypatch):
    monkeypatch.setattr(batches_module, "CHUNK_TOKENS", 500)
    batches = objectives.build(_block(name).objective, tokens).batches(cut(train_split, 2), 4, 24, seed=2)
    first, last = 3, batches.epoch_steps() + 5
    read = list(StepLoader(batches, first, last, 2, slice(1, 2), workers, pinned=False))
    assert len(read) == last - first
    for step, ([rows], counts) in enumerate(read, first):
        expected = batches[step]
        assert counts == expected.counts and all(torch.equal(value, expected.tensors[key][2:]) for key, value in rows.items())


def test_packed_rows_hold_every_token_once_an_epoch(tokens, train_split):
    everything = train_split.shards[0].tokens
    for size in (4, 1):
        batches = PackedBatches(tokens, train_split, size, 16, seed=0)
        epoch = torch.cat([batches[step].tensors["ids"][:, 1:].flatten() for step in range(batches.epoch_steps())])
        met, there = (np.bincount(own, minlength=400)[1:] for own in (epoch, everything))
        left = there.sum() - met.sum() - 1
        assert (met <= there).all() and 0 <= left < size * 16, "but for the first token, and what fills no batch"
        assert epoch.count_nonzero() == sum(batches.tokens(step) for step in range(batches.epoch_steps()))
    rows = torch.cat([batches[step].tensors["ids"] for step in range(batches.epoch_steps())])
    rows = rows[np.argsort(batches.starts(0, batches.epoch_steps())[1])]
    assert torch.equal(rows[:-1, -1], rows[1:, 0]), "the last token of a row is predicted, then opens the next row of the text"


@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_a_batch_is_not_of_one_long_document(name, tokens):
    """Of four novels each batch has rows of all, and each epoch another order; rows that follow in the text made batches of one."""
    novels = np.concatenate([[CLS, *np.full(1998, 20 + novel), SEP] for novel in range(4)])
    bounds = np.arange(0, 8001, 2000)
    text = Split((Shard(novels, np.stack([bounds[:-1] + 1, bounds[1:] - 1], 1), np.arange(5)),))
    if name == "gpt":
        batches = PackedBatches(tokens, text, 16, 20, seed=1)
    else:
        batches = DenoisingBatches(Denoising(name="denoising", noise={"kind": "prefix"}), tokens, text, 16, 20, seed=1)
    of_each = [len(set(" ".join(batches.documents(step)).split())) for step in range(batches.epoch_steps())]
    assert np.mean([documents == 4 for documents in of_each]) > 0.9
    assert batches.documents(0) != batches.documents(batches.epoch_steps())


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


def test_lanes_continue_and_run_backwards(tokens, train_split):
    batches = BidirectionalBatches(tokens, train_split, 4, 8, seed=0)
    first, second = batches[0].tensors, batches[1].tensors
    assert torch.equal(first["forward"][:, -1], second["forward"][:, 0]) and torch.equal(first["backward"][:, -1], second["backward"][:, 0])
    size = batches.text.size
    text = batches.text.read(0, 0, size)
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
    rows, counts = objective.batches(train_split, 8, 24, seed=0)[0]
    with torch.no_grad():
        whole, _ = objective.losses(model, rows, None)
        parts = [objective.losses(model, {key: value[i::3] for key, value in rows.items()}, None)[0] for i in range(3)]
    for part, (loss, correct) in whole.items():
        torch.testing.assert_close(sum(p[part][0] for p in parts), loss, rtol=1e-5, atol=1e-4)
        assert sum(int(p[part][1]) for p in parts) == int(correct)
    fresh = float(whole[objective.main][0]) / int(counts[objective.main])
    assert fresh == pytest.approx(np.log(tokens.vocab_size), rel=0.05), "an untrained model guesses uniformly"


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_losses_made_a_piece_at_a_time_are_the_whole(name, tokens, monkeypatch):
    block = _block(name)
    model = store.build(block.architecture, tokens).eval()
    width = block.architecture.projection_size if name == "elmo" else model.width
    hidden, wanted = torch.randn(301, width, requires_grad=True), torch.randint(-1, tokens.vocab_size, (301,))
    wanted[wanted < 0] = IGNORED
    loss, right = score(model.logits(hidden), wanted, False)
    [whole] = torch.autograd.grad(loss, hidden)
    monkeypatch.setattr(scoring, "CPU_TARGETS", 64)
    pieces, right_of_pieces = scoring.score_tokens(model, hidden, wanted)
    torch.testing.assert_close(pieces, loss)
    torch.testing.assert_close(torch.autograd.grad(pieces, hidden)[0], whole)
    assert int(right) == int(right_of_pieces)


def test_figures_are_in_their_units():
    """6 targets of 2 bits each over 24 bytes; the other part has no perplexity."""
    sums = {
        "clm.loss": 12 * np.log(2), "clm.correct": 3.0, "clm.count": 6.0, "bytes": 24.0,
        "nsp.loss": 1.0, "nsp.correct": 1.0, "nsp.count": 4.0,
    }  # fmt: skip
    expected = {"loss": 2 * np.log(2), "perplexity": 4.0, "bits_per_byte": 0.5, "accuracy": 0.5, "nsp_loss": 0.25, "nsp_accuracy": 0.25}
    assert LossTotals(sums).metrics("clm") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["gpt", "elmo"])
def test_that_a_document_opens_is_not_predicted(name, tokens, train_split):
    """`[CLS]` ahead, and back the `[SEP]` that always follows on it, have no share in the loss and are not counted."""
    block = _block(name)
    objective, model = objectives.build(block.objective, tokens), store.build(block.architecture, tokens).eval()
    batches = objective.batches(train_split, 8, 24, seed=0)
    rows, counts = next(batch for batch in map(batches.__getitem__, range(20)) if (batch.tensors[min(batch.tensors)][:, 1:-1] == CLS).any())
    with torch.no_grad():
        if name == "gpt":
            ids, targets = rows["ids"][:, :-1], rows["ids"][:, 1:]
            hidden, opens = model(ids, *isolate(ids)), targets == CLS
        else:
            opens = torch.cat([rows["forward"][:, 1:] == CLS, rows["backward"][:, :-1] == CLS])
            targets = torch.cat([rows["forward"][:, 1:], rows["backward"][:, 1:]])
            hidden = torch.cat(model(rows["forward"][:, :-1], rows["backward"][:, :-1])[:2])
        each = torch.nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), targets.flatten(), reduction="none")
        [(loss, _)] = objective.losses(model, rows, None)[0].values()
    text = ~opens.flatten()
    assert 0 < text.sum() < len(text)
    torch.testing.assert_close(loss, each[text].sum())
    assert counts[objective.main] == text.sum() and counts["bytes"] == tokens.byte_lengths[targets.flatten()[text]].sum()


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_too_small_a_text_is_one_line(name, tokens, train_split):
    [whole] = train_split.shards
    few = Split((Shard(whole.tokens[: whole.document_tokens[3]], whole.segments[: whole.documents[3]], whole.documents[:4]),))
    with pytest.raises(SesameError, match="less than one batch of 4000"):
        objectives.build(_block(name).objective, tokens).batches(few, 4000, 24, seed=0)


def _block(name: str) -> params.Model:

    return params.check(tiny_params()).models[name]


def test_samples_of_a_vocabulary_with_fewer_tokens_than_are_chosen_among():
    """As of DNA."""
    size = len(SPECIALS) + 4
    written = sampling.generate(lambda _: torch.zeros(size), (), 20, torch.Generator().manual_seed(0))
    assert set(written) <= set(range(len(SPECIALS), size)) and len(set(written)) > 1
    tokens = SimpleNamespace(pieces=[b""] * len(SPECIALS) + [b"a", b"c", b"g", b"t"])
    assert likeliest_fillings(tokens, torch.arange(2.0 * size).view(2, size)) == "t, g, c, a | t, g, c, a"
