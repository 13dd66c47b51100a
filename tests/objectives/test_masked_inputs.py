"""What stands in a row, and which of it is hidden: spans, RoBERTa's ladder of inputs, sentence order; ALBERT's and ELECTRA's losses."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AlbertConfig, AlbertForPreTraining, ElectraConfig, ElectraForPreTraining

from components import objectives, params
from components.core.errors import SesameError
from components.models import store
from components.models.encoder.config import EncoderArchitecture
from components.models.encoder.hub import ALBERT, ELECTRA
from components.objectives.electra.config import ReplacedTokens
from components.objectives.electra.objective import sample_tokens
from components.objectives.examples.masked import MaskedBatches, scatter_targets
from components.objectives.mlm.config import MaskedLM
from components.objectives.noise.spans import mask_spans
from components.objectives.scoring import IGNORED
from components.text import encode, tokenizer
from components.text.encode.splits import with_specials
from components.text.tokenizer import CLS, MASK, SEP, SPECIALS
from components.text.tokenizer import __main__ as tokenizer_stage
from tests.conftest import tiny_params

PLAIN = MaskedLM(name="mlm", next_sentence=False)
SPANS = MaskedLM(name="mlm", next_sentence=False, span_probability=0.2)
ORDINARY = np.arange(len(SPECIALS), 500)


def rows_of_words(rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of rows up to `length` long, their sizes, and where words of one to three tokens begin."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, length + 1, rows)
    opens = rng.random(sizes.sum()) < 0.6
    opens[np.cumsum(sizes) - sizes] = True
    return rng.integers(len(SPECIALS), 500, sizes.sum()), sizes, opens


def first_of_rows(sizes: np.ndarray) -> np.ndarray:
    """Where a row begins, of all tokens."""
    return np.isin(np.arange(sizes.sum()), np.cumsum(sizes) - sizes)


@pytest.mark.parametrize("changes", [{"pairs": True}, {"inputs": "full_sentences"}])
def test_no_span_goes_over_a_separator(tokens, train_split, changes):
    """Neither from A into B nor from a document into the next: what is outside would be that [SEP] on one side alone."""
    batches, inside = batches_of(SPANS.model_copy(update={"mlm_probability": 0.5, **changes}), tokens, train_split, 64), 0
    for step in range(batches.epoch_steps()):
        rows, _ = batches[step]
        for ids, left, right, labels in zip(*(rows[name].tolist() for name in ("ids", "left", "right", "labels")), strict=True):
            for first, last in {(a, b) for a, b, label in zip(left, right, labels, strict=True) if label != IGNORED}:
                assert SEP not in ids[first + 1 : last] and CLS not in ids[first + 1 : last]
                inside += last - first > 2
    assert inside > 50


@pytest.mark.parametrize("changes", [{"whole_word": True}, {"span_probability": 0.2}])
def test_chinese_is_masked_by_tokens_and_not_by_sentences(tmp_path, changes):
    """There are no blanks, so a sentence was one word, and a third of the rows was masked whole."""
    rng = np.random.default_rng(0)
    documents = [["".join(map(chr, rng.integers(0x4E00, 0x4E80, rng.integers(10, 30)))) + "。" for _ in range(2)] for _ in range(200)]
    sentences = [sentence for document in documents for sentence in document]
    tokenizer_stage._fit(params.Tokenizer(corpus="c", kind="bpe", vocab_size=400), iter(sentences), tmp_path, "chinese")
    own = tokenizer.load(tmp_path)
    flat, segments = with_specials(own.encode(sentences), np.full(200, 2), "uint16")
    text = encode.Split((encode.Shard(flat, segments, np.arange(0, 401, 2)),))
    batches = batches_of(PLAIN.model_copy(update=changes), own, text, 64)
    rows = [batches[step].tensors for step in range(batches.epoch_steps())]
    masked = torch.cat([(row["labels"] != IGNORED).sum(1) for row in rows])
    size = torch.cat([row["lengths"] for row in rows]) - 2
    assert (masked / size).max() < 0.5 and 0.12 < masked.sum() / size.sum() < 0.18


def test_doc_sentences_stay_in_their_document(tokens, train_split):
    """Whole segments as they fit, none of two documents in a row."""
    batches = batches_of(PLAIN.model_copy(update={"inputs": "doc_sentences"}), tokens, train_split)
    [shard] = train_split.shards
    firsts, ends = shard.segments.T
    assert np.isin(batches.examples[:, 0], firsts).all() and np.isin(batches.examples[:, 1], ends).mean() > 0.95
    documents = np.searchsorted(shard.document_tokens, [batches.examples[:, 0], batches.examples[:, 1] - 1], side="right")
    assert np.array_equal(*documents) and len(np.unique(documents[0])) == len(shard)
    longer = (np.searchsorted(firsts, batches.examples[:, 1]) - np.searchsorted(firsts, batches.examples[:, 0])) > 1
    assert longer.mean() > 0.2 and (batches.lengths <= 32).all()


def test_spans_are_of_whole_words_geometric_and_hidden_as_one():
    tokens, sizes, opens = rows_of_words(3000, 200)
    seen, targets, edges = mask_spans(tokens, sizes, SPANS, ORDINARY, (1, 0), np.arange(len(sizes)), opens, first_of_rows(sizes))
    row = np.repeat(np.arange(len(sizes)), sizes)
    asked, limit = np.bincount(row[targets], minlength=len(sizes)), np.maximum(1, np.round(0.15 * sizes))
    size = np.diff(np.append(np.flatnonzero(opens), len(opens)))
    shortest = np.minimum.reduceat(size, np.searchsorted(np.flatnonzero(opens), np.cumsum(sizes) - sizes))
    assert (asked >= 1).all() and (asked <= np.maximum(limit, shortest)).all()
    assert asked[sizes > 60].sum() > 0.97 * limit[sizes > 60].sum(), "filled up"
    # every token of a span is a target, spans do not meet, none leaves its row, all begin and end with a word
    spans = np.unique(edges, axis=0)
    assert (spans[:, 1] - spans[:, 0] + 1).sum() == len(targets) and (spans[1:, 0] > spans[:-1, 1]).all()
    assert (row[spans[:, 0]] == row[spans[:, 1]]).all() and opens[spans[:, 0]].all()
    assert np.append(opens, True)[spans[:, 1] + 1].all()
    # 80, 10 and 10 % of spans
    kind = np.where(seen[targets] == MASK, 0, np.where(seen[targets] != tokens[targets], 1, 2))
    first = np.searchsorted(spans[:, 0], edges[:, 0])
    hidden = np.bincount(first, kind == 0) / np.bincount(first)
    assert set(hidden) == {0.0, 1.0} and hidden.mean() == pytest.approx(0.8, abs=0.02)
    long = np.bincount(first) > 3
    kept = (np.bincount(first, kind == 2) / np.bincount(first))[long]
    assert (kept == 1).mean() == pytest.approx(0.1, abs=0.02) and ((kept > 0) & (kept < 1)).mean() < 0.01, "a drawn token may be the same"


def test_spans_are_geometric_in_words():
    """Of long rows, where few are cut to what is left of the share."""
    tokens, sizes, opens = np.full(400_000, 9), np.full(100, 4000), np.ones(400_000, bool)
    few = SPANS.model_copy(update={"mlm_probability": 0.05})
    _, _, edges = mask_spans(tokens, sizes, few, ORDINARY, (1, 0), np.arange(100), opens, first_of_rows(sizes))
    spans = np.unique(edges, axis=0)
    shares = np.bincount(spans[:, 1] - spans[:, 0] + 1, minlength=11)[1:] / len(spans)
    expected = 0.8 ** np.arange(10) * 0.2
    assert len(shares) == 10 and np.abs(shares - expected / expected.sum()).max() < 0.02


def test_spans_depend_on_the_example_alone():
    tokens, sizes, opens = rows_of_words(50, 80)
    seen, targets, _ = mask_spans(tokens, sizes, SPANS, ORDINARY, (1, 0), np.arange(50), opens, first_of_rows(sizes))
    part = slice(sizes[:20].sum(), None)
    other, _, _ = mask_spans(tokens[part], sizes[20:], SPANS, ORDINARY, (1, 0), np.arange(20, 50), opens[part], first_of_rows(sizes[20:]))
    assert np.array_equal(seen[part], other) and len(targets)


def batches_of(config, tokens, text, max_length: int = 32) -> MaskedBatches:
    return objectives.build(config, tokens).batches(text, 4, max_length, seed=1)


def test_full_sentences_go_over_the_ends_of_documents(tokens, train_split):
    """All of the text in its order, as many whole segments in a row as fit, a [SEP] where a document ends."""
    config = PLAIN.model_copy(update={"inputs": "full_sentences"})
    batches = batches_of(config, tokens, train_split)
    [shard] = train_split.shards
    examples = batches.examples
    assert np.array_equal(examples[1:, 0], [shard.segments[shard.segments[:, 0] >= end][0, 0] for end in examples[:-1, 1]])
    assert (batches.lengths <= 32).all() and batches.lengths[:-1].mean() > 23
    over = 0
    for step in range(batches.epoch_steps()):
        rows, counts = batches[step]
        assert batches.tokens(step) == counts["tokens"] == int(rows["lengths"].sum())
        text = scatter_targets(rows["ids"], rows["positions"], rows["labels"], rows["labels"])
        selected = examples[batches.selected(step)].tolist()
        for own, length, (a, end, *_) in zip(text.tolist(), rows["lengths"].tolist(), selected, strict=True):
            documents = np.split(shard.tokens[a:end], np.flatnonzero(shard.tokens[a:end] == CLS))
            whole = [CLS]
            for document in documents:
                whole += [token for token in document.tolist() if token not in (CLS, SEP)] + [SEP]
            assert own[:length] == whole
            over += len(documents) > 1
    assert over > 20
    shown = [row for step in range(batches.epoch_steps()) for row in objectives.build(config, tokens).explain(batches, step)]
    assert any(" " in row["documents"] and " |" in row["text"][:-2] for row in shown) and {row["asked"] for row in shown} == {"no pairs"}


def test_sentence_pairs_are_a_sentence_each(tokens, train_split):
    batches = batches_of(MaskedLM(name="mlm", inputs="sentence_pairs"), tokens, train_split, max_length=64)
    [shard] = train_split.shards
    asked = batches.examples[batches.examples[:, 4] != IGNORED]
    firsts, ends = shard.segments.T
    for side in (0, 2):
        assert np.isin(asked[:, side], firsts).all() and np.isin(asked[:, side + 1], ends).all()
        assert np.array_equal(np.searchsorted(firsts, asked[:, side]), np.searchsorted(ends, asked[:, side + 1]))
    assert asked[:, 4].mean() == pytest.approx(0.5, abs=0.06)


def test_sentence_order_exchanges_what_follows_one_another(tokens, train_split):
    config = MaskedLM(name="mlm", next_sentence=False, sentence_order=True)
    batches = batches_of(config, tokens, train_split, max_length=64)
    [shard] = train_split.shards
    asked = batches.examples[batches.examples[:, 4] != IGNORED]
    assert asked[:, 4].mean() == pytest.approx(0.5, abs=0.06)
    document = np.searchsorted(shard.document_tokens, asked[:, [0, 2]], side="right")
    assert np.array_equal(document[:, 0], document[:, 1])
    turned = asked[:, 4] == 1
    first, second = np.where(turned[:, None], asked[:, 2:4], asked[:, :2]), np.where(turned[:, None], asked[:, :2], asked[:, 2:4])
    assert (second[:, 0] > first[:, 1]).all() and (second[:, 0] == first[:, 1] + 1).mean() > 0.8, "but for a [SEP], and what was cut off"
    assert {"sop", "mlm"} < set(batches[0].counts) and "nsp" not in batches[0].counts


def architecture(**changes) -> EncoderArchitecture:
    return params.check(tiny_params()).models["bert"].architecture.model_copy(update={"dropout": 0.0, **changes})


def test_albert_pretrains_as_transformers_does(tokens, train_split):
    """The loss of hidden tokens and of the segments' order, from the same weights."""
    theirs = AlbertForPreTraining(AlbertConfig(
        vocab_size=tokens.vocab_size, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )).eval()  # fmt: skip
    block = architecture(max_length=64, embedding_size=8, shared_layers="all", num_layers=3, activation="gelu_tanh")
    ours = store.build(block, tokens)
    state, absent, left = ALBERT.read(theirs.state_dict(), {key: value.shape for key, value in ours.state_dict().items()})
    ours.load_state_dict(state)
    assert not absent and not left
    objective = objectives.build(MaskedLM(name="mlm", next_sentence=False, sentence_order=True), tokens)
    rows, counts = objective.batches(train_split, 8, 64, seed=0)[0]
    losses, _ = objective.losses(ours.eval(), rows, None)
    labels = scatter_targets(torch.full_like(rows["ids"], IGNORED), rows["positions"], rows["labels"], rows["labels"]).contiguous()
    mask = (torch.arange(rows["ids"].shape[1]) < rows["lengths"][:, None]).long()
    expected = theirs(
        rows["ids"], attention_mask=mask, token_type_ids=rows["segment_ids"], labels=labels, sentence_order_label=rows["answers"]
    ).loss
    assert counts["sop"] > 4
    assert float(losses["mlm"][0] / counts["mlm"] + losses["sop"][0] / counts["sop"]) == pytest.approx(float(expected), abs=1e-5)


def test_electra_detects_as_transformers_does(tokens, train_split):
    """The detector's loss over all real tokens; what the generator hits is the text's own."""
    theirs = ElectraForPreTraining(ElectraConfig(
        vocab_size=tokens.vocab_size, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )).eval()  # fmt: skip
    ours = store.build(architecture(embedding_size=8), tokens)
    state, absent, left = ELECTRA.read(
        theirs.electra.state_dict(prefix="electra."), {key: value.shape for key, value in ours.state_dict().items()}
    )
    ours.load_state_dict(ours.state_dict() | state)
    assert set(absent) == {"pooler", "head_transform", "head_bias", "next_sentence"} and not left
    objective = objectives.build(ReplacedTokens(name="electra", generator_size=0.5), tokens)
    objective.networks(ours)
    heads = theirs.discriminator_predictions.dense, theirs.discriminator_predictions.dense_prediction
    with torch.no_grad():
        for linear, other in zip(objective.detector[::2], heads, strict=True):
            linear.weight.copy_(other.weight)
            linear.bias.copy_(other.bias)
    batches = objective.batches(train_split, 8, 32, seed=0)
    rows, counts = next(own for step in range(9) if (own := batches[step]).tensors["lengths"].min() < own.tensors["lengths"].max())
    often = int(rows["labels"][rows["labels"] != IGNORED].mode().values)
    objective.generator.head_bias.data[often] = 50.0  # the generator hits sometimes, that is
    ours.eval(), objective.generator.eval()
    losses, _ = objective.losses(ours, rows, None)
    assert counts["detector"] == counts["tokens"] > counts["mlm"]
    made = objective.generator(rows["ids"], rows["lengths"], rows["segment_ids"]).gather(1, rows["positions"][:, :, None].expand(-1, -1, 8))
    samples = sample_tokens(objective.generator.logits(made), rows["labels"], False)
    filled = scatter_targets(rows["ids"], rows["positions"], samples, rows["labels"])
    original = scatter_targets(rows["ids"], rows["positions"], rows["labels"], rows["labels"])
    mask = (torch.arange(rows["ids"].shape[1]) < rows["lengths"][:, None]).long()
    expected = theirs(filled, attention_mask=mask, token_type_ids=rows["segment_ids"], labels=(filled != original).long())
    assert float(losses["detector"][0] / counts["detector"]) == pytest.approx(float(expected.loss), abs=1e-5)
    assert ((filled == original) & (original == often)).sum() > 0 and not mask.all()
    said = (expected.logits > 0) & mask.bool()
    right = (((filled != original) == (expected.logits > 0)) & mask.bool()).sum()
    assert int(losses["detector"][1]) == int(right) and float(losses["predicted"][0]) == int(said.sum())
    by_hand = cross_entropy(objective.generator.logits(made).flatten(0, 1), rows["labels"].flatten(), reduction="sum")
    assert float(losses["mlm"][0]) == pytest.approx(float(by_hand), rel=1e-5)


def test_electras_model_teaches_the_generator_through_the_embeddings_alone(tokens, train_split):
    model = store.build(architecture(), tokens)
    objective = objectives.build(ReplacedTokens(name="electra", generator_size=0.5), tokens)
    networks = objective.networks(model)
    assert networks["generator"].token_embedding is model.token_embedding and networks["generator"].width == 8
    rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]
    losses, _ = objective.losses(model, rows, None)
    losses["detector"][0].backward()
    assert all(own.grad is None for own in networks["generator"].blocks.parameters())
    assert model.token_embedding.weight.grad is not None and objective.detector[0].weight.grad is not None
    figures = objective.validation_metrics(
        {"loss": 1.0, "detector_loss": 0.3, "detector_accuracy": 0.9, "predicted_loss": 0.2, "predicted_accuracy": 0.05}
    )
    assert figures == {"loss": 1.0, "detector_loss": 0.3, "detector_accuracy": 0.9, "detector_precision": 0.25}


@pytest.mark.parametrize("learns", ["replaced", "replaced_of_targets", "targets", "tokens"])
def test_electras_ablation_asks_what_it_says(tokens, train_split, learns):
    model = store.build(architecture(), tokens)
    objective = objectives.build(ReplacedTokens(name="electra", generator_size=0.5, learns=learns), tokens)
    networks = objective.networks(model)
    rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]
    losses, _ = objective.losses(model, rows, None)
    part = "detector" if learns.startswith("replaced") else "filled"
    assert counts[part] == counts["tokens" if learns in ("replaced", "tokens") else "mlm"] and ("detector" in networks) == (
        part == "detector"
    )
    sum(loss for loss, _ in losses.values()).backward()
    untrained = set(objective.untrained(model))
    missed = {name.partition(".")[0] for name, own in model.named_parameters() if own.grad is None}
    assert missed == untrained


def test_an_impossible_or_too_large_generator_is_reported(tokens, capsys):
    raw = tiny_params()
    raw["models"]["bert"]["architecture"]["name"] = "deberta"
    deberta = store.build(params.check(raw).models["bert"].architecture, tokens)
    with pytest.raises(SesameError, match="the embeddings of a deberta are as wide as its layers; set it to 1"):
        objectives.build(ReplacedTokens(name="electra"), tokens).networks(deberta)
    raw["models"]["bert"]["architecture"]["num_layers"] = 4
    deberta = store.build(params.check(raw).models["bert"].architecture, tokens)
    objective = objectives.build(ReplacedTokens(name="electra", generator_size=1, generator_layers=0.5), tokens)
    half = objective.networks(deberta)["generator"]
    assert len(half.blocks) == 2 and half.token_embedding is deberta.token_embedding and not capsys.readouterr().err
    assert half.position_embedding is deberta.position_embedding, "the generator has the decoder, and what detects is tuned later"
    with pytest.raises(SesameError, match="sinusoidal positions have the model's width"):
        objectives.build(ReplacedTokens(name="electra"), tokens).networks(store.build(architecture(positions="sinusoidal"), tokens))
    objectives.build(ReplacedTokens(name="electra", generator_size=1), tokens).networks(store.build(architecture(), tokens))
    assert "the generator is as large as the model" in capsys.readouterr().err


def test_a_drawn_token_comes_as_often_as_it_is_likely():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(20_000, 1, 3)
    torch.manual_seed(0)
    labels = torch.arange(20_000)[:, None]
    for training in (True, False):
        counts = torch.bincount(sample_tokens(logits, labels, training).flatten(), minlength=3) / 20_000
        torch.testing.assert_close(counts, torch.tensor([0.5, 0.3, 0.2]), atol=0.01, rtol=0)
    alone = sample_tokens(logits[100:], labels[100:], False)
    assert torch.equal(sample_tokens(logits, labels, False)[100:], alone), "whatever other sequences are in the batch"


def test_the_span_boundary_reads_what_is_outside(tokens, train_split):
    """The two tokens beside a span, and the place in it; each target is asked in both ways."""
    model = store.build(architecture(), tokens)
    objective = objectives.build(SPANS.model_copy(update={"span_boundary": True}), tokens)
    boundary = objective.networks(model)["boundary"].eval()
    rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]
    losses, _ = objective.losses(model.eval(), rows, None)
    assert counts["boundary"] == counts["mlm"]
    hidden, total = model(rows["ids"], rows["lengths"], rows["segment_ids"]), 0.0
    for row, labels in enumerate(rows["labels"].tolist()):
        targets = {int(place) for place, label in zip(rows["positions"][row], labels, strict=True) if label != IGNORED}
        for i, label in enumerate(labels):
            if label == IGNORED:
                continue
            place = left = right = int(rows["positions"][row, i])
            while left in targets:
                left -= 1
            while right in targets:
                right += 1
            assert left <= int(rows["left"][row, i]) and int(rows["right"][row, i]) <= right, "neighbouring spans are told apart"
            left, right = int(rows["left"][row, i]), int(rows["right"][row, i])
            logits = boundary(model, hidden[row, left][None, None], hidden[row, right][None, None], torch.tensor([[place - left]]))
            total += float(cross_entropy(logits[0], torch.tensor([label])))
    assert float(losses["boundary"][0]) == pytest.approx(total, rel=1e-5)
    losses["boundary"][0].backward()
    assert model.token_embedding.weight.grad is not None and boundary.places.weight.grad is not None


@pytest.mark.parametrize("embeddings", ["apart", "disentangled"])
def test_embeddings_of_a_generator_of_its_own(tokens, train_split, embeddings):
    """Nothing flows from the detector into them; disentangled, the model takes over what they have learned, and that alone."""
    objective = objectives.build(ReplacedTokens(name="electra", generator_size=0.5, embeddings=embeddings), tokens)
    model = store.build(architecture(), tokens)
    generator = objective.networks(model)["generator"]
    rows = objective.batches(train_split, 8, 24, seed=0)[0].tensors
    ours, theirs = model.token_embedding.weight, generator.token_embedding.weight
    assert torch.equal(ours, theirs) and ours is not theirs and generator.position_embedding is model.position_embedding
    parts, _ = objective.losses(model, rows, None)
    parts["detector"][0].backward()
    assert theirs.grad is None and ours.grad is not None
    before, step = ours.detach().clone(), torch.randn_like(theirs)
    ours.data.add_(0.5)  # what the model learns itself
    theirs.data.add_(step)
    objective.losses(model, rows, None)
    torch.testing.assert_close(ours.detach(), before + 0.5 + (step if embeddings == "disentangled" else 0))
    objective.losses(model, rows, None)
    torch.testing.assert_close(ours.detach(), before + 0.5 + (step if embeddings == "disentangled" else 0))
    assert ("before" in generator.state_dict()) == (embeddings == "disentangled"), "a resumed run knows it, too"
