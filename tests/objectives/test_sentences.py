"""Skip-thoughts and quick-thoughts: what is read together, what is asked, what is trained; and how vectors of sentences are judged."""

import math

import numpy as np
import pytest
import torch
from lightning import Fabric
from torch.nn.functional import cosine_similarity, cross_entropy

from components import objectives, params
from components.core.errors import SesameError
from components.finetune import kinds, methods
from components.models import store
from components.models.decoder.config import DecoderArchitecture
from components.models.encoder.config import EncoderArchitecture
from components.models.recurrent.config import RecurrentArchitecture
from components.objectives.quick_thoughts.config import QuickThoughts
from components.objectives.skip_thoughts.config import SkipThoughts
from components.pretrain import setup
from components.pretrain.data import StepLoader
from components.tasks import Example
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, PAD, SEP
from tests.conftest import tiny_params

SIZES = {"num_layers": 1, "hidden_size": 16, "max_length": 24}
OTHER = {"num_heads": 2, "intermediate_size": 32, "dropout": 0}
FAMILIES = {
    "recurrent": RecurrentArchitecture(
        name="recurrent", cell="gru", weight_dropout=0, input_dropout=0, embedding_dropout=0, dropout=0, **SIZES
    ),
    "decoder": DecoderArchitecture(name="decoder", **SIZES, **OTHER),
    "encoder": EncoderArchitecture(name="encoder", **SIZES, **OTHER),
}


def built(tokens, family):
    torch.manual_seed(0)
    return store.build(FAMILIES[family], tokens)


def objective(kind, tokens, **settings):
    block = {"skip_thoughts": SkipThoughts, "quick_thoughts": QuickThoughts}[kind](name=kind, **settings)
    return objectives.build(block, tokens)


def text(sizes, length=3):
    """Documents of so many segments; the tokens of a segment are its number, from 10 on."""
    tokens, segments, number = [], [], 10
    for count in sizes:
        tokens.append(CLS)
        for _ in range(count):
            segments.append((len(tokens), len(tokens) + length))
            tokens += [number] * length + [SEP]
            number += 1
    bounds = np.cumsum([0, *sizes])
    return Split((Shard(np.array(tokens, np.uint16), np.array(segments), bounds),))


SIZES_OF_DOCUMENTS = [3, 1, 4, 2, 1, 3, 4]
"""16 of these 18 sentences have neighbours."""


def in_shards(sizes, length=3):
    """The documents of `text`, those after the first three in a shard of their own."""
    first, rest = text(sizes[:3], length).shards[0], text(sizes[3:], length).shards[0]
    later = np.where(rest.tokens >= 10, rest.tokens + sum(sizes[:3]), rest.tokens).astype(np.uint16)
    return Split((first, Shard(later, rest.segments, rest.documents)))


@pytest.mark.parametrize("kind", ["skip_thoughts", "quick_thoughts"])
def test_every_sentence_with_a_neighbour_is_read_once_an_epoch(kind, tokens):
    own, again = (objective(kind, tokens).batches(in_shards(SIZES_OF_DOCUMENTS), 4, 24, seed=1) for _ in range(2))
    assert own.epoch_steps() == 4
    firsts = np.cumsum([0, *SIZES_OF_DOCUMENTS]) + 10
    for epoch in range(2):
        read = []
        for step in range(4 * epoch, 4 * epoch + 4):
            rows, counts = own[step]
            read += rows["ids"][:, 1].tolist()
            assert (rows["ids"][:, 0] == CLS).all() and (rows["ids"][:, -1] == SEP).all()
            assert counts["tokens"] == own.tokens(step) == 20
            shown = [int(row["documents"]) for row in objective(kind, tokens).explain(own, step)]
            assert shown == (np.searchsorted(firsts, rows["ids"][:, 1], side="right") - 1).tolist(), "numbers in the split"
        alone = {int(firsts[i]) for i, size in enumerate(SIZES_OF_DOCUMENTS) if size == 1}
        assert sorted(read) == sorted(set(range(10, 28)) - alone)
    for step in (6, 1, 7):  # whatever came before
        for name, rows in again[step].tensors.items():
            assert torch.equal(rows, own[step].tensors[name])


def test_a_step_of_quick_thoughts_is_of_sentences_that_follow_on_each_other(tokens):
    own = objective("quick_thoughts", tokens).batches(in_shards(SIZES_OF_DOCUMENTS), 4, 24, seed=1)
    firsts = np.cumsum([0, *SIZES_OF_DOCUMENTS]) + 10
    for rows, counts in (own[step] for step in range(8)):
        numbers = rows["ids"][:, 1].tolist()
        document = np.searchsorted(firsts, numbers, side="right") - 1
        beside = [b == a + 1 and document[i] == document[i + 1] for i, (a, b) in enumerate(zip(numbers, numbers[1:], strict=False))]
        asked = [any(pair) for pair in zip([False, *beside], [*beside, False], strict=True)]
        assert beside.count(True) > 0 and counts["neighbour"] == sum(asked)
        assert counts["bytes"] == 3 * sum(int(tokens.byte_lengths[number]) for number, one in zip(numbers, asked, strict=True) if one)


def test_a_row_of_skip_thoughts_has_its_neighbours(tokens):
    own = objective("skip_thoughts", tokens).batches(in_shards(SIZES_OF_DOCUMENTS), 4, 24, seed=1)
    firsts = (np.cumsum([0, *SIZES_OF_DOCUMENTS]) + 10).tolist()
    for rows, counts in (own[step] for step in range(8)):
        numbers = rows["ids"][:, 1].tolist()
        after = [number + 1 if number + 1 not in firsts else PAD for number in numbers]
        before = [number - 1 if number not in firsts else PAD for number in numbers]
        assert rows["next"][:, 1].tolist() == after and rows["previous"][:, 1].tolist() == before
        for side, expected in (("next", after), ("previous", before)):
            assert counts[side] == 4 * sum(number != PAD for number in expected)  # three tokens and the end
            assert (rows[side][torch.tensor(expected) == PAD] == PAD).all()
        assert counts["bytes"] == 3 * sum(int(tokens.byte_lengths[number]) for number in after)


def test_sentences_of_a_length_are_written_together(tokens):
    """Of a tenth that is eight times as long as the others, padding takes next to nothing; as they come it is most of a batch."""
    rng, parts, segments, sizes = np.random.default_rng(0), [], [], []
    at = 0
    for _ in range(400):
        sizes.append(4)
        parts.append([CLS])
        at += 1
        for length in [40 if rng.random() < 0.1 else 5] * 4:
            segments.append((at, at + length))
            parts.append([20] * length + [SEP])
            at += length + 1
    split = Split((Shard(np.concatenate(parts).astype(np.uint16), np.array(segments), np.cumsum([0, *sizes])),))
    padded = {}
    for kind in ("skip_thoughts", "quick_thoughts"):
        own = objective(kind, tokens).batches(split, 16, 64, seed=1)
        drawn = [own[step] for step in range(own.epoch_steps())]
        padded[kind] = sum(batch.tensors["ids"].numel() for batch in drawn) / sum(batch.counts["tokens"] for batch in drawn)
        widths = [batch.tensors["ids"].shape[1] for batch in drawn]
        assert len(set(widths[:20])) > 1, "batches of one length don't stand together"
    assert padded["skip_thoughts"] < 1.1 < 1.5 < padded["quick_thoughts"]


@pytest.mark.parametrize("kind", ["skip_thoughts", "quick_thoughts"])
def test_long_sentences_are_read_in_pieces_and_few_are_too_few(kind, tokens):
    """No token is lost but those of a document of a single sentence, whose share is told."""
    own = objective(kind, tokens).batches(text([2, 2], length=40), 2, 24, seed=1)
    rows = [own[step].tensors["ids"] for step in range(own.epoch_steps())]
    assert all(ids.shape == (2, 22) and (ids[:, -1] == SEP).all() for ids in rows) and len(rows) == 4 and own.left_out == 0
    assert objective(kind, tokens).batches(text([2, 1]), 2, 24, seed=1).left_out == pytest.approx(1 / 3)
    with pytest.raises(
        SesameError, match="the text has 4 sentences with a neighbour in their document, less than one batch of 8; use more"
    ):
        objective("skip_thoughts", tokens).batches(text([2, 2, 1]), 8, 24, seed=1)


def test_neighbours_are_written_from_the_sentence(tokens):
    """Both sums by hand, also of shares of the rows: nothing of a row depends on another."""
    model, own = built(tokens, "recurrent").eval(), objective("skip_thoughts", tokens)
    decoders = own.networks(model)["decoders"]
    rows = own.batches(text([3, 2]), 5, 24, seed=1)[0].tensors
    losses, _ = own.losses(model, rows, None)
    halves = [own.losses(model, {name: part[share] for name, part in rows.items()}, None)[0] for share in (slice(2), slice(2, 5))]
    sides = {"next": 0.0, "previous": 0.0}
    for number in range(10, 15):
        ids = torch.tensor([[CLS, *[number] * 3, SEP]])
        thought = model.pool(model.top(ids, torch.tensor([5])), torch.tensor([5]))
        for side, other in (("next", number + 1), ("previous", number - 1)):
            if 10 <= other < 15 and {number, other} != {12, 13}:
                words = model.token_embedding(torch.tensor([[CLS, *[other] * 3]]))
                hidden, _ = decoders.grus[side](torch.cat([words, thought[:, None].expand(-1, 4, -1)], 2))
                sides[side] += float(cross_entropy(decoders.output(hidden)[0], torch.tensor([*[other] * 3, SEP]), reduction="sum"))
    for side, loss in sides.items():
        assert float(losses[side][0].detach()) == pytest.approx(loss, rel=1e-4), side
        assert float(sum(half[side][0] for half in halves).detach()) == pytest.approx(loss, rel=1e-4), side


def test_neighbours_are_told_from_the_others(tokens):
    """Vectors that are all the same say nothing: log of the others; ones that match their neighbours say all."""
    own = objective("quick_thoughts", tokens, encoders="one")
    model, rows = built(tokens, "encoder").eval(), own.batches(text([2, 2, 2, 2]), 8, 24, seed=1)[0].tensors

    def loss(vectors):
        model.pool = lambda hidden, lengths: vectors
        (total, right), _ = own.losses(model, rows, None)[0]["neighbour"], None
        return float(total) / 8, int(right)

    assert loss(torch.ones(8, 4))[0] == pytest.approx(math.log(7))
    apart = 10 * torch.eye(4).repeat_interleave(2, 0)
    assert loss(apart)[0] < 1e-6 and loss(apart)[1] == 8
    shuffled, right = loss(apart[[0, 2, 4, 6, 1, 3, 5, 7]])
    assert shuffled > 5 and right <= 4
    both = own.batches(text([3]), 3, 24, seed=1)[0].tensors  # the middle one has two neighbours, either of which is right
    model.pool = lambda hidden, lengths: torch.ones(3, 4)
    assert float(own.losses(model, both, None)[0]["neighbour"][0]) == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize("kind", ["skip_thoughts", "quick_thoughts"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_all_but_what_is_named_learns(tokens, family, kind):
    model, own = built(tokens, family), objective(kind, tokens)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    networks, untrained = own.networks(model), own.untrained(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    losses, _ = own.losses(model, own.batches(text([4, 4]), 8, 24, seed=1)[0].tensors, None)
    sum(loss for loss, _ in losses.values()).backward()
    idle = {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is None}
    assert idle == set(untrained)
    for network in networks.values():
        assert all(parameter.grad is not None for parameter in network.parameters() if parameter.requires_grad)
    if kind == "quick_thoughts":
        own_weights, other = model.token_embedding.weight.detach(), networks["candidates"].token_embedding.weight.detach()
        assert not torch.equal(own_weights, other) and other.std() == pytest.approx(float(own_weights.std()), rel=1e-4)


def test_the_nearest_sentence_of_a_sentence_is_itself(tokens, train_split):
    model = built(tokens, "recurrent").eval()
    model.token_embedding.weight.data *= 20  # what is drawn is next to nothing, and all sentences alike
    shard = train_split.shards[0]
    first = tokens.decode(shard.tokens[slice(*shard.segments[0].tolist())].tolist())
    shown = objective("skip_thoughts", tokens).samples(model, train_split, [first])
    assert shown[0]["output"].split(" | ")[0] == first


def test_rows_that_are_compared_stay_together():
    raw = tiny_params()
    raw["models"]["bert"]["objective"] = {"name": "quick_thoughts"}
    raw["models"]["bert"]["trainer"] = {"accumulate": 2}
    line = "objective quick_thoughts compares the rows of a batch: trainer.accumulate and run.devices must be 1"
    with pytest.raises(Exception, match=line):
        params.Params.model_validate(raw)
    raw["models"]["bert"] |= {"trainer": {}, "run": {"devices": "auto"}}
    with pytest.raises(Exception, match=line):
        params.Params.model_validate(raw)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "cosine", "layer": 0}, "layer 0: vector: pooled is of the last layer; take vector: mean, or leave layer out"),
        ({"method": "full", "head": "concat", "batch_size": 1}, "head concat normalises over the batch, which needs more than one example"),
    ],
)
def test_recipes_that_can_not_be(settings, message):
    with pytest.raises(Exception, match=message):
        params.Recipe(**{"learning_rate": 0.1, "epochs": 1, "batch_size": 4} | settings)


def examples():
    texts = [("a man plays", "a man sleeps", 1.0), ("two dogs run", "a cat sits", 2.0), ("a man plays", "a man plays", 5.0)]
    return [Example(str(i), a, b, label) for i, (a, b, label) in enumerate(texts)]


def probe(tokens, model, method, **settings):
    recipe = params.Recipe(method=method, learning_rate=0.1, epochs=1, batch_size=4, max_length=24, pair="apart", dropout=0, **settings)
    table = {"format": "tsv", "text_a": 0, "text_b": 1, "label": 2}
    files = {"source": {"kind": "files", "paths": ["x"]}}
    task = params.Task(licence="-", kind="regression", range=(0, 5), metrics=["pearson"], table=table, train=files, dev={"share": 0.5})
    kind = kinds.build(task, recipe)
    module = methods.build(model, tokens, recipe, kind, True)
    read = module.inputs(kind.encode(examples(), tokens), Fabric(accelerator="cpu"))
    return module, read


@pytest.mark.parametrize("vector", ["pooled", "mean"])
def test_a_text_is_its_vector(tokens, vector):
    model = built(tokens, "recurrent").eval()
    _, read = probe(tokens, model, "sentence_probe", vector=vector)
    for example, rows in zip(examples(), read.texts, strict=True):
        for written, row in zip((example.text_a, example.text_b), rows, strict=True):
            ids = torch.tensor([[CLS, *tokens.encode([written])[0], SEP]])
            lengths = torch.tensor([ids.shape[1]])
            hidden = model.top(ids, lengths)
            expected = hidden.mean(1) if vector == "mean" else model.pool(hidden, lengths)
            torch.testing.assert_close(row.float()[0], expected.detach(), rtol=0.02, atol=0.02)


def test_cosines_need_no_training(tokens):
    """Scores before any step are the cosines themselves; the same text twice has 1."""
    model = built(tokens, "recurrent").eval()
    module, read = probe(tokens, model, "cosine")
    pairs = [[row.float() for row in rows] for rows in read.texts]
    texts = [(torch.stack([pair[side] for pair in pairs]), torch.ones(3, dtype=torch.long)) for side in (0, 1)]
    made = module(texts, torch.zeros(3, 1, dtype=torch.long))[:, 0].detach()
    expected = torch.stack([cosine_similarity(a[0], b[0], 1)[0] for a, b in pairs])
    torch.testing.assert_close(made, expected)
    assert made[2] == pytest.approx(1, abs=1e-5)
    recipe = params.Recipe(method="cosine", learning_rate=0.1, epochs=1, batch_size=4)
    task = params.Params.model_validate(tiny_params()).tasks
    one = next(own for own in task.values() if own.kind == "classification")
    with pytest.raises(SesameError, match="method cosine compares two texts encoded apart"):
        methods.build(model, tokens, recipe, kinds.build(one, recipe), False)


@pytest.mark.parametrize(("kind", "model"), [("skip_thoughts", "bert"), ("quick_thoughts", "bert"), ("mlm", "bert"), ("clm", "gpt")])
def test_flops_are_counted_on_batches_as_they_are_padded(kind, model, project, monkeypatch):
    """On eight rows sentences are padded to the longest of eight; where rows are of one length, eight tell as much as all."""
    raw = tiny_params(studies={})
    raw["models"][model] |= {"objective": {"name": kind}, "batch_size": 32, "prompts": []}
    counted = []
    monkeypatch.setattr(setup, "training_flops", lambda _, objective, rows, *__: counted.append(len(rows["ids"])) or 1)
    batches = setup.set_up(params.check(raw).models[model], None).train.phases[0].batches
    assert set(counted) == {8 if kind in ("mlm", "clm") else 32}
    if kind == "clm":
        assert len(counted) == 1, "all rows have as many tokens: a second batch costs time and tells nothing"
    else:
        read = [batches.tokens(step) for step in batches.representative_steps(setup.FLOPS_TOKENS)]
        assert len(counted) > 1 and sum(read[:-1]) < setup.FLOPS_TOKENS <= sum(read), "one may have long sentences, or the first"


@pytest.mark.parametrize("kind", ["skip_thoughts", "quick_thoughts"])
def test_killed_and_resumed_reads_on(kind, project):
    """The steps that a resumed training reads are those of one that nothing stopped; a batch of sentences that are not compared is cut."""
    raw = tiny_params(studies={})
    raw["models"]["bert"] |= {"objective": {"name": kind}, "batch_size": 8, "prompts": []}
    raw["models"]["bert"]["trainer"] |= {"accumulate": 2} if kind == "skip_thoughts" else {}
    block = params.check(raw).models["bert"]
    one, other = (setup.set_up(block, None).train for _ in range(2))
    last = 2 * one.phases[0].batches.epoch_steps()
    whole = list(StepLoader(one, 0, last, 2, slice(0, 2), 0, pinned=False))
    resumed = list(StepLoader(other, last - 3, last, 2, slice(0, 2), 0, pinned=False))
    for (rows, counts), (again, counted) in zip(whole[-3:], resumed, strict=True):
        assert counts == counted
        for part, same in zip(rows, again, strict=True):
            assert all(torch.equal(part[name], same[name]) for name in part)
