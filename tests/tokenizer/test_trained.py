"""Byte-level BPE and WordPiece trained here: the same bits every time, bytes of pieces, a masked LM over them, out to transformers."""

import json
import math
import random
import unicodedata
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from ruamel.yaml import YAML

from components import objectives, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive.checkpoints import export, pieces
from components.evaluations.minimal_pairs.alignment import word_of_tokens
from components.finetune import kinds
from components.finetune.data import Batch
from components.models import store
from components.objectives.examples.masked import MaskedBatches
from components.objectives.scoring import IGNORED
from components.tasks import Example, metrics
from components.text import encode, tokenizer
from components.text.encode import __main__ as encode_stage
from components.text.tokenizer import CLS, SPECIALS, UNK, trained
from components.text.tokenizer import __main__ as tokenizer_stage
from tests.conftest import run_stage, tiny_params

KINDS = ["byte_level_bpe", "wordpiece"]
PERSIAN = ["می\u200cخواهم به خانه بروم", "کتاب\u200cهای خوب را می\u200cخوانم", "او نمی\u200cداند چه بگوید", "این کتاب\u200cها قدیمی هستند"]
"""With non-joiners within words."""


def trained_on(texts: list[str], kind: str, folder: Path, monkeypatch) -> tokenizer.Tokenizer:
    """A tokenizer of a corpus of these segments, and of made words, so that there is enough to merge."""
    draw = random.Random(0)
    made_up = [" ".join("".join(draw.choices("aeioustn", k=4)) for _ in range(5)) for _ in range(200)]
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tokenizer_stage.corpora, "read", lambda corpus, split: iter([texts * 30 + made_up]))
    raw = tiny_params()
    raw["tokenizers"]["own"] = {"corpus": "tiny", "kind": kind} | ({} if kind == "bytes" else {"vocab_size": 300})
    raw["tokenizers"]["own"] |= {"byte_fallback": True, "character_coverage": 1.0} if kind in ("bpe", "unigram") else {}
    tokenizer_stage.train(params.check(raw), "own", Run(None))
    return tokenizer.load(folder / "data/tokenizers/own")


def test_no_two_words_have_the_same_bytes(tmp_path, monkeypatch):
    """As ELMo reads them. The cases of Georgia's name agree in the first ten letters, which are thirty bytes."""
    forms = [f"საქართველო{ending}" for ending in ("ს", "ში", "დან", "ზე", "მ")]
    own = trained_on(forms, "wordpiece", tmp_path, monkeypatch)
    assert {f" {form}".encode() for form in forms} <= set(own.pieces), "each is one token"
    assert len(np.unique(own.characters(), axis=0)) == own.vocab_size


def test_too_few_tokens_for_the_characters_of_the_text_is_a_line(tmp_path, monkeypatch):
    letters = "".join(map(chr, range(0x4E00, 0x4E40)))
    with pytest.raises(SesameError, match=r"^tokenizers.own.vocab_size: 300 is less than the 334 that special tokens, bytes and single"):
        trained_on([letters], "bpe", tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_segment_with_the_sign_of_sentencepiece_is_learnt_from(kind, tmp_path, monkeypatch):
    """It would be left out whole, with a warning that only sentencepiece's log has."""
    own = trained_on([f"zigzag \u2585 wigwag {number}" for number in range(4)], kind, tmp_path, monkeypatch)
    [ids] = own.encode(["zigzag wigwag"])
    assert not any(map(own.falls_back, ids)), "each letter is in the text"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "bytes", *KINDS])
def test_persian_words_come_back_with_their_non_joiners(kind, tmp_path, monkeypatch):
    """Sentencepiece's rules make a blank of U+200C, the library's cleaning nothing: no model could write such a word."""
    own = trained_on(PERSIAN, kind, tmp_path, monkeypatch)
    task = params.check(tiny_params()).tasks["same"].model_copy(update={"kind": "text", "language": "fa"})
    rows = [Example(str(i), "x", None, [text]) for i, text in enumerate(PERSIAN)]
    written = [own.decode(own.encode([text])[0]).strip() for text in PERSIAN]
    assert written == PERSIAN
    for name in ("bleu", "chrf", "exact_match", "f1", "rouge_l"):
        assert metrics.METRICS["text"][name](task, rows, written) == pytest.approx(1), name
    [(_, spans)] = own.encode_offsets(PERSIAN[:1])
    assert max(word_of_tokens(PERSIAN[0], spans)) == 3, "four words"
    [ids] = own.encode(["a\u200eb"])  # a mark of direction
    assert "\u200e" not in own.decode(ids) or kind == "byte_level_bpe"


def test_a_non_joiner_takes_no_place_of_the_blank_among_bytes(tmp_path, monkeypatch):
    """One in the text made three bytes of each blank, and `▁` of it in what is written."""
    english = "The cat sat on the mat."
    own = trained_on([english, PERSIAN[0]], "bytes", tmp_path, monkeypatch)
    [ids] = own.encode([english])
    assert own.decode(ids) == english and len(ids) == len(english) + 1
    assert own.starts_word[ids].sum() == 6 and own.byte_lengths[ids].sum() == len(english) + 1
    [(ids, spans)] = own.encode_offsets(["Кошка"])  # each byte has its character's span, as with other kinds
    assert spans[1:] == [(i, i + 1) for i in range(5) for _ in range(2)] and max(word_of_tokens("Кошка", spans)) == 0


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_an_exported_tokenizer_keeps_the_non_joiners(kind, tmp_path, monkeypatch):
    own = trained_on(PERSIAN, kind, tmp_path, monkeypatch)
    fast = pieces.convert(own.path)
    assert [fast.encode(text, add_special_tokens=False).ids for text in PERSIAN] == own.encode(PERSIAN)
    assert [fast.decode(fast.encode(text).ids) for text in PERSIAN] == PERSIAN


@pytest.mark.parametrize("kind", ["bpe", *KINDS])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_answer_is_cut_out_with_its_marks(kind, form, tmp_path, monkeypatch):
    texts = ["마실까해요 서울 은 한국 의 수도", "naïve café résumé déjà vu", "the naïve café was here"]
    own = trained_on(texts, kind, tmp_path, monkeypatch)
    checked = params.check(tiny_params())
    task = checked.tasks["same"].model_copy(update={"kind": "extraction", "cut": "longest"})
    for text, answer in zip(texts, ("서울", "café", "café"), strict=True):
        text, answer = unicodedata.normalize(form, text), unicodedata.normalize(form, answer)
        first = text.index(answer)
        row = Example("1", "what", text, [answer], spans=[("text_b", first, first + len(answer))])
        extraction = kinds.Extraction(task, params.Recipe(method="full", learning_rate=0.01, epochs=1, batch_size=1, max_length=200))
        encoded = extraction.encode([row], own)
        (start, kept, _), (begin, end) = encoded.notes[0], encoded.targets[0]
        output = torch.zeros(1, len(encoded.texts[0][0]), 2)
        output[0, start + begin, 0] = output[0, start + end, 1] = 9
        assert extraction.predict(output, encoded, Batch([], None, [1], [0])) == [answer], kept


def test_a_word_that_wordpiece_does_not_know_is_a_word(tmp_path, monkeypatch):
    """Whole-word masking hid it together with the word before it, and a row of such words as one."""
    own = trained_on(["the cat sat on the mat"], "wordpiece", tmp_path, monkeypatch)
    [ids] = own.encode(["the \u0416\u0416 \u0416 cat"])
    assert ids.count(UNK) == 2 and own.starts_word[ids].sum() == 4


@pytest.fixture
def made(project, request):
    """The tiny project with a tokenizer of this kind; its figures."""
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 320, "kind": request.param, "lowercase": True}
    YAML().dump(raw, project / "params.yaml")
    all_params = params.check(raw)
    figures = tokenizer_stage.train(all_params, "tiny", Run(None))
    encode_stage.encode(all_params, "tiny", Run(None))
    return figures


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_it_is_the_same_bits_every_time_and_a_model_is_trained_with_it(made):
    file = Path("data/tokenizers/tiny/tokenizer.json")
    before, kind = file.read_bytes(), params.load().tokenizers["tiny"].kind
    for _ in range(3):  # the library's own trainer of WordPiece gives another vocabulary in nearly every run
        tokenizer_stage.train(params.load(), "tiny", Run(None))
        assert file.read_bytes() == before
    tokens = tokenizer.load(Path("data/encoded/tiny"))
    assert isinstance(tokens, trained.TrainedTokenizer) and tokens.vocab_size == made["vocab_size"] <= 320
    assert [tokens.tokenizer.id_to_token(i) for i in range(5)] == list(SPECIALS) and tokens.pieces[:5] == [b""] * 5
    assert made["unknown_rate"] == 0 and 1 <= made["fertility"] < 3 and made["byte_fallback_rate"] == 0
    [ids] = tokens.encode(["The dog sees [MASK] [SEP] the river ."])
    assert not {0, 2, 3, 4} & set(ids) and (kind == "wordpiece" or 1 not in ids), "a special is no text"
    said = b"".join(tokens.pieces[i] for i in ids if i >= 5)
    assert said.startswith(b" the dog sees") and said.endswith(b" the river .")
    segments = ["the dog sees the river .", "a man forgets his letter"]
    assert tokens.encode(segments, 2) == tokens.encode(segments) and tokens.decode(tokens.encode(segments)[1]).strip() == segments[1]
    train = encode.load(Path("data/encoded/tiny"), "train")
    block = params.load().models["bert"]
    batches = MaskedBatches(block.objective.model_copy(update={"whole_word": True}), tokens, train, 8, 32, seed=0)
    rows = batches[0].tensors
    targets = rows["labels"][rows["labels"] != IGNORED]
    assert (
        (targets >= 5).all()
        and len(targets) >= 8
        and "MASK" in " ".join(row["text"] for row in objectives.build(block.objective, tokens).explain(batches, 0))
    )
    done = run_stage("components.pretrain", "bert")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/bert.json").read_text())
    assert 0 < metrics["bits_per_byte"] < 10
    folder, difference = export.export("bert")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    a, b = tokens.encode(segments)
    assert difference < 1e-4 and theirs(segments[0])["input_ids"] == [2, *a, 3] and theirs.model_max_length == 32
    pair = theirs(*segments)
    assert pair["input_ids"] == [2, *a, 3, *b, 3] and pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    model, again = store.load(Path("data/models/bert"))
    assert isinstance(again, trained.TrainedTokenizer) and torch.isfinite(model.token_embedding.weight).all()


def test_a_wordpiece_knows_what_no_blank_divides_and_as_many_characters_as_fit(project, capsys):
    """The library takes a word of more than 100 characters for unknown as a whole (transformers' issue 17551), and by
    default 1,000 characters at most for pieces (tokenizers' 1004)."""
    rng = random.Random(0)
    words = ["".join(chr(rng.randint(0xE01, 0xE2E)) for _ in range(rng.randint(2, 5))) for _ in range(40)]
    hangul = [chr(0xAC00 + i) for i in range(1500)]
    for split, count in (("train", 40), ("valid", 8)):
        lines = ["".join(rng.choices(words, k=80)) for _ in range(count)]
        lines += ["".join(rng.sample(hangul, 99)) for _ in range(count * 5)]
        (project / f"data/corpora/tiny/{split}.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 5000, "kind": "wordpiece"}
    made = tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    assert made["unknown_rate"] == 0 and "unknown" not in capsys.readouterr().out
    tokens, text = tokenizer.load(Path("data/tokenizers/tiny")), "".join(words)
    assert len(text) > 100
    [ids] = tokens.encode([text])
    assert b"".join(tokens.pieces[i].strip() for i in ids).decode() == text
    raw["tokenizers"]["tiny"]["vocab_size"] = 400
    assert tokenizer_stage.train(params.check(raw), "tiny", Run(None))["unknown_rate"] > 0
    assert "% of the tokens of held-out text are unknown" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["bpe", *KINDS])
def test_bits_per_byte_are_over_the_text_as_it_came(kind, project, capsys):
    """In full-width letters, which sentencepiece makes ASCII of, and with a word that a WordPiece does not know: bytes
    of its pieces are a third, or none."""
    wide = {ord(letter): ord(letter) + 0xFEE0 for letter in "abcdefghijklmnopqrstuvwxyz"}
    for split in ("train", "valid"):
        file = project / f"data/corpora/tiny/{split}.txt"
        text = file.read_text().replace("the river", "the river".translate(wide)).replace("old", "\u4e00" if split == "valid" else "old")
        file.write_text(text)
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 320, "kind": kind, "lowercase": True}
    raw["models"]["gpt"]["batch_size"] = 3
    YAML().dump(raw, project / "params.yaml")
    learned = tokenizer_stage.train(params.load(), "tiny", Run(None))
    encode_stage.encode(params.load(), "tiny", Run(None))
    done = run_stage("components.pretrain", "gpt")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/gpt.json").read_text())
    [shard], tokens = encode.load(Path("data/encoded/tiny"), "valid").shards, tokenizer.load(Path("data/encoded/tiny"))
    bits = metrics["loss"] * (shard.tokens != CLS).sum() / math.log(2)
    segments = [line for line in Path("data/corpora/tiny/valid.txt").read_text().splitlines() if line]
    as_it_came = sum(len(line.encode()) + 1 for line in segments)
    assert metrics["bits_per_byte"] == pytest.approx(bits / as_it_came, rel=1e-5)
    pieces, words = sum(map(len, tokens.encode(segments))), sum(len(line.split()) for line in segments)
    assert learned["fertility"] == pytest.approx(pieces / words), "tokens a word"
    unknown = (shard.tokens == UNK).sum() / ((shard.tokens >= len(SPECIALS)) | (shard.tokens == UNK)).sum()
    assert metrics["unknown_share"] == pytest.approx(unknown) and (unknown > 0) == (kind == "wordpiece")
    assert ("of the tokens of the validation text are unknown" in done.stdout) == (unknown > 0)
    if kind == "bpe":
        assert tokens.byte_lengths[shard.tokens].sum() < 0.97 * as_it_came, "of its pieces"


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_pieces_are_those_of_natural_text(tmp_path, kind):
    """With punctuation where people scatter_targets it: of byte-level pieces each is right, of WordPieces their sum."""
    draw = random.Random(0)
    words = ["it's", "3.14", "(or", "so),", "isn't", "café?", "10,000.50", "state-of-the-art", "end.", "the", "dog", "naïve"]
    segments = [" ".join(draw.choices(words, k=12)).capitalize() for _ in range(400)]
    settings = params.Tokenizer(corpus="tiny", kind=kind, vocab_size=400, lowercase=True)
    trained.train(settings, lambda: iter(segments), tmp_path)
    tokens = tokenizer.load(tmp_path)
    counted = [tokens.byte_lengths[ids].sum() for ids in tokens.encode(segments)]
    true = [len(segment.encode()) + 1 for segment in segments]
    assert sum(counted) == pytest.approx(sum(true), rel=1e-6) and (kind == "wordpiece" or counted == true)
    assert tokens.decode(tokens.encode(["naïve café"])[0]).strip() == "naïve café", "accents stay"
    [before, _] = tokens.encode(["the dog ", " the"])
    assert before == tokens.encode(["the dog"])[0], "a space at the end is no piece"


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_pieces_are_learnt_from_long_lines_too(kind, project):
    """Articles of a line each, over 4,192 bytes, whose words stand nowhere else."""
    draw = random.Random(0)
    words = ["".join(draw.choices("ðøþæł", k=4)) for _ in range(30)]
    article = " ".join(draw.choices(words, k=3000))
    file = project / "data/corpora/tiny/train.txt"
    file.write_text(file.read_text() + f"\n{article}\n")
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "kind": kind, "vocab_size": 300, "byte_fallback": False}
    tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    [ids] = tokenizer.load(Path("data/tokenizers/tiny")).encode([article])
    assert UNK not in ids and (kind == "characters" or len(ids) < 3000 * 3.5)


@pytest.mark.parametrize("size", [300, 800])
def test_a_wordpiece_vocabulary_is_no_larger_than_asked_for(tmp_path, size):
    """Even of a text of very many characters; those that are words of their own never go on with one."""
    segments = ["".join(chr(0x4E00 + 7 * i + j) for j in range(7)) + f" word{i % 40}." for i in range(300)] + ["abc, def!"] * 50
    settings = params.Tokenizer(corpus="tiny", kind="wordpiece", vocab_size=size)
    trained.train(settings, lambda: segments, tmp_path)
    tokens = tokenizer.load(tmp_path)
    assert tokens.vocab_size <= size
    own = tokens.tokenizer.get_vocab()
    assert "##a" in own and not any(piece.startswith("##") and (piece[2] >= "\u4e00" or piece[2] in ".,!") for piece in own)


@pytest.mark.parametrize("made", ["byte_level_bpe"], indirect=True)
def test_byte_level_pieces_are_the_bytes_of_any_text(made):
    tokens = tokenizer.load(Path("data/tokenizers/tiny"))
    texts = ["naïve café 東京 👍🏽", "tab\there", "ß İ"]
    for text, ids in zip(texts, tokens.encode(texts), strict=True):
        assert b"".join(tokens.pieces[i] for i in ids).decode() == f" {tokens.tokenizer.normalizer.normalize_str(text)}"
    assert sorted(set(chain.from_iterable(tokens.pieces[5:]))) == list(range(256)), "every byte is a piece"


def test_settings_of_another_library_are_refused():
    with pytest.raises(ValueError, match="character_coverage has no effect: kind wordpiece is not of sentencepiece"):
        params.Tokenizer(corpus="tiny", kind="wordpiece", vocab_size=400, character_coverage=0.99)
