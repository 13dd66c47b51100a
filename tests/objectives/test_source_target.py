"""Objectives of a source and a target: T5's and BART's noise, translation; exact lengths, nothing lost, smoothing as torch has it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from components import objectives, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.models import store
from components.objectives.denoising.batches import DenoisingBatches, random_division
from components.objectives.denoising.config import Denoising, Spans, Whole
from components.objectives.examples.masked import MaskedBatches
from components.objectives.examples.source_target import smoothed_losses, target_labels
from components.objectives.mlm.config import MaskedLM
from components.objectives.translation.config import Translation
from components.objectives.translation.objective import PairBatches
from components.pretrain.batch import batch
from components.text import tokenizer
from components.text.corpora import __main__ as corpus_stage
from components.text.encode import Shard, Split
from components.text.encode import __main__ as encode_stage
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, sentinels
from components.text.tokenizer import __main__ as tokenizer_stage
from pipelines import cli
from tests.conftest import run_stage, text, tiny_params

ARCHITECTURE = {
    "name": "encoder_decoder", "num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32,
}  # fmt: skip


class Vocabulary:
    """So many pieces; the ids of text end at 400, sentinels follow."""

    vocab_size = 420
    byte_lengths = np.full(420, 3)
    pieces = [b"x"] * 400 + [b"<extra_id_%d>" % i for i in reversed(range(20))]


def running(documents: int = 60, seed: int = 0) -> Split:
    """Documents of segments whose tokens are drawn, all within 5..400."""
    rng, tokens, segments, firsts = np.random.default_rng(seed), [], [], [0]
    for _ in range(documents):
        tokens.append(CLS)
        for _ in range(rng.integers(1, 5)):
            own = rng.integers(len(SPECIALS), 400, size=rng.integers(1, 20)).tolist()
            segments.append((len(tokens), len(tokens) + len(own)))
            tokens += [*own, SEP]
        firsts.append(len(segments))
    return Split((Shard(np.array(tokens, np.uint16), np.array(segments), np.array(firsts)),))


def drawn(noise: dict, max_length: int = 64, steps: int = 4) -> tuple[DenoisingBatches, list[tuple[list[int], list[int], list[int]]]]:
    """The batches, and of rows of some steps: the text, the source and the target, padding left out."""
    config = Denoising(name="denoising", noise=noise)
    batches, rows = DenoisingBatches(config, Vocabulary(), running(300), 8, max_length, seed=3), []
    for step in range(steps):
        texts = batches.read(step, step + 1).tolist()
        own = batches[step].tensors
        assert max(own["ids"].shape[1], own["targets"].shape[1]) <= max_length
        assert batches[step].counts["tokens"] == batches.tokens(step) == 8 * batches.length, "by which budgets become steps"
        for one, source, length, target in zip(texts, own["ids"].tolist(), own["lengths"].tolist(), own["targets"].tolist(), strict=True):
            assert source[length:] == [PAD] * (len(source) - length) and source[length - 1] == SEP
            end = len(target) - target.count(PAD)
            assert target[end - 1] == SEP and target[end:].count(PAD) == len(target) - end
            rows.append((one, source[: length - 1], target[: end - 1]))
    return batches, rows


@pytest.mark.parametrize("noise", [
    {"kind": "spans"}, {"kind": "spans", "rate": 0.5, "mean_length": 10}, {"kind": "spans", "mean_length": None},
    {"kind": "spans", "mean_length": None, "rate": 0.5}, {"kind": "spans", "mean_length": None, "rate": 0.7},
])  # fmt: skip
def test_spans_put_back_are_the_text(noise):
    """And of T5's spans source and target have the same length in all rows, the longest that fits."""
    batches, rows = drawn(noise)
    for own, source, target in rows:
        hidden, last = {}, None
        for token in target:
            if token >= 400:
                hidden[last := token] = []
            else:
                hidden[last].append(token)
        assert [token for token in source if token >= 400] == list(hidden) == sorted(hidden, reverse=True)
        assert max(hidden) == 419 and all(hidden.values()), "the first sentinel is the last id, and each stands for something"
        assert [piece for token in source for piece in (hidden[token] if token >= 400 else [token])] == own
        share = sum(map(len, hidden.values())) / len(own)
        assert share == pytest.approx(noise.get("rate", 0.15), abs=0.51 / len(own))
    if noise.get("mean_length", 3):
        assert {(len(source), len(target)) for _, source, target in rows} == {(len(rows[0][1]), len(rows[0][2]))}
        assert max(len(rows[0][1]), len(rows[0][2])) + 1 == 64
    lengths = [sum(1 for _ in hidden) for _, _, target in rows for hidden in np.split(target, np.flatnonzero(np.array(target) >= 400))[1:]]
    assert noise.get("mean_length", 3) is None or np.mean(lengths) - 1 == pytest.approx(noise.get("mean_length", 3), rel=0.15)


def test_the_lengths_of_t5():
    """Section 3.1.4 of the paper and its code: 512 tokens of a source take 568 of text, and make 114 of a target."""
    text_, hidden, spans = Spans(kind="spans").sizes(512)
    assert (text_, text_ - hidden + spans + 1, hidden + spans + 1) == (568, 512, 114)


@pytest.mark.parametrize("max_length", [8, 9, 16, 33])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("mean_length", [None, 1.0, 3.0, 50.0])
def test_rows_of_any_length_and_rate_fit(max_length, rate, mean_length):
    drawn({"kind": "spans", "rate": rate, "mean_length": mean_length}, max_length=max_length)


def test_divisions_are_all_alike():
    """5 items in 3 parts: each of the 6 divisions as often as the others."""
    rows = 6000
    made = random_division(5, 3, (1, np.zeros(rows, int), np.arange(rows)), 2)
    kinds, times = np.unique(made, axis=0, return_counts=True)
    assert len(kinds) == 6 and (made.sum(1) == 5).all() and made.min() == 1
    assert np.abs(times - 1000).max() < 4 * np.sqrt(1000 * 5 / 6)


def test_dropped_tokens_and_a_prefix():
    for own, source, target in drawn({"kind": "dropped"})[1]:
        assert sorted(source + target) == sorted(own) and len(target) == round(0.15 * 63)
    cuts = []
    for own, source, target in drawn({"kind": "prefix"}, steps=12)[1]:
        assert source + target == own and source and target
        cuts.append(len(source))
    assert np.mean(cuts) == pytest.approx(32, abs=4) and min(cuts) < 8 and max(cuts) > 56


def same_tokens(own: list[int], source: list[int]) -> bool:
    return sorted(own) == sorted(source)


@pytest.mark.parametrize(("noise", "holds"), [
    ({"permute_sentences": True}, lambda own, source: same_tokens(own, source) and segments(own) == segments(source)),
    ({"rotate": 1.0}, lambda own, source: any(own[i:] + own[:i] == source for i in range(len(own)))),
    ({"shuffled": True}, same_tokens),
    ({"deleted": 0.3}, lambda own, source: subsequence(source, own)),
    ({"masked": 0.15, "random_share": 0.0},
     lambda own, source: source.count(MASK) == round(0.15 * 63) and all(b in (a, MASK) for a, b in zip(own, source, strict=True))),
    ({"masked": 0.15, "random_share": 1.0}, lambda own, source: max(source) < 400 and MASK not in source),
    ({"infilled": 0.3}, lambda own, source: len(source) <= len(own) and subsequence([x for x in source if x != MASK], own)),
    ({"infilled": 0.3, "permute_sentences": True, "deleted": 0.1, "rotate": 0.5, "masked": 0.1, "shuffled": True}, lambda *_: True),
])  # fmt: skip
def test_a_spoilt_text_is_written_whole(noise, holds):
    rows = drawn({"kind": "whole", **noise})[1]
    assert all(own == target and holds(own, source) for own, source, target in rows)
    assert sum(own != source for own, source, _ in rows) > 0.7 * len(rows)


def test_a_tenth_of_what_is_masked_becomes_another_token():
    rows = drawn({"kind": "whole", "masked": 0.3}, steps=12)[1]
    changed = [new for own, source, _ in rows for old, new in zip(own, source, strict=True) if old != new]
    assert sum(token != MASK for token in changed) / len(changed) == pytest.approx(0.1, abs=0.03)


def segments(row: list[int]) -> list[tuple[int, ...]]:
    """Sorted: what stands between ends of segments, but the first and last, which rows cut."""
    parts, own = [], []
    for token in row:
        own.append(token)
        if token == SEP:
            parts.append(tuple(own))
            own = []
    return sorted([*parts, tuple(own)] if own else parts)


def subsequence(part: list[int], whole: list[int]) -> bool:
    left = iter(whole)
    return all(token in left for token in part)


def test_infilling_hides_its_share_by_spans_of_poisson_length():
    """And some holes stand for nothing (Lewis et al. 2020, section 2.2)."""

    for share, mean_length in ((0.3, 3.0), (0.5, 3.0), (0.3, 6.0), (0.5, 1.0)):
        rows = drawn({"kind": "whole", "infilled": share, "mean_length": mean_length}, max_length=257, steps=3)[1]
        assert {len(own) - sum(token != MASK for token in source) for own, source, _ in rows} == {round(share * 256)}
        holes = sum(source.count(MASK) for _, source, _ in rows)
        assert len(rows) * share * 256 / holes == pytest.approx(mean_length, rel=0.1)


def test_long_spans_of_infilling_are_as_frequent_as_they_are_drawn():
    """Those that touched another one were drawn again, and long ones do so more often: 2.7 tokens a span where the law has 3.16."""
    batches = DenoisingBatches.__new__(DenoisingBatches)
    batches.noise = Whole(kind="whole", infilled=0.5, mean_length=3.0)
    rng, row, lengths, empty = np.random.default_rng(0), np.arange(1000, 1500), [], 0
    places = np.zeros(len(row))
    for _ in range(400):
        source = batches._infilled(row, rng)
        visible = np.array([999, *source[source != MASK], 1500])
        gaps = np.diff(visible) - 1
        lengths += gaps[gaps > 0].tolist()
        empty += (source == MASK).sum() - (gaps > 0).sum()
        places += ~np.isin(row, source)
    drawn_lengths = np.random.default_rng(1).poisson(3.0, 10**6)
    assert np.mean(lengths) == pytest.approx(drawn_lengths[drawn_lengths > 0].mean(), rel=0.01)
    assert empty / (empty + len(lengths)) == pytest.approx((drawn_lengths == 0).mean(), rel=0.05)
    assert np.mean(np.array(lengths) >= 6) == pytest.approx((drawn_lengths >= 6).mean() / (drawn_lengths > 0).mean(), rel=0.05)
    middle = places[20:-20]  # the first and the last token can only begin or end a span
    assert middle.min() > 0.5 * 400 * 0.8 and middle.max() < 0.5 * 400 * 1.2


def test_steps_do_not_depend_on_those_before():
    for noise in ({"kind": "spans"}, {"kind": "whole", "infilled": 0.3, "permute_sentences": True}):
        one, other = drawn(noise)[0], drawn(noise)[0]
        ahead = {step: one[step] for step in (9, 2, 5)}
        for step in (2, 5, 9):
            for name, rows in other[step].tensors.items():
                assert torch.equal(ahead[step].tensors[name], rows)
            assert ahead[step].counts == other[step].counts


def pairs(sizes: list[tuple[int, int]]) -> Split:
    """Documents of a text and its translation, whose tokens name them: 10 + document in the first, 200 + document in the second."""
    tokens, segments = [], []
    for i, own in enumerate(sizes):
        tokens.append(CLS)
        for base, size in zip((10, 200), own, strict=True):
            segments.append((len(tokens), len(tokens) + size))
            tokens += [*[base + i] * size, SEP]
    return Split((Shard(np.array(tokens, np.uint16), np.array(segments), 2 * np.arange(len(sizes) + 1)),))


@pytest.mark.parametrize("reverse", [False, True])
def test_every_pair_is_read_once_an_epoch(reverse, capsys):
    rng = np.random.default_rng(0)
    sizes = [(int(a), int(b)) for a, b in rng.integers(1, 20, size=(50, 2))] + [(40, 2), (3, 50), (4, 0)]
    batches = PairBatches(reverse, Vocabulary(), pairs(sizes), 4, 32, seed=1)
    assert batches.epoch_steps() == 13 and batches.truncated == 2
    assert batches.left_out == pytest.approx((10 + 20 + 4) / sum(map(sum, sizes))), "two pairs are cut, one has nothing on a side"
    Translation_ = objectives.build(Translation(name="translation"), Vocabulary())
    Translation_.check(batches, 10)
    assert "2 of 53 pairs cut: a side is longer than 30 tokens" in capsys.readouterr().out
    for epoch in (0, 1):
        met = []
        for step in range(13 * epoch, 13 * (epoch + 1)):
            rows, counts = batches[step]
            assert counts["translation"] == (rows["targets"] != PAD).sum()
            both = sum((rows[side] != PAD).sum() for side in ("ids", "targets"))
            assert batches.tokens(step) == counts["tokens"] == both
            for document, ids, length, target in zip(
                batches.selected(step).tolist(), rows["ids"].tolist(), rows["lengths"].tolist(), rows["targets"].tolist(), strict=True
            ):  # fmt: skip
                a, b = (min(size, 30) for size in sizes[document])
                first, second = [10 + document] * a, [200 + document] * b
                source, wanted = (second, first) if reverse else (first, second)
                assert ids[:length] == [CLS, *source, SEP] and [token for token in target if token != PAD] == [*wanted, SEP]
                met.append(document)
        assert len(set(met)) == 52 and 52 not in met, "each once; a line without tokens never"


def test_smoothing_is_that_of_torch(tokens):
    torch.manual_seed(0)
    model = store.build(TypeAdapter(params.Architecture).validate_python(ARCHITECTURE), tokens)
    ids, targets = torch.randint(5, tokens.vocab_size, (2, 6, 30))
    targets[:, 20:] = PAD
    rows = {"ids": ids, "lengths": torch.full((6,), 30), "targets": targets}
    model.eval()
    loss, uniform, right = smoothed_losses(model, rows)
    logits = model.logits(model(ids, rows["lengths"], targets)).flatten(0, 1)
    expected = cross_entropy(logits, target_labels(targets), label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(0.9 * loss + 0.1 * uniform, expected)
    assert right == (logits.argmax(1) == target_labels(targets)).sum()
    objective = objectives.build(Translation(name="translation"), tokens)
    assert objective.weights == {"translation": 0.9, "uniform": 0.1}, "as in the paper, where nothing is said"


def test_what_can_not_be_is_one_line(tokens):
    with pytest.raises(SesameError, match="document 0 has 1 segments, not a text and its translation"):
        PairBatches(False, Vocabulary(), Split((Shard(np.array([CLS, 9, SEP]), np.array([[1, 2]]), np.array([0, 1])),)), 1, 32, 0)
    with pytest.raises(SesameError, match="2 pairs, less than one batch of 4"):
        PairBatches(False, Vocabulary(), pairs([(2, 3), (4, 5)]), 4, 32, 0)
    with pytest.raises(SesameError, match="less than one batch"):
        DenoisingBatches(Denoising(name="denoising"), Vocabulary(), running(2), 64, 64, 0)
    with pytest.raises(ValidationError, match="noise whole changes nothing"):
        Denoising(name="denoising", noise={"kind": "whole"})
    for idle in ({"masked": 0.15, "mean_length": 9}, {"infilled": 0.3, "random_share": 0}):  # as fairseq's --poisson-lambda without spans
        with pytest.raises(ValidationError, match=f"{[*idle][1]} has no effect: {'infilled' if 'masked' in idle else 'masked'} is 0"):
            Denoising(name="denoising", noise={"kind": "whole", **idle})
    raw = tiny_params()
    raw["models"]["t5"] = raw["models"]["bert"] | {"architecture": ARCHITECTURE, "objective": {"name": "denoising"}, "prompts": []}
    with pytest.raises(SesameError, match=r"models\.t5: objective denoising hides up to 2 spans of a row of 32, .* has 0 sentinels"):
        params.check(raw)
    raw["models"]["t5"]["objective"] = {"name": "translation"}
    more = {key: raw["models"]["t5"][key] for key in ("optimizer", "budget", "batch_size")}
    raw["derived"]["on"] = {"start": "t5", "on": "encoded/tiny", "by": {"name": "pretrained", "objective": {"name": "denoising"}, **more}}
    with pytest.raises(SesameError, match=r"derived\.on: objective denoising hides up to 2 spans of a row of 32, .* has 0 sentinels"):
        params.check(raw)
    raw["tokenizers"]["tiny"]["sentinels"] = 2
    assert params.check(raw).tokenizers["tiny"].most_ids == 402


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte_level_bpe", "wordpiece"])
def test_sentinels_are_the_last_ids_and_no_text(project, kind):
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 330, "kind": kind}
    tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    before = tokenizer.load(Path("data/tokenizers/tiny"))
    size, texts = before.vocab_size, [*text(5).split(), "<extra_id_0> and <extra_id_3>"]
    ids = before.encode(texts)
    sentinels.add(Path("data/tokenizers/tiny"), 4)
    after = tokenizer.load(Path("data/tokenizers/tiny"))
    assert after.vocab_size == size + 4 and after.encode(texts) == ids and max(max(own) for own in ids) < size
    assert after.decode([*ids[0], size + 3]).strip() == before.decode(ids[0]).strip()


SPANS = {"name": "denoising", "noise": {"kind": "spans", "rate": 0.3}}
BART = {"name": "denoising", "noise": {"kind": "whole", "infilled": 0.3, "permute_sentences": True}}


@pytest.mark.parametrize("objective", [SPANS, BART, {"name": "denoising", "noise": {"kind": "prefix"}}, {"name": "translation"}])
def test_a_model_trains_on_it_and_shows_what_it_read(project, objective):
    """From the tokenizer on: its loss falls, a sample for each prompt; `sesame batch` has source and target."""
    raw = tiny_params()
    raw["tokenizers"]["tiny"]["sentinels"] = 8
    prompts = ["the dog [MASK] the river"]
    raw["models"] = {"t5": raw["models"]["bert"] | {"architecture": ARCHITECTURE, "objective": objective, "prompts": prompts}}
    raw["models"]["t5"] |= {"budget": {"steps": 40}, "optimizer": {"learning_rate": 0.01}}
    raw["finetune"] |= {"models": [], "recipes": {}}
    raw["studies"] = {}
    if objective["name"] == "translation":
        for name, lines in {"en": text(80).split("\n"), "upside": text(80)[::-1].split("\n")[::-1]}.items():
            Path("raw", f"pairs.{name}").write_text("\n".join(lines))
        raw["corpora"]["base"]["parts"] = [{
            "source": {"kind": "files", "paths": ["raw/pairs.en", "raw/pairs.upside"]}, "reader": {"format": "parallel"},
        }]  # fmt: skip
        raw["tokenizers"]["tiny"]["corpus"] = raw["encodings"]["tiny"]["corpus"] = "base"
        corpus_stage.body(params.check(raw), "base", Run(None))
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    checked = params.check(raw)
    tokenizer_stage.train(checked, "tiny", Run(None))
    encode_stage.encode(checked, "tiny", Run(None))
    for stage in ("components.pretrain", "components.pretrain.sample"):
        done = run_stage(stage, "t5")
        assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/t5.json").read_text())
    curve = Path("data/curves/t5.csv").read_text().splitlines()
    assert float(curve[-1].split(",")[4]) < float(curve[1].split(",")[4]) and metrics["perplexity"] < 400
    assert not [name for name in metrics if name.startswith("uniform")]
    samples = json.loads(Path("data/samples/t5.json").read_text())
    assert [sample["prompt"] for sample in samples] == prompts
    rows = batch(checked, "t5", 3)
    assert len(rows) == 8 and all(row["text"] and row["target"] for row in rows)
    shown = CliRunner().invoke(cli.app, ["batch", "t5", "3", "--rows", "2"])
    assert shown.exit_code == 0 and shown.output.count("→") == 2 and "2 of 8 rows of step 3" in shown.output


def test_no_sentinel_is_drawn_as_a_replacement():
    """A masked language model over a vocabulary with sentinels replaces by what text is made of."""
    pieces = Vocabulary()
    ordinary = sentinels.ordinary(pieces)
    assert ordinary.tolist() == list(range(len(SPECIALS), 400)) and sentinels.ids(pieces.vocab_size, 2) == [419, 418]
    config = MaskedLM(name="mlm", mask_share=0, random_share=1)
    assert np.array_equal(MaskedBatches(config, pieces, running(), 2, 16, seed=1).ordinary, ordinary)
