"""Vectors, dictionaries, and the stages on a small made-up language; what is brought from elsewhere, and what is wrong with it."""

import csv
import gzip
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import numpy as np
import pytest
import torch
from gensim.models import FastText, KeyedVectors
from gensim.models.fasttext import save_facebook_model
from pydantic import TypeAdapter

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.embeddings import align, dictionaries, evaluate, interchange, published, trainers, vectors
from components.embeddings.dictionaries import wordnet as wordnets
from components.embeddings.maps import normalise, unit
from components.embeddings.neighbours import nearest
from components.embeddings.space import Space, load, save, written

# ---------------------------------------------------------------- scores


def space(words: list[str], counts: list[int] | None = None, d: int = 4) -> Space:
    draw = np.random.default_rng(0)
    return Space(words, np.array(counts or [100] * len(words)), draw.standard_normal((len(words), d)).astype(np.float32))


def test_any_translation_is_a_hit():
    words = list("abcdefghijkl")
    best = np.array([list(range(10)), list(range(10)), list(range(10))])
    gold = {"x": {"a", "z"}, "y": {"e", "c"}, "z": {"l"}}
    hits = evaluate.hits(best, ["x", "y", "z"], gold, words)
    assert evaluate.precision(hits) == {"p1": 1 / 3, "p5": 2 / 3, "p10": 2 / 3}


def test_coverage_needs_both_sides_and_chance_counts_golds():
    source, target = space(["one", "two", "four"]), space(["un", "deux", "trois", "autre"])
    test = {"one": {"un"}, "two": {"double", "deux", "trois"}, "three": {"trois"}, "four": {"quatre"}}
    assert evaluate.covered(test, source, target) == ["one", "two"]
    assert evaluate.chance(["one", "two"], test, target.words) == pytest.approx((1 / 4 + 2 / 4) / 2)


def test_the_word_that_moved_comes_first():
    draw = np.random.default_rng(0)
    words = [f"w{i}" for i in range(100)]
    before = unit(draw.standard_normal((100, 20)))
    after = before.copy()
    after[7] = -after[7]
    counts = [100] * 99 + [3]
    rows = evaluate.moved(space(words, counts), space(words, [100] * 100), before, after, min_count=50)
    assert len(rows) == 99 and rows[0]["word"] == "w7" and rows[0]["distance"] == pytest.approx(2)
    assert rows[1]["distance"] == pytest.approx(0, abs=1e-6) and "w7" not in rows[0]["source_neighbours"].split()
    assert len(rows[0]["source_neighbours"].split()) == 5 and rows[0]["source_neighbours"] != rows[0]["target_neighbours"]


def test_words_held_out_of_the_dictionary_have_not_moved_further():
    """Between two noisy copies of a space no word has moved: those that the maps are tested on are as near to themselves as the others."""
    draw = np.random.default_rng(1)
    words, vectors = [f"w{i}" for i in range(300)], draw.standard_normal((300, 60))
    rotation = np.linalg.qr(draw.standard_normal((60, 60)))[0]
    before, after = (unit(vectors + 0.7 * draw.standard_normal(vectors.shape)) for _ in range(2))
    train, test = words[:200], words[200:]
    pairs = dictionaries.Dictionary([(word, word) for word in train], {word: {word} for word in test}, {})
    rows = align._moved(align.Pair(space(words), space(words), pairs), before, after @ rotation, min_count=1)
    fitted, held_out = (np.mean([row["distance"] for row in rows if row["word"] in chosen]) for chosen in (train, test))
    assert held_out == pytest.approx(fitted, abs=0.02)


# ---------------------------------------------------------------- dictionary

SQL = """CREATE TABLE french_lemma (...);
INSERT INTO {table} VALUES ("n#1","n","{dog}","N");
INSERT INTO {table} VALUES ("n#1","n","{many} words","Y");
INSERT INTO {table} VALUES ("n#1","n","{many}_words","N");
INSERT INTO {table} VALUES ("n#2","n","{dog}","N");
INSERT INTO {table} VALUES ("n#3","n","{cat}","N");
"""


def wordnet(folder: Path, source: str, target: str, **options) -> params.WordNetDictionary:
    (folder / "english.sql").write_text(source)
    (folder / "french.sql").write_text(target)
    files = {"kind": "files", "paths": [str(folder / "*.sql")]}
    return params.WordNetDictionary(kind="wordnet", source=files, source_table="english_lemma", target_table="french_lemma", **options)


def test_wordnet_pairs_share_a_synset_and_are_single_words(tmp_path):
    french = SQL.format(table="french_lemma", dog="Chien", many="plusieurs", cat="chat")
    french += 'INSERT INTO french_lemma VALUES ("n#1","n","clebs","N");\nINSERT INTO french_lemma VALUES ("n#9","n","rien","N");\n'
    dictionary = wordnet(tmp_path, SQL.format(table="english_lemma", dog="dog", many="many", cat="cat"), french, train=10, test=1)
    candidates, translations = wordnets.translations(dictionary, ["cat", "bird", "dog"])
    assert candidates == ["cat", "dog"] and translations["dog"] == {"chien": 2, "clebs": 1} and translations["cat"] == {"chat": 1}


def test_words_of_all_sources_are_in_the_form_of_corpora(tmp_path):
    """NFC: a letter and its accent are one character, a Devanagari letter and its dot two."""
    assert written("E\u0301te\u0301", True) == "été" and written("\u095c", True) == "\u0921\u093c"
    english = SQL.format(table="english_lemma", dog="dog", many="many", cat="cat")
    french = SQL.format(table="french_lemma", dog="e\u0301te\u0301", many="plusieurs", cat="chat")
    dictionary = wordnet(tmp_path, english, french, train=10, test=1)
    assert wordnets.translations(dictionary, ["dog"])[1]["dog"] == {"été": 2}
    settings = parallel(tmp_path)
    (tmp_path / "de.txt").write_text((tmp_path / "de.txt").read_text().replace("ä", "a\u0308"))
    built = dictionaries.load("parallel")(settings, ["dog", "house", "runs"], ["hund", "haus", "läuft"], 1)
    assert ("runs", "läuft") in built.train


def test_no_source_word_is_both_learned_from_and_asked_for(tmp_path):
    source = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]

    def lemmas(table, prefix):
        return "".join(f'INSERT INTO {table} VALUES ("n#{i // 2}","n","{prefix}{word}","N");\n' for i, word in enumerate(source))

    dictionary = wordnet(tmp_path, lemmas("english_lemma", ""), lemmas("french_lemma", "f"), train=100, test=30)
    target = [f"f{word}" for word in source[:150]]
    built = dictionaries.load(dictionary.kind)(dictionary, source, target, seed=1)
    assert len(built.test) == 30 and not {a for a, _ in built.train} & set(built.test)
    assert {a for a, _ in built.train} | set(built.test) == set(source[:130])  # the most frequent
    assert all(b in target for _, b in built.train) and all(len(gold) == 2 for gold in built.test.values())
    assert dictionaries.load(dictionary.kind)(dictionary, source, target, seed=1) == built
    assert dictionaries.load(dictionary.kind)(dictionary, source, target, seed=2).test != built.test
    with pytest.raises(SesameError, match="of 35 words .* 35 are taken .train 100, test 30.: 10 must be left"):
        dictionaries.load(dictionary.kind)(dictionary, source[:35], target, seed=1)


def test_identical_words():
    dictionary = params.IdenticalDictionary(kind="identical", train=10, test=3)
    built = dictionaries.load(dictionary.kind)(dictionary, [f"w{i}" for i in range(30)], [f"w{i}" for i in range(10, 40)], seed=1)
    assert all(a == b for a, b in built.train) and len(built.train) == 10 and all(gold == {word} for word, gold in built.test.items())


# ---------------------------------------------------------------- stages


def corpus(name: str, prefix: str, documents: int = 1500) -> None:
    """A language of 15 topics with 8 words each: a sentence stays in its topic. `prefix` makes it another language."""
    draw = random.Random(0)
    topics = [[f"{prefix}{chr(97 + t)}{chr(97 + w)}" for w in range(8)] for t in range(15)]
    lines = [" ".join(draw.choices(draw.choice(topics), k=8)).capitalize() + "." for _ in range(documents)]
    folder = Path("data/corpora", name)
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("\n\n".join(lines) + "\n")


def table(path: Path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def settings(vectors_of: dict, **alignment) -> params.Params:
    declared = {name: TypeAdapter(params.Vectors).validate_python(raw) for name, raw in vectors_of.items()}
    return params.Params.model_construct(vectors=declared, alignments={"pair": params.Alignment(**alignment)} if alignment else {})


PPMI = {"kind": "ppmi_svd", "vector_size": 20}
SGNS = {"kind": "skip_gram", "vector_size": 20}
CBOW = {"kind": "cbow", "vector_size": 20, "epochs": 30}
FASTTEXT = {"kind": "fasttext", "vector_size": 20, "buckets": 500}


@pytest.mark.parametrize("kind", [PPMI, SGNS, CBOW, FASTTEXT])
def test_vectors_know_the_topics(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    metrics = vectors.train_vectors(settings({"v": kind | {"corpus": "one"}}), "v", None)
    assert metrics["words"] == 1500 * 8 and metrics["vocabulary"] == 120
    space = load("data/vectors/v")
    assert space.vectors.shape == (120, 20) and space.counts.sum() == 12000 and list(space.counts) == sorted(space.counts, reverse=True)
    near = nearest(*[torch.from_numpy(normalise(space.vectors))] * 2, 8)[1].tolist()
    assert np.mean([space.words[n][0] == word[0] for word, row in zip(space.words, near, strict=True) for n in row]) > 0.9
    assert len(load("data/vectors/v", limit=10).words) == 10
    with pytest.raises(SesameError, match="lower min_count or take more text"):
        vectors.train_vectors(settings({"v": kind | {"corpus": "one", "min_count": 10**6}}), "v", None)


@pytest.mark.parametrize("kind", [PPMI, SGNS, CBOW], ids=lambda kind: kind["kind"])
def test_a_word_that_always_stands_alone_has_no_vector(tmp_path, monkeypatch, capsys, kind):
    """Of PPMI it was a row of zeros: after centring all such words were the nearest of each other, with a cosine of 1. Of the others it
    was the vector that was drawn."""
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    vectors.train_vectors(settings({"v": kind | {"corpus": "one"}}), "v", None)
    before = load("data/vectors/v")
    with open("data/corpora/one/train.txt", "a") as file:
        file.write("\n" + "(Applause.)\n(Laughter.)\n" * 50)
    capsys.readouterr()
    vectors.train_vectors(settings({"v": kind | {"corpus": "one"}}), "v", None)
    after = load("data/vectors/v")
    assert "2 of 122 words have no neighbours to learn from" in capsys.readouterr().out
    assert after.words == before.words and (after.counts == before.counts).all() and len(after.vectors) == len(after.words)
    if kind == PPMI:
        assert abs(unit(after.vectors) @ unit(after.vectors).T - unit(before.vectors) @ unit(before.vectors).T).max() < 1e-3


@pytest.mark.parametrize("kind", [SGNS, CBOW, FASTTEXT], ids=lambda kind: kind["kind"])
def test_all_words_of_a_text_on_one_line_are_learned_from(tmp_path, monkeypatch, kind):
    """gensim counts the words of a sentence behind its 10,000th, and learns nothing from them (its issue 2880)."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    topics = [[f"{chr(97 + t)}{chr(97 + w)}" for w in range(8)] for t in range(16)]
    first, later = ([draw.choice(own) for own in draw.choices(half, k=3000) for _ in range(8)] for half in (topics[:8], topics[8:]))
    folder = Path("data/corpora/made_up")
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text(" ".join(first + later) + "\n")
    vectors.train_vectors(settings({"one": {**kind, "corpus": "made_up", "sample": 0, "epochs": 3}}), "one", None)
    read = load("data/vectors/one")
    rows = torch.from_numpy(unit(read.vectors))
    near = [read.words[n] for n in nearest(rows, rows, 2)[1][:, 1].tolist()]
    found = [word[0] == other[0] for word, other in zip(read.words, near, strict=True) if word[0] >= "i"]
    assert len(found) == 64 and sum(found) > 60


def test_every_kind_that_can_be_declared_is_a_file():
    def kinds(union: object) -> set[str]:
        return {kind for block in get_args(get_args(union)[0]) for kind in get_args(block.model_fields["kind"].annotation)}

    def there(package: ModuleType, *helpers: str) -> set[str]:
        return {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__", *helpers}

    assert kinds(params.Vectors) == there(trainers, "vocabulary", "predicted")
    assert kinds(params.dictionaries.Dictionary) == there(dictionaries)
    assert all(callable(trainers.load(kind)) for kind in there(trainers, "vocabulary", "predicted"))
    assert all(callable(dictionaries.load(kind)) for kind in there(dictionaries))


def test_vectors_do_not_depend_on_the_hash_seed(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from components import params\nfrom components.embeddings import trainers\n"
        "import hashlib, random\n"
        "draw = random.Random(0); text = [[chr(97 + draw.randrange(26)) for _ in range(9)] for _ in range(300)]\n"
        "settings = params.SkipGram(kind='skip_gram', corpus='x', vector_size=8)\n"
        "_, _, trained = trainers.load('skip_gram')(text, settings)\n"
        "print(hashlib.sha256(trained.tobytes()).hexdigest())\n"
    )
    root = str(Path(vectors.__file__).parents[2])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, root], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_precision_has_an_interval_and_a_paired_one():
    """The paired interval of two mappings that mostly agree is narrower than either's own; what was taught is counted apart."""
    first = np.repeat([True, False], [60, 140])
    better = first.copy()
    better[60:70] = True
    own = evaluate.intervals(better, first, np.arange(200) >= 50)
    assert own["less_first"] == pytest.approx(0.05) and 0 < own["less_low"] < 0.05 < own["less_high"]
    assert own["less_high"] - own["less_low"] < 0.6 * (own["p1_high"] - own["p1_low"])
    assert own["p1_low"] < 0.35 < own["p1_high"] and (own["p1_unseen"], own["queries_unseen"]) == (20 / 150, 150)
    same = evaluate.intervals(first, first, np.zeros(200, bool))
    assert (same["less_first"], same["less_low"], same["less_high"], same["p1_unseen"]) == (0, 0, 0, None)


def test_methods_that_agree_on_few_queries_may_differ_on_others():
    """Six equal answers leave room for .46 either way (Clopper and Pearson); no interval of two shares reaches beyond 1."""
    right, unseen = np.ones(6, bool), np.ones(6, bool)
    alike = evaluate.intervals(right.copy(), right, unseen)
    assert alike["less_first"] == 0 and alike["less_high"] == -alike["less_low"] == pytest.approx(1 - 0.025 ** (1 / 6))
    behind = evaluate.intervals(np.arange(6) < 2, right, unseen)
    assert behind["less_low"] == -1 < behind["less_high"] < 0


def test_halves_are_disjoint_of_as_many_words_and_drawn():
    draw = random.Random(0)
    documents = [[[f"w{i}"] * draw.randint(1, 9) for _ in range(draw.randint(1, 30))] for i in range(40)]

    def words(half) -> list[str]:
        return [word for document in half for sentence in document for word in sentence]

    first, second = vectors.halves(documents, 1)
    a, b = words(first), words(second)
    assert not set(a) & set(b) and len(set(a) | set(b)) > 38 and 0 <= abs(len(a) - len(b)) < 9
    assert words(vectors.halves(documents, 1)[0]) == a != words(vectors.halves(documents, 2)[0])


def test_a_limit_of_words_draws_documents_of_the_whole_text():
    documents = [[[f"w{i}"] * 5] * 4 for i in range(40)]
    some = vectors.drawn(documents, 410)
    numbers = [int(document[0][0][1:]) for document in some]
    assert numbers == sorted(numbers) and min(numbers) < 10 and max(numbers) >= 30
    assert sorted(map(len, some)) == [2] + [4] * 20, "the last one drawn is cut, between sentences"
    assert vectors.drawn(documents, None) == documents == vectors.drawn(documents, 10_000)


def test_two_languages_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    corpus("two", "z")

    def lemmas(table, prefix):
        return "".join(
            f'INSERT INTO {table} VALUES ("n#{t}{w}","n","{prefix}{chr(97 + t)}{chr(97 + w)}","N");\n' for t in range(15) for w in range(8)
        )

    dictionary = wordnet(tmp_path, lemmas("english_lemma", ""), lemmas("french_lemma", "z"), train=80, test=30)
    both = {"one": PPMI | {"corpus": "one"}, "two": PPMI | {"corpus": "two"}}
    curve = {"methods": ["xing_2015"], "seed_pairs": [5, 40, 80]}
    made = settings(both, source="one", target="two", dictionary=dictionary, methods=["mikolov_2013", "artetxe_2018a"], curve=curve)
    for name in both:
        vectors.train_vectors(made, name, None)
    metrics = align.align(made, "pair", None)
    assert metrics["coverage"] == 1 and metrics["queries"] == 30 and metrics["train_pairs"] == 80
    assert metrics["methods"]["artetxe_2018a"]["csls"]["p10"] > 0.9 and metrics["chance_p1"] == pytest.approx(1 / 120)
    folder = Path("data/align/pair")
    scores = table(folder / "scores.csv")
    ways = [(method, retrieval) for method in ("mikolov_2013", "artetxe_2018a") for retrieval in ("nn", "csls")]
    assert [(row["method"], row["retrieval"]) for row in scores] == ways
    assert all(row["queries_unseen"] == "30" and row["p1_unseen"] == row["p1"] for row in scores), "each word has one translation"
    for first, second in zip(scores[:2], scores[2:], strict=True):  # by the same retrieval: what is compared is the method alone
        less = float(second["p1"]) - float(first["p1"])
        assert float(first["less_first"]) == 0 and float(second["less_first"]) == pytest.approx(less)
    assert float(scores[3]["p10"]) == metrics["methods"]["artetxe_2018a"]["csls"]["p10"] and scores[0]["coverage"] == "1.0"
    assert np.load(folder / "mapping.npz")["artetxe_2018a_source"].shape == (20, 20) and not (folder / "moved.csv").exists()
    sizes = [(row["method"], row["seed_pairs"]) for row in table(folder / "curve.csv")]
    assert sizes == [("xing_2015", size) for size in ("5", "40", "80")]
    view = table(folder / "view.csv")
    assert len(view) == 2 * 30 and {row["side"] for row in view} == {"source", "target"}
    places = {
        side: np.array([[row["after_x"], row["after_y"]] for row in view if row["side"] == side], float) for side in ("source", "target")
    }
    assert np.linalg.norm(places["source"] - places["target"], axis=1).mean() < 0.3, "a word and its translation are near each other"
    examples = table(folder / "examples.csv")
    assert len(examples) == 4 * 20 and examples[0]["gold"] == f"z{examples[0]['word']}" and len(examples[0]["found"].split()) == 5
    storage.write_json(Path("data/metrics/align/pair.json"), metrics)  # plain numbers only


def test_two_periods_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus("old", "")
    corpus("new", "")
    text = Path("data/corpora/new/train.txt").read_text()
    swapped = (
        text.replace("aa", "SWAP").replace("Aa", "Swap").replace("bb", "aa").replace("Bb", "Aa").replace("SWAP", "bb").replace("Swap", "Bb")
    )
    Path("data/corpora/new/train.txt").write_text(swapped)  # two words change their meaning
    both = {name: SGNS | {"corpus": name, "seed": seed} for seed, name in enumerate(("old", "new"))}
    made = settings(both, source="old", target="new", dictionary=params.IdenticalDictionary(kind="identical", train=80, test=30))
    for name in both:
        vectors.train_vectors(made, name, None)
    metrics = align.align(made, "pair", None)
    moved = table(Path("data/align/pair/moved.csv"))
    assert {row["word"] for row in moved[:2]} == {"aa", "bb"} and metrics["moved"]["words"] == len(moved)
    assert float(moved[0]["distance"]) > 0.5 > metrics["moved"]["mean_distance"]


def test_spaces_of_different_width(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    both = {"one": PPMI | {"corpus": "one"}, "two": PPMI | {"corpus": "one", "vector_size": 10}}
    made = settings(both, source="one", target="two", dictionary=params.IdenticalDictionary(kind="identical", train=80, test=30))
    for name in both:
        vectors.train_vectors(made, name, None)
    with pytest.raises(SesameError, match="have 20 dimensions and vectors.two 10"):
        align.align(made, "pair", None)


# ---------------------------------------------------------------- from elsewhere

WORDS = ["the", "of", "The", "Paris", "42", "naïve"]
ROWS = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0], [np.nan, 1, 2], [-1.5, 2e-3, 1]], dtype=np.float32)


def lines_of(words: list[str] = WORDS, rows: np.ndarray = ROWS) -> str:
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows.tolist(), strict=True))


def brought(path: Path, **options) -> tuple[dict, Space]:
    block = params.PublishedVectors(source={"kind": "files", "paths": [str(path)]}, licence="none", **options)
    metrics = published.import_vectors(params.Params.model_construct(published_vectors={"own": block}), "own", None)
    return metrics, load("data/vectors/own")


@pytest.mark.parametrize("form", ["glove", "word2vec", "gz", "binary", "npz"])
def test_vectors_from_elsewhere_in_every_form(tmp_path, monkeypatch, form):
    """What can't be used is left out and counted: words that come again, zero and NaN rows."""
    monkeypatch.chdir(tmp_path)
    path, options = Path("vectors.txt"), {}
    if form == "glove":
        path.write_text(lines_of())
    elif form == "word2vec":
        path.write_text(f"6 3\n{lines_of()}")
    elif form == "gz":
        path = Path("vectors.vec.gz")
        path.write_bytes(gzip.compress(f"6 3\n{lines_of()}".encode()))
    elif form == "binary":
        keyed, options = KeyedVectors(3), {"format": "word2vec_binary"}
        keyed.add_vectors(WORDS, ROWS)
        keyed.save_word2vec_format(str(path), binary=True)
    else:
        path, options = Path("vectors.npz"), {"format": "npz"}
        np.savez(path, words=np.array(WORDS), vectors=ROWS)
    metrics, space = brought(path, **options)
    assert space.words == ["the", "of", "The", "naïve"]
    assert metrics["left_out"] == {"repeated": 0, "zero": 1, "not_finite": 1, "no_word": 0, "not_utf8": 0}
    np.testing.assert_allclose(space.vectors, ROWS[[0, 1, 2, 5]])
    metrics, space = brought(path, **options, lowercase=True, max_vocabulary=3)
    assert space.words == ["the", "of"] and metrics["left_out"]["repeated"] == 1
    np.testing.assert_allclose(space.vectors[0], ROWS[0])  # the first one stays


def test_odd_lines_of_vectors_are_taken_or_counted(tmp_path, monkeypatch):
    """Lines without anything, words with a blank of any kind in them, bytes that are no UTF-8."""
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_bytes("the 1 2.5\n1 000 3 4.5\nnew\u00a0york 5 6\n\n".encode() + b"caf\xe9 7 8\n \n")
    metrics, space = brought(Path("vectors.txt"))
    assert space.words == ["the", "1 000", "new york"] and metrics["left_out"]["not_utf8"] == 1
    assert space.vectors.tolist() == [[1, 2.5], [3, 4.5], [5, 6]]
    Path("more.txt").write_text("the 1 2\nof 1.5 2 3\n")
    with pytest.raises(SesameError, match="line 2: 3 numbers, 2 expected"):
        brought(Path("more.txt"))
    built = dictionaries.load("pairs")(
        listed("the der\n", "new\u00a0york neuyork\n1\u00a0000\ttausend\n \n"), space.words, ["der", "neuyork", "tausend"], 1
    )
    assert built.test == {"new york": {"neuyork"}, "1 000": {"tausend"}}, "one rule for vectors and dictionary"


def test_words_of_a_list_are_cased_as_the_vectors_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs, asked = "The der\ndog Hund\n", "house Haus\ncat Katze\n"
    german = ["der", "Hund", "Katze", "Haus", "die"]
    built = dictionaries.load("pairs")(listed(pairs, asked), ENGLISH, german, 1)
    assert built.train == [("the", "der"), ("dog", "Hund")] and built.test == {"house": {"Haus"}, "cat": {"Katze"}}
    assert "other case" not in capsys.readouterr().out
    dictionaries.load("pairs")(listed(pairs, asked + "the der\n", lowercase=True), ENGLISH, german, 1)
    said = "dictionary.test: 1 of 3 pairs are in the two vocabularies, in the other case 3: leave `lowercase` out"
    assert said in capsys.readouterr().out


def test_a_list_the_other_way_round_is_refused_though_words_are_spelled_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    english, german = [*ENGLISH, "tunnel", "film", "sport"], [*GERMAN, "tunnel", "film", "sport"]
    alike = "tunnel tunnel\nfilm film\nsport sport\n"
    with pytest.raises(SesameError, match="dictionary.test: 0 of 3 pairs are .*, 3 the other way round"):
        dictionaries.load("pairs")(listed("the der\n", f"hund dog\nkatze cat\nhaus house\n{alike}"), english, german, 1)
    settings = parallel(tmp_path)
    (tmp_path / "pairs.txt").write_text("haus house\nhund dog\ndog dog\n")
    with pytest.raises(SesameError, match="dictionary.test: 0 of 2 pairs are .*, 2 the other way round"):
        dictionaries.load("parallel")(settings, [*ENGLISH, "very"], [*GERMAN, "dog", "alt"], 1)


def test_a_start_by_similarity_teaches_nothing_that_is_asked_for():
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((60, 10)).astype(np.float32)
    words = [f"w{i}" for i in range(60)]
    both = Space(words, np.zeros(60, int), vectors)
    asked = {word: {word} for word in words[::3]}
    pair = align.Pair(both, both, dictionaries.Dictionary([], asked, {}))
    method = params.Method.model_validate({"name": "alone", "start": "similarity", "self_learning": {"vocabulary": 60}})
    brought = align.learn_alignment(pair, method)
    assert not brought.taught & asked.keys() and len(brought.taught) > 30 and brought.how["seed_pairs"] <= 80


def test_fasttexts_own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = FastText([[f"word{i}" for i in range(9)]] * 20, vector_size=6, min_count=1, bucket=50, epochs=1)
    save_facebook_model(model, "model.bin")
    _, space = brought(Path("model.bin"), format="fasttext_binary")
    assert space.words == model.wv.index_to_key
    np.testing.assert_allclose(space.vectors, model.wv.vectors, rtol=1e-5)


def test_words_with_a_space_are_words(tmp_path, monkeypatch):
    """As in GloVe's vectors of the Common Crawl."""
    monkeypatch.chdir(tmp_path)
    Path("glove.txt").write_text("the 1 2\n. . . 3 4\n")
    assert brought(Path("glove.txt"))[1].words == ["the", ". . ."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("the 1 2 3\nof 1 2\n", "vectors.txt, line 2: a word and its numbers expected, 3 fields found, 3 expected as in the first line"),
        ("the 1 2 3\nof 1 2 3 4\n", "vectors.txt, line 2: 4 numbers, 3 expected"),
        ("the 1 2 3\nof 1 x 3\n", "vectors.txt, line 2: 3 numbers expected after the word"),
        ("2 4\nthe 1 2 3\nof 1 2 3\n", "vectors.txt, line 2: .* 4 fields found, the first line says 4"),
        (
            "5 3\nthe 1 2 3\n\nof 1 2 3\n",
            "vectors.txt, line 1: 5 vectors promised, 2 are there, the last on line 4: the file may be cut off",
        ),
        ("the 0 0\n", "no usable vector"),
        ("", "no usable vector"),
    ],
)
def test_a_broken_file_of_vectors_is_one_line(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text(content)
    with pytest.raises(SesameError, match=said):
        brought(Path("vectors.txt"))
    assert not Path("data/vectors").exists()


@pytest.mark.parametrize("form", ["word2vec_binary", "fasttext_binary", "npz"])
def test_a_file_of_another_form_is_one_line(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text("the 1 2 3\n")
    with pytest.raises(SesameError, match="vectors.txt: can't be read as ") as raised:
        brought(Path("vectors.txt"), format=form)
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("error")
def test_arrays_of_another_kind_are_one_line(tmp_path, monkeypatch):
    """A single array was `does not support the context manager protocol`; of complex numbers the real part was taken."""
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.ones((2, 3)))
    with pytest.raises(SesameError, match="it is a single array, as of .npy; `words` and `vectors` expected"):
        brought(Path("one.npy"), format="npz")
    np.savez("complex.npz", words=np.array(["a", "b"]), vectors=np.ones((2, 3), complex))
    with pytest.raises(SesameError, match="`vectors` are complex128, where real numbers are expected"):
        brought(Path("complex.npz"), format="npz")


def listed(train_pairs: str, test_pairs: str, **options) -> params.PairsDictionary:
    for name, content in (("train", train_pairs), ("test", test_pairs)):
        Path(f"{name}.txt").write_text(content)
    files = {name: {"source": {"kind": "files", "paths": [f"{name}.txt"]}} | options.pop(name, {}) for name in ("train", "test")}
    return params.PairsDictionary(kind="pairs", **files, **options)


ENGLISH, GERMAN = ["the", "dog", "cat", "house"], ["der", "hund", "katze", "haus", "die"]


def test_lists_of_pairs(tmp_path, monkeypatch):
    """Tabs or spaces, several translations, what is not in the vocabularies counted, what is asked for never learned from."""
    monkeypatch.chdir(tmp_path)
    dictionary = listed("The\tder\nthe die\nthe die\nbird vogel\ncat katze\n\n", "cat katze\nhouse haus\nhouse heim\nfish fisch\n")
    built = dictionaries.load("pairs")(dictionary, ENGLISH, GERMAN, 1)
    assert built.train == [("the", "der"), ("the", "die")]
    assert built.test == {"cat": {"katze"}, "house": {"haus", "heim"}, "fish": {"fisch"}}
    assert built.left_out == {"repeated": 1, "asked_for": 1, "not_in_the_vocabularies": 1}
    lines = '{"en": "the", "de": ["der", "die"]}\n{"en": "dog", "de": "hund"}\n'
    options = {"format": "jsonl", "keys": ("en", "de")}
    built = dictionaries.load("pairs")(listed(lines, "cat katze\n", train=options), ENGLISH, GERMAN, 1)
    assert built.train == [("the", "der"), ("the", "die"), ("dog", "hund")]
    decomposed = listed("dog hu\u0308ndin\n", "cat katze\n")
    built = dictionaries.load("pairs")(decomposed, ENGLISH, [*GERMAN, "hündin"], 1)
    assert built.train == [("dog", "hündin")]
    built = dictionaries.load("pairs")(listed("der the\nhund dog\n", "katze cat\n", reverse=True), ENGLISH, GERMAN, 1)
    assert built.train == [("the", "der"), ("dog", "hund")] and built.test == {"cat": {"katze"}}
    built = dictionaries.load("pairs")(listed("the der\ndog hund\n", "cat katze\n", train={"max_pairs": 1}), ENGLISH, GERMAN, 1)
    assert built.train == [("the", "der")]


def test_pairs_that_are_all_asked_for_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert not dictionaries.load("pairs")(listed("cat katze\n", "cat katze\n"), ENGLISH, GERMAN, 1).train
    assert "dictionary.train: all of its 1 pairs are of words that dictionary.test asks for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("train", "test", "options", "said"),
    [
        (
            "der the\nhund dog\n",
            "cat katze\n",
            {},
            r"dictionary.train: 0 of 2 pairs are a word of the source .* 2 the other way round: set",
        ),
        ("the der\n", "fish fisch\n", {}, "dictionary.test: none of its 1 pairs is in the two vocabularies"),
        ("the der\nthe\n", "cat katze\n", {}, "train.txt, line 2: two words expected, 1 found"),
        ("the der\n", "\n", {}, "dictionary.test: no pair is in test.txt, so that nothing can be tested: give it lines"),
        ("the der das\n", "cat katze\n", {}, "train.txt, line 1: two words expected, 3 found"),
        ('{"source": 1}\n', "cat katze\n", {"train": {"format": "jsonl"}}, "line 1: a JSON object with source and target expected"),
        ('{"source": "a", "source": "b", "target": "c"}\n', "cat katze\n", {"train": {"format": "jsonl"}}, "an object has 'source' twice"),
        ('{"source": \n', "cat katze\n", {"train": {"format": "jsonl"}}, "line 1: not valid JSON"),
        ('{"source": 1, "target": "x"}\n', "cat katze\n", {"train": {"format": "jsonl"}}, "line 1: source and target must be words"),
    ],
)
def test_lists_that_do_not_fit_are_one_line(tmp_path, monkeypatch, train, test, options, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SesameError, match=said):
        dictionaries.load("pairs")(listed(train, test, **options), ENGLISH, GERMAN, 1)


def test_a_header_and_an_empty_list_to_learn_from_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    built = dictionaries.load("pairs")(listed("English\tGerman\nthe\tder\n", "cat katze\n"), ENGLISH, GERMAN, 1)
    assert built.train == [("the", "der")]
    assert "train.txt, line 1: 'English German' is read as a pair; if it is a header, remove that line" in capsys.readouterr().out
    dictionaries.load("pairs")(listed("of von\nthe der\n", "cat katze\n"), ENGLISH, GERMAN, 1)
    assert not capsys.readouterr().out
    assert not dictionaries.load("pairs")(listed("\n", "cat katze\n"), ENGLISH, GERMAN, 1).train
    assert "dictionary.train: no pair is in train.txt: only methods with another `start`" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "npz"])
def test_a_vector_that_is_not_finite_has_a_place(tmp_path, monkeypatch, capsys, form):
    monkeypatch.chdir(tmp_path)
    Path("vectors.text").write_text("3 2\n\nthe 1 2\nof nan 3\nin inf 3\n")
    np.savez("vectors.npz", words=np.array(["the", "of", "in"]), vectors=np.array([[1, 2], [np.nan, 3], [np.inf, 3]]))
    brought(Path(f"vectors.{form}"), format=form)
    place = {"text": "line 4", "npz": "vector 2"}[form]
    assert f"left out: 2 not finite (the first is vectors.{form}, {place})" in capsys.readouterr().out


def test_numerals_and_words_spelled_alike():
    assert dictionaries.numerals(["the", "1984", "a1", "7"], ["7", "1984", "a1"]) == [("1984", "1984"), ("7", "7")]
    assert dictionaries.spelled_alike(["the", "taxi", "7"], ["taxi", "7"]) == [("taxi", "taxi"), ("7", "7")]


def test_numerals_are_words_where_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/one")
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("In 1984, 2 men's X5.\n")
    made = {name: settings({"v": PPMI | {"corpus": "one", "numerals": name}}).vectors["v"] for name in (False, True)}
    assert vectors.sentences_of(made[False]) == [["in", "men", "s", "x"]]
    assert vectors.sentences_of(made[True]) == [["in", "1984", "2", "men", "s", "x", "5"]]


def test_text_without_blanks_between_words_is_said(tmp_path, monkeypatch, capsys):
    """Its clauses would be words, and vectors of them say nothing."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/one")
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("我们在学校学习汉语。\n\nin Rome\n")
    assert vectors.sentences_of(settings({"v": PPMI | {"corpus": "one"}}).vectors["v"])[1:] == [["in", "rome"]]
    assert "33% of the words are of scripts without blanks between words" in capsys.readouterr().out
    (folder / "train.txt").write_text("in Rome\n")
    vectors.sentences_of(settings({"v": PPMI | {"corpus": "one"}}).vectors["v"])
    assert not capsys.readouterr().out


def own_spaces(**alignment) -> params.Params:
    """Two spaces of 300 words, one a rotation of the other, and their dictionary."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((300, 12)).astype(np.float32)
    names = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(300)]
    turn = np.linalg.qr(draw.standard_normal((12, 12)))[0].astype(np.float32)
    for name, prefix, rows in (("one", "", x), ("two", "z", x @ turn)):
        save(
            Space([*(prefix + word for word in names[:270]), *map(str, range(30))], np.zeros(300, int), rows),
            Path(f"data/vectors/{name}"),
        )
    pairs = "".join(f"{word} z{word}\n" for word in names[:270])
    train, test = pairs.splitlines(keepends=True)[:200], pairs.splitlines(keepends=True)[200:]
    return settings({}, source="one", target="two", dictionary=listed("".join(train), "".join(test)), **alignment)


def test_few_pairs_are_warned_of_and_numerals_alone_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    methods = [{"preset": "mikolov_2013", "seed_pairs": 8}, {"preset": "artetxe_2018b", "name": "numerals", "start": "numerals"}]
    metrics = align.align(own_spaces(methods=methods), "pair", None)
    assert "mikolov_2013: 8 pairs are fewer than the 12 dimensions, and least squares overfits them" in capsys.readouterr().out
    assert metrics["methods"]["numerals"]["seed_pairs"] == 30 and metrics["methods"]["numerals"]["csls"]["p1"] > 0.95
    assert metrics["methods"]["numerals"]["csls"]["queries_unseen"] == 70, "no gold is among what numerals taught"
    assert metrics["unlikeness"] == pytest.approx(0, abs=1)


def test_gensim_reads_vectors_and_an_alignment(tmp_path, monkeypatch):
    """In the shared space the nearest word of the other file is the translation, for as many test words as were found
    by `align`."""
    monkeypatch.chdir(tmp_path)
    made = own_spaces(methods=[{"preset": "xing_2015"}])
    found = align.align(made, "pair", None)["methods"]["xing_2015"]["nn"]["p1"]
    [file] = interchange.export(made, "one", None, None)
    keyed, space = KeyedVectors.load_word2vec_format(str(file)), load("data/vectors/one")
    assert keyed.index_to_key == space.words and np.array_equal(keyed.vectors, space.vectors)
    source, target, test = interchange.export(made, "pair", "xing_2015", tmp_path / "new")
    here, there = (KeyedVectors.load_word2vec_format(str(path)) for path in (source, target))
    pairs = [line.split() for line in test.read_text().splitlines()]
    assert len(pairs) == 70
    hits = [there.similar_by_vector(here[word], topn=1)[0][0] == gold for word, gold in pairs]
    assert np.mean(hits) == pytest.approx(found) and found > 0.9
    for args, said in ((("none", None), "none: neither an alignment"), (("pair", "other"), "--method other: alignment pair has xing_2015")):
        with pytest.raises(SesameError, match=said):
            interchange.export(made, *args, None)
    save(Space(["new york"], np.zeros(1, int), np.ones((1, 2), np.float32)), Path("data/vectors/blank"))
    [file] = interchange.export(made, "blank", None, None)
    assert KeyedVectors.load_word2vec_format(str(file)).index_to_key == ["new_york"]


def test_words_that_are_one_in_word2vecs_text_are_written_once(tmp_path, monkeypatch, capsys):
    """gensim left a word out and kept its place: an index with None in it."""
    monkeypatch.chdir(tmp_path)
    words = ["the", "new york", "new_york", "york"]
    save(Space(words, np.array([9, 5, 3, 2]), np.eye(4, dtype=np.float32)), Path("data/vectors/twice"))
    [file] = interchange.export(params.Params.model_construct(alignments={}), "twice", None, None)
    keyed = KeyedVectors.load_word2vec_format(str(file))
    assert keyed.index_to_key == ["the", "new_york", "york"] and keyed["new_york"].argmax() == 1 and keyed["york"].argmax() == 3
    assert "1 left out: written like a more frequent word" in capsys.readouterr().out


def test_nothing_to_begin_with_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = own_spaces(methods=[{"preset": "xing_2015", "start": "numerals"}])
    space = load("data/vectors/two")
    save(
        Space([word.replace("1", "i") for word in space.words[:271]], space.counts[:271], space.vectors[:271]),
        Path("data/vectors/two"),
    )
    save(Space(space.words[:270], space.counts[:270], space.vectors[:270]), Path("data/vectors/two"))
    with pytest.raises(SesameError, match=r"method xing_2015: the two vocabularies have no seed pairs \(start: numerals\)"):
        align.align(made, "pair", None)


def test_no_method_begins_with_what_is_asked_for(tmp_path, monkeypatch):
    """Words of both sides are asked for; spelled alike, they are no seed. And what was taught is told from what was not."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]
    for name in ("one", "two"):
        rows = draw.standard_normal((60, 100)).astype(np.float32)
        save(Space(words, np.zeros(60, int), rows), Path(f"data/vectors/{name}"))
    identical = {"kind": "identical", "train": 30, "test": 30}
    metrics = align.align(
        settings({}, source="one", target="two", dictionary=identical, methods=[{"preset": "xing_2015", "start": "identical"}]),
        "pair",
        None,
    )
    assert metrics["methods"]["xing_2015"]["nn"]["p1"] < 0.2 and metrics["methods"]["xing_2015"]["seed_pairs"] == 30
    assert not Path("data/align/pair/moved.csv").exists(), "without counts"
    taught = listed("wab wab\nwac wac\n", "wad wab\nwae wae\n")
    metrics = align.align(settings({}, source="one", target="two", dictionary=taught, methods=["xing_2015"]), "pair", None)
    assert metrics["methods"]["xing_2015"]["nn"]["queries_unseen"] == 1
    assert 1 / 60 <= metrics["methods"]["xing_2015"]["nn"]["mrr"] < 0.5
    with pytest.raises(SesameError, match="imported vectors have no counts of their words"):
        align.align(settings({}, source="one", target="two", dictionary=identical, controls=["same"]), "pair", None)
    with pytest.raises(SesameError, match="curve.seed_pairs: there are 2 train pairs, fewer than the smallest size"):
        align.align(
            settings({}, source="one", target="two", dictionary=taught, curve={"methods": ["xing_2015"], "seed_pairs": [5, 9]}),
            "pair",
            None,
        )


@pytest.mark.parametrize("width", [1, 5])
def test_one_word_that_can_be_asked_for_is_enough(tmp_path, monkeypatch, width):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("one", "two"):
        rows = draw.standard_normal((40, width)).astype(np.float32)
        save(
            Space([f"w{chr(97 + i)}" if i < 26 else f"x{chr(71 + i)}" for i in range(40)], np.zeros(40, int), rows),
            Path(f"data/vectors/{name}"),
        )
    made = settings({}, source="one", target="two", dictionary=listed("wa wa\nwb wb\n", "wd wd\n"), methods=["xing_2015"])
    assert align.align(made, "pair", None)["queries"] == 1
    storage.write_json(Path("metrics.json"), align.align(made, "pair", None))  # no NaN


ORDER = {"the": "the", "dog": "hund", "cat": "katze", "house": "haus", "red": "rot", "old": "alt", "sleeps": "schläft", "runs": "läuft"}
"""English -> German, but for `the`, which is `der` or `die`."""


def parallel(folder: Path, **options) -> params.ParallelDictionary:
    draw, sides = random.Random(0), ([], [])
    for _ in range(120):
        noun, verb = draw.choice(["dog", "cat", "house"]), draw.choice(["sleeps", "runs"])
        colour = draw.choice(["red", "old"])
        english = ["The", *(["very"] if colour == "old" and draw.random() < 0.5 else []), colour, noun, verb]
        german = [ORDER[word] for word in (verb, noun, colour)] + [draw.choice(["der", "der", "die"])]
        for side, words in zip(sides, (english, german), strict=True):
            side.append(" ".join(words) + ".")
    for name, side in zip(("en.txt", "de.txt"), sides, strict=True):
        (folder / name).write_text("\n".join(side) + "\n")
    (folder / "pairs.txt").write_text("house haus\nmouse maus\n")
    files = {"kind": "files", "paths": [str(folder / "en.txt"), str(folder / "de.txt")]}
    test = {"source": {"kind": "files", "paths": [str(folder / "pairs.txt")]}}
    return params.ParallelDictionary(kind="parallel", texts=files, test=test, **options)


def test_pairs_out_of_translated_sentences_in_another_order(tmp_path):
    """Each word is told from the others of its sentences; what translates one way (`very` is nearest to `alt`) is not among them, nor
    what is asked for, nor what no vocabulary has."""
    here = ["the", "very", "dog", "cat", "house", "red", "old", "runs"]
    there = ["der", "die", "hund", "katze", "haus", "rot", "alt", "läuft"]
    built = dictionaries.load("parallel")(parallel(tmp_path), here, there, 1)
    assert built.train == [(word, ORDER[word] if word != "the" else "der") for word in ("the", "dog", "cat", "red", "old", "runs")]
    assert built.test == {"house": {"haus"}, "mouse": {"maus"}} and built.left_out == {"asked_for": 1, "not_in_the_vocabularies": 1}
    assert dictionaries.load("parallel")(parallel(tmp_path, min_count=50), here, there, 1).train[0] == ("the", "der")


def test_texts_that_are_no_translations_are_one_line(tmp_path):
    settings = parallel(tmp_path)
    with pytest.raises(SesameError, match="none of its 7 word pairs is in the two vocabularies; are its files the other way round"):
        dictionaries.load("parallel")(settings, ["hund"], ["dog"], 1)
    (tmp_path / "de.txt").write_text("Der Hund.\n")
    with pytest.raises(SesameError, match="en.txt has 120 lines and .*de.txt 1: not each other's translations"):
        dictionaries.load("parallel")(settings, ENGLISH, GERMAN, 1)
    (tmp_path / "de.txt").unlink()
    one = settings.model_copy(update={"texts": params.FilesSource(kind="files", paths=[str(tmp_path / "en.txt")])})
    with pytest.raises(SesameError, match="two files expected, the source's sentences and their translations; 1 found"):
        dictionaries.load("parallel")(one, ENGLISH, GERMAN, 1)


def test_found_both_ways_and_found_often():
    """Words and their twins: all are found, all find back; a hub is found by every query and finds back one of them at most."""
    draw = np.random.default_rng(0)
    rows, centre = draw.standard_normal((40, 10)), draw.standard_normal(10)
    rows[:8] = centre + 0.5 * rows[:8]
    x = unit(rows).astype(np.float32)
    words = [f"w{i}" for i in range(40)]
    pair = align.Pair(space(words, d=10), space(words, d=10), dictionaries.Dictionary([], {word: {word} for word in words[:8]}, {}))

    def looked(fixed: np.ndarray) -> tuple:
        brought = align.Aligned(None, torch.from_numpy(x), torch.from_numpy(fixed), {}, set())
        [(_, best, mutual, _)] = align.translate(pair, brought, ["nn"], words[:8], 10)
        return best, mutual

    best, mutual = looked(x)
    assert mutual.all() and (best[:, 0] == np.arange(8)).all()
    hub = x.copy()
    hub[:8] = -x[:8]
    hub[39] = unit(centre[None])[0]
    best, mutual = looked(hub)
    assert (best[:, 0] == 39).all() and mutual.sum() <= 1
    often = {row["times"]: row["targets"] for row in evaluate.found_often(np.array([[3, 1], [3, 2], [3, 1]]))}
    assert often == {1: 1, 2: 1, 3: 1}
