"""Corpora in several languages: smoothed shares, translations as documents, what is refused."""

import random
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.core.errors import SesameError
from components.core.storage import write_json
from components.objectives.examples.masked import MaskedBatches, explain_masked
from components.objectives.mlm.config import MaskedLM
from components.params import Corpus, Params, check
from components.text import corpora, encode
from components.text.corpora import __main__ as corpus_stage
from components.text.corpora.languages import smoothed
from components.text.encode.splits import encode_split
from tests.conftest import tiny_params

WORDS = {"en": ["river", "dog", "letter", "song"], "de": ["fluss", "hund", "brief", "lied"], "fr": ["fleuve", "chien", "lettre", "chanson"]}


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A line a document of ten words: 900 in English, 300 in German, 100 in French."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    for language, lines in (("en", 900), ("de", 300), ("fr", 100)):
        rows = [" ".join(draw.choices(WORDS[language], k=9)) + f" {i}" for i in range(lines)]
        (tmp_path / f"{language}.txt").write_text("\n".join(rows) + "\n")
    return tmp_path


def part(language: str | None, *paths: str, reader: str = "text") -> dict:
    read = {"format": reader} | ({"document": "line"} if reader == "text" else {})
    return {"source": {"kind": "files", "paths": list(paths)}, "reader": read, "language": language}


def made(parts: list[dict], **settings) -> dict:
    corpus = Corpus(language="several", licence="none", parts=parts, splits={"valid": 0.1, "test": 0.1}, **settings)
    return corpus_stage.body(Params.model_construct(seed=1, corpora={"small": corpus}), "small", None)


THREE = [part("en", "en.txt"), part("de", "de.txt"), part("fr", "fr.txt")]


@pytest.mark.parametrize("power", [1.0, 0.7, 0.3])
def test_shares_are_smoothed_and_nothing_is_repeated(texts, power):
    metrics = made(THREE, smoothing=power)
    words = metrics["words_by_language"]
    wanted = {language: size**power for language, size in (("en", 9000), ("de", 3000), ("fr", 1000))}
    for language, share in wanted.items():
        assert words[language] / sum(words.values()) == pytest.approx(share / sum(wanted.values()), abs=0.01)
    assert words["en"] == 9000 if power == 1 else words["fr"] == 1000 and words["en"] < 9000, "as much as there is in these shares"
    lines = [document[0] for split in corpora.SPLITS for document in corpora.read("data/corpora/small", split)]
    assert len(lines) == len(set(lines)) == metrics["documents"] == sum(words.values()) / 10
    assert corpora.card("data/corpora/small")["words_by_language"] == words


def test_all_of_every_part_without_smoothing_and_at_most_so_many_words_with_it(texts):
    assert made(THREE)["words_by_language"] == {"en": 9000, "de": 3000, "fr": 1000}
    assert sum(made(THREE, smoothing=0.5, max_words=1500)["words_by_language"].values()) == pytest.approx(1500, abs=30)
    assert "words_by_language" not in made([part(None, "en.txt")])
    assert smoothed({"en": 4, "de": 1}, 0.5) == {"en": pytest.approx(2 / 3), "de": pytest.approx(1 / 3)}


def test_a_language_whose_documents_are_longer_than_its_share_is_not_lost(texts, capsys):
    (texts / "long.txt").write_text("\n".join(" ".join(["fluss"] * 2999 + [str(i)]) for i in range(4)) + "\n")
    parts = [part("en", "en.txt"), part("de", "long.txt")]
    with pytest.raises(SesameError, match="small: each document of de is longer than its share, .* words; read them as smaller documents"):
        made(parts, smoothing=0.3, max_words=4000)
    kept = made(parts, smoothing=0.3, max_words=9000)["words_by_language"]
    assert kept["de"] == 3000, "one document of three thousand words, where its share is more"
    share = 3000 / sum(kept.values())
    assert f"de: 3,000 of 12,000 words, {share:.1%} of the corpus" in capsys.readouterr().out, "the share that came out"


def test_translations_are_documents_of_two_segments(texts, capsys):
    (texts / "a.en").write_text("A dog runs. It is fast.\nA man sleeps.\n \nThe last one\nBerlin\n\n")
    (texts / "a.de").write_text("Ein Hund rennt.\nEin Mann schläft.\nOhne Satz.\nDer letzte\nBerlin\n\n")
    metrics = made([part("en-de", "a.en", "a.de", reader="parallel"), part("en", "en.txt")])
    documents = [document for split in corpora.SPLITS for document in corpora.read("data/corpora/small", split)]
    pairs = [document for document in documents if len(document) == 2]
    assert sorted(pairs) == [
        ["A dog runs. It is fast.", "Ein Hund rennt."], ["A man sleeps.", "Ein Mann schläft."],
        ["Berlin", "Berlin"], ["The last one", "Der letzte"],
    ]  # fmt: skip
    assert metrics["dropped"]["short"] == 2 and metrics["words_by_language"]["en-de"] == 22
    assert "1 of 6 lines are the same on both sides" in capsys.readouterr().out, "a file and its copy would be seen by it"


def test_a_row_of_translations_has_both_sides(texts, tokens):
    """What `inputs: doc_sentences` makes of a document of two segments is one row: a masked LM reads either to fill the other."""
    draw = random.Random(1)
    pairs = [[" ".join(draw.choices(WORDS[language], k=6)) for language in ("en", "de")] for _ in range(80)]
    for side, language in enumerate(("en", "de")):
        (texts / f"a.{language}").write_text("".join(pair[side] + "\n" for pair in pairs))
    made([part("en-de", "a.en", "a.de", reader="parallel")])
    Path("encoded").mkdir()
    counts = encode_split(corpora.read("data/corpora/small", "train"), "train", tokens, Path("encoded"), "uint16", 2)
    tokens.save(Path("encoded"))
    write_json(Path("encoded/meta.json"), {"dtype": "uint16", "vocab_size": tokens.vocab_size, "train": counts})
    text = encode.load(Path("encoded"), "train")
    config = MaskedLM(name="mlm", next_sentence=False, inputs="doc_sentences")
    batches = MaskedBatches(config, tokens, text, 4, 128, seed=0)
    for row in explain_masked(batches, 0, tokens):
        words = set(re.sub(r"\[(\w+) → \S+\]", r"\1", row["text"]).split())
        assert words & set(WORDS["en"]) and words & set(WORDS["de"]), row


@pytest.mark.parametrize(("settings", "said"), [
    ({"smoothing": 0}, "greater than 0"), ({"smoothing": 1.2}, "less than or equal to 1"),
    ({"smoothing": 0.7, "parts": [part("en", "en.txt"), part(None, "de.txt")]}, "smoothing is over languages, and part 2 names none"),
    ({"max_words": 100}, "max_words of a corpus needs smoothing"), ({"parts": [part("en+de", "en.txt")]}, "language"),
])  # fmt: skip
def test_wrong_settings_are_a_line(settings, said):
    raw = tiny_params()
    raw["corpora"]["base"] |= {"parts": THREE} | settings
    with pytest.raises((ValidationError, SesameError), match=said):
        check(raw)


def test_a_language_without_text_and_files_that_are_not_parallel_are_a_line(texts):
    (texts / "empty.txt").write_text("\n")
    with pytest.raises(SesameError, match=r"corpora.small: no text is left in es; dropped: 1 short"):
        made([*THREE, part("es", "empty.txt")], smoothing=0.7)
    with pytest.raises(SesameError, match="en.txt has 900 lines and .*de.txt 300: not each other's translations"):
        made([part("en-de", "en.txt", "de.txt", reader="parallel")])
    with pytest.raises(SesameError, match="two files expected, the source's sentences and their translations; 1 found"):
        made([part("en-de", "en.txt", reader="parallel")])
