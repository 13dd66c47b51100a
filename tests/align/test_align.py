"""Mappings and retrieval against their definitions, the dictionary's promises, and the stages on a small made-up language."""

import csv
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import numpy as np
import pytest

from components import params, stage
from components.align import __main__ as align_stage
from components.align import dictionaries, evaluate, trainers, vectors
from components.align.mappings import MAPPINGS, least_squares, normalise, procrustes, unit
from components.align.retrieval import RETRIEVALS, csls, neighbourhood, nn, top
from components.errors import SesameError


def rotation(draw: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(draw.standard_normal((d, d)))[0].astype(np.float32)


# ---------------------------------------------------------------- mappings and retrieval


def test_normalise_is_unit_and_centred_before_the_last_step():
    x = np.random.default_rng(0).standard_normal((50, 8)) + 3
    centred = unit(x) - unit(x).mean(axis=0)
    np.testing.assert_allclose(normalise(x), unit(centred))
    np.testing.assert_allclose(np.linalg.norm(normalise(x), axis=1), 1)
    assert not np.isnan(normalise(np.zeros((3, 4)))).any()


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_pure_rotation_is_found_exactly(name):
    draw = np.random.default_rng(0)
    x, r = draw.standard_normal((200, 20)).astype(np.float32), rotation(draw, 20)
    np.testing.assert_allclose(MAPPINGS[name](x, x @ r), r, atol=1e-4)


def test_procrustes_is_orthogonal_and_the_best_of_them():
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((2, 60, 10))
    w = procrustes(x, y)
    np.testing.assert_allclose(w @ w.T, np.eye(10), atol=1e-10)
    loss = np.linalg.norm(x @ w - y)
    assert all(loss <= np.linalg.norm(x @ rotation(draw, 10) - y) for _ in range(20))
    assert np.linalg.norm(x @ least_squares(x, y) - y) <= loss


def test_csls_is_its_formula(monkeypatch):
    monkeypatch.setattr("components.align.retrieval.BLOCK", 7)  # several blocks
    draw = np.random.default_rng(0)
    source, target = unit(draw.standard_normal((40, 6))), unit(draw.standard_normal((30, 6)))
    queries, k = source[5:15], 4
    scores = csls(queries, target, source, k)
    for i, x in enumerate(queries):
        for j, y in enumerate(target):
            r_t = np.mean(sorted((x @ t for t in target), reverse=True)[:k])
            r_s = np.mean(sorted((s @ y for s in source), reverse=True)[:k])
            assert scores[i, j] == pytest.approx(2 * (x @ y) - r_t - r_s)
    assert neighbourhood(queries, target[:2], 10) == pytest.approx((queries @ target[:2].T).mean(axis=1))  # fewer than k


def test_top_is_best_first_with_ties_to_the_more_frequent():
    assert top(np.array([[0.1, 0.9, 0.5, 0.9]]), 3).tolist() == [[1, 3, 2]]


def clustered(n: int = 4000, d: int = 100, clusters: int = 50, within: float = 0.45, noise: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Words in clusters, and the same words rotated with noise: normalised, (n, d) each."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((clusters, d))[draw.integers(clusters, size=n)] + within * draw.standard_normal((n, d))
    y = x @ rotation(draw, d) + noise * draw.standard_normal((n, d))
    return normalise(x.astype(np.float32)), normalise(y.astype(np.float32))


def test_the_known_behaviour_on_synthetic_spaces():
    """With as many pairs as dimensions least squares finds nothing and Procrustes with CSLS some; with many both do."""
    x, y = clustered()
    asked = np.arange(3000, 3500)

    def p1(mapping: str, retrieval: str, seeds: int) -> float:
        mapped = unit(x @ MAPPINGS[mapping](x[:seeds], y[:seeds]))
        return float((top(RETRIEVALS[retrieval](mapped[asked], y, mapped, 10), 1)[:, 0] == asked).mean())

    assert p1("least_squares", "csls", 100) < 0.03
    assert 0.12 < p1("procrustes", "csls", 100) < 0.30
    least, best = p1("least_squares", "csls", 2000), p1("procrustes", "csls", 2000)
    assert 0.75 < least < best and best > 0.9
    assert p1("procrustes", "nn", 2000) < best - 0.1  # hubs


# ---------------------------------------------------------------- scores


def space(words: list[str], counts: list[int] | None = None, d: int = 4) -> vectors.Space:
    draw = np.random.default_rng(0)
    return vectors.Space(words, np.array(counts or [100] * len(words)), draw.standard_normal((len(words), d)).astype(np.float32))


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
    candidates, translations = dictionaries.load("wordnet")(dictionary, ["cat", "bird", "dog"], [])
    assert candidates == ["cat", "dog"] and translations["dog"] == {"chien": 2, "clebs": 1} and translations["cat"] == {"chat": 1}


def test_no_source_word_is_both_learned_from_and_asked_for(tmp_path):
    source = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]

    def lemmas(table, prefix):
        return "".join(f'INSERT INTO {table} VALUES ("n#{i // 2}","n","{prefix}{word}","N");\n' for i, word in enumerate(source))

    dictionary = wordnet(tmp_path, lemmas("english_lemma", ""), lemmas("french_lemma", "f"), train=100, test=30)
    target = [f"f{word}" for word in source[:150]]
    built = dictionaries.build(dictionary, source, target, seed=1)
    assert len(built.test) == 30 and not {a for a, _ in built.train} & set(built.test)
    assert {a for a, _ in built.train} | set(built.test) == set(source[:130])  # the most frequent
    assert all(b in target for _, b in built.train) and all(len(gold) == 2 for gold in built.test.values())
    assert dictionaries.build(dictionary, source, target, seed=1) == built
    assert dictionaries.build(dictionary, source, target, seed=2).test != built.test
    with pytest.raises(SesameError, match="too few to hold out 30"):
        dictionaries.build(dictionary, source[:35], target, seed=1)


def test_identical_words():
    dictionary = params.IdenticalDictionary(kind="identical", train=10, test=3)
    built = dictionaries.build(dictionary, [f"w{i}" for i in range(30)], [f"w{i}" for i in range(10, 40)], seed=1)
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
    kinds = {"skip_gram": params.SkipGram, "ppmi_svd": params.PpmiSvd}
    declared = {name: kinds[raw["kind"]](**raw) for name, raw in vectors_of.items()}
    return params.Params.model_construct(vectors=declared, alignments={"pair": params.Alignment(**alignment)} if alignment else {})


PPMI = {"kind": "ppmi_svd", "vector_size": 20}
SGNS = {"kind": "skip_gram", "vector_size": 20}


@pytest.mark.parametrize("kind", [PPMI, SGNS])
def test_vectors_know_the_topics(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    metrics = vectors.body(settings({"v": kind | {"corpus": "one"}}), "v", None)
    assert metrics["words"] == 1500 * 8 and metrics["vocabulary"] == 120
    space = vectors.load("data/vectors/v")
    assert space.vectors.shape == (120, 20) and space.counts.sum() == 12000 and list(space.counts) == sorted(space.counts, reverse=True)
    near = top(nn(normalise(space.vectors), normalise(space.vectors), space.vectors, 1), 8)
    assert np.mean([space.words[n][0] == word[0] for word, row in zip(space.words, near, strict=True) for n in row]) > 0.9
    assert len(vectors.load("data/vectors/v", limit=10).words) == 10
    with pytest.raises(SesameError, match="lower min_count or take more text"):
        vectors.body(settings({"v": kind | {"corpus": "one", "min_count": 10**6}}), "v", None)


def test_every_kind_that_can_be_declared_is_a_file():
    def kinds(union: object) -> set[str]:
        return {kind for block in get_args(get_args(union)[0]) for kind in get_args(block.model_fields["kind"].annotation)}

    def there(package: ModuleType, *helpers: str) -> set[str]:
        return {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__", *helpers}

    assert kinds(params.Vectors) == there(trainers, "vocabulary") and kinds(params.align.Dictionary) == there(dictionaries)
    assert all(callable(trainers.load(kind)) for kind in there(trainers, "vocabulary"))
    assert all(callable(dictionaries.load(kind)) for kind in there(dictionaries))


def test_vectors_do_not_depend_on_the_hash_seed(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from components import params\nfrom components.align import trainers\n"
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


def test_halves_are_disjoint_of_as_many_words_and_drawn():
    draw = random.Random(0)
    documents = [[[f"w{i}"] * draw.randint(1, 9) for _ in range(draw.randint(1, 30))] for i in range(40)]

    def words(half) -> list[str]:
        return [word for document in half for sentence in document for word in sentence]

    first, second = vectors.halves(documents, 1)
    a, b = words(first), words(second)
    assert not set(a) & set(b) and len(set(a) | set(b)) > 38 and 0 <= abs(len(a) - len(b)) < 9
    assert words(vectors.halves(documents, 1)[0]) == a != words(vectors.halves(documents, 2)[0])
    sentences = [sentence for document in documents for sentence in document]
    assert 290 < sum(map(len, vectors.cut(sentences, 300))) <= 300 and vectors.cut(sentences, None) == sentences


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
    made = settings(both, source="one", target="two", dictionary=dictionary)
    for name in both:
        vectors.body(made, name, None)
    metrics = align_stage.body(made, "pair", None)
    assert metrics["coverage"] == 1 and metrics["queries"] == 30 and metrics["train_pairs"] == 80
    assert metrics["procrustes"]["csls"]["p10"] > 0.9 and metrics["chance_p1"] == pytest.approx(1 / 120)
    folder = Path("data/align/pair")
    scores = table(folder / "scores.csv")
    assert [(row["mapping"], row["retrieval"]) for row in scores] == [(m, r) for m in MAPPINGS for r in RETRIEVALS]
    assert all(row["queries_unseen"] == "30" and row["p1_unseen"] == row["p1"] for row in scores), "each word has one translation"
    assert float(scores[3]["p10"]) == metrics["procrustes"]["csls"]["p10"] and scores[0]["coverage"] == "1.0"
    assert np.load(folder / "mapping.npz")["procrustes"].shape == (20, 20) and not (folder / "moved.csv").exists()
    examples = table(folder / "examples.csv")
    assert len(examples) == 4 * 20 and examples[0]["gold"] == f"z{examples[0]['word']}" and len(examples[0]["found"].split()) == 5
    stage.write_json(Path("data/metrics/align/pair.json"), metrics)  # plain numbers only


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
        vectors.body(made, name, None)
    metrics = align_stage.body(made, "pair", None)
    moved = table(Path("data/align/pair/moved.csv"))
    assert {row["word"] for row in moved[:2]} == {"aa", "bb"} and metrics["moved"]["words"] == len(moved)
    assert float(moved[0]["distance"]) > 0.5 > metrics["moved"]["mean_distance"]


def test_spaces_of_different_width(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus("one", "")
    both = {"one": PPMI | {"corpus": "one"}, "two": PPMI | {"corpus": "one", "vector_size": 10}}
    made = settings(both, source="one", target="two", dictionary=params.IdenticalDictionary(kind="identical", train=80, test=30))
    for name in both:
        vectors.body(made, name, None)
    with pytest.raises(SesameError, match="have 20 dimensions and vectors.two 10"):
        align_stage.body(made, "pair", None)
