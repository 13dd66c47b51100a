"""Word similarity and analogies against gensim's own evaluation, and by hand."""

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from components.embeddings import intrinsic
from components.embeddings.maps import unit
from components.embeddings.space import Space, has_capitals


def words_of(name: str, most: int) -> list[str]:
    lines = [line for line in intrinsic._lines(name) if not line.startswith(":")]
    fields = [line.lower().split() if name == "analogies" else line.lower().split("\t")[:2] for line in lines]
    return list(dict.fromkeys(word for row in fields[::7] for word in row))[:most]


def spaces(words: list[str]) -> tuple[Space, KeyedVectors]:
    rows = np.random.default_rng(0).standard_normal((len(words), 20)).astype(np.float32)
    keyed = KeyedVectors(20)
    keyed.add_vectors(words, rows)
    return Space(words, np.ones(len(words), int), rows), keyed


@pytest.mark.parametrize("name", ["wordsim353", "simlex999"])
def test_similarity_is_gensims(name):
    space, keyed = spaces(words_of(name, 200))
    own = intrinsic.similarity(space, name)
    _, theirs, left_out = keyed.evaluate_word_pairs(datapath(intrinsic.FILES[name]))
    assert own["spearman"] == pytest.approx(theirs.statistic) and own["coverage"] == pytest.approx(1 - left_out / 100)
    assert own["low"] < own["spearman"] < own["high"] and 0 < own["coverage"] < 1


def test_a_few_pairs_have_no_interval(monkeypatch):
    """Of four pairs one order in twelve is perfect by chance, and its interval would be [.9999, 1]."""
    lines = list(intrinsic._lines("wordsim353"))
    for size in (4, 9, 10):
        monkeypatch.setattr(intrinsic, "_lines", lambda name, size=size: lines[:size])
        words = sorted({word.lower() for line in lines[:size] for word in line.split("\t")[:2]})
        space = Space(words, np.ones(len(words), int), np.random.default_rng(0).standard_normal((len(words), 20)).astype(np.float32))
        figures = intrinsic.similarity(space, "wordsim353")
        assert figures["asked"] == size and figures["spearman"] is not None
        assert (figures["low"] is None) == (figures["high"] is None) == (size < 10)


def test_an_answer_counts_in_any_case():
    """As in word2vec's own program: `Norway` is right where `norway` is the commoner form."""
    space, _ = spaces(words_of("analogies", 300))
    turn = {word: row for row, word in enumerate(space.words)}
    before = intrinsic.analogies(space)
    asked = [line.lower().split() for line in intrinsic._lines("analogies") if not line.startswith(":")]
    a, b, c, d = (turn[word] for word in next(words for words in asked if all(word in turn for word in words)))
    more = np.vstack([space.vectors, space.vectors[b] - space.vectors[a] + space.vectors[c]])
    both = Space([*space.words, space.words[d].upper()], np.ones(len(more), int), more)
    assert intrinsic.analogies(both)["add"] * before["asked"] > before["add"] * before["asked"] + 0.9


def test_analogies_by_adding_are_gensims():
    space, keyed = spaces(words_of("analogies", 300))
    turn = {word: row for row, word in enumerate(space.words)}
    for line in list(intrinsic._lines("analogies"))[1:4000:20]:  # some that hold, so that not all are wrong
        words = line.lower().split()
        if not line.startswith(":") and all(word in turn for word in words):
            a, b, c, d = (turn[word] for word in words)
            space.vectors[d] = space.vectors[b] - space.vectors[a] + space.vectors[c]
    keyed.vectors[:] = space.vectors
    keyed.fill_norms(force=True)
    own = intrinsic.analogies(space)
    theirs, sections = keyed.evaluate_word_analogies(datapath("questions-words.txt"), case_insensitive=True)
    assert own["asked"] == len(sections[-1]["correct"]) + len(sections[-1]["incorrect"]) > 50
    assert own["add"] == pytest.approx(theirs) and 0 < own["add"] < 1
    # each word in capitals, too, at the same place: no form of a question's own words is an answer
    cased = Space([*space.words, *map(str.upper, space.words)], np.ones(2 * len(space.words), int), np.vstack([space.vectors] * 2))
    assert intrinsic.analogies(cased) == pytest.approx(own)


def test_a_vocabulary_in_small_letters_may_have_an_unk():
    small = [f"word{i}" for i in range(200)]
    assert [has_capitals(words) for words in (small, ["UNK", *small], [*small, "Berlin", "Rome", "Paris"])] == [False, False, True]


def test_multiplying_is_its_formula(monkeypatch):
    """And now and then finds another word than adding does."""
    monkeypatch.setattr(intrinsic, "_lines", lambda name: iter([": one", "a b c d", "a b c x"]))
    words, differ = list("abcdefg"), 0
    for seed in range(40):
        rows = np.random.default_rng(seed).standard_normal((7, 3)).astype(np.float32)
        found = intrinsic.analogies(Space(words, np.ones(7, int), rows))
        cosines = (unit(rows)[:3] @ unit(rows).T)[:, 3:]
        product = (cosines[1] + 1) * (cosines[2] + 1) / 4 / ((cosines[0] + 1) / 2 + 0.001)
        assert found == {
            "add": float((cosines[1] + cosines[2] - cosines[0]).argmax() == 0), "multiply": float(product.argmax() == 0),
            "asked": 1, "coverage": 0.5,
        }  # fmt: skip
        differ += found["add"] != found["multiply"]
    assert differ


def test_nothing_to_ask_is_no_figure():
    space = Space(["xx", "yy"], np.ones(2, int), np.eye(2, dtype=np.float32))
    assert intrinsic.evaluate(space, ["wordsim353", "analogies"]) == {
        "wordsim353": {"spearman": None, "low": None, "high": None, "asked": 0, "coverage": 0},
        "analogies": {"add": None, "multiply": None, "asked": 0, "coverage": 0},
    }
