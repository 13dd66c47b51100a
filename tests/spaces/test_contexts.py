"""Neighbours of a word in its context."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components import params
from components.core.errors import SesameError
from components.embeddings import align, contexts, contextual, space
from components.embeddings.contexts import Word
from components.models import store
from components.text import corpora, tokenizer
from pipelines import cli
from tests.conftest import tiny_params


@pytest.fixture
def model(project) -> Path:
    """A model with random weights: each of its words is nearest to itself in the same sentence all the same."""
    torch.manual_seed(0)
    block, tokens = params.check(tiny_params()).models["bert"].architecture, tokenizer.load(Path("data/tokenizers/tiny"))
    store.save(Path("data/models/bert"), store.build(block, tokens).state_dict(), block, tokens)
    return project


def test_a_word_finds_its_own_sentence_first(model):
    text = next(text for text in chain.from_iterable(corpora.read(Path("data/corpora/tiny"), "valid")) if len(space.WORD.findall(text)) > 3)
    place = list(space.WORD.finditer(text))[2]
    prompt = f"{text[: place.start()]}*{place.group()}*{text[place.end() :]}"
    layer, searched, found = contexts.neighbours("bert", prompt, "tiny", None, 200, 4)
    likenesses = [likeness for likeness, _ in found]
    assert searched == len(list(chain.from_iterable(corpora.read(Path("data/corpora/tiny"), "valid")))) < 200
    assert layer == 2 and len(found) == 4 and likenesses == sorted(likenesses, reverse=True)
    assert found[0] == (pytest.approx(1, abs=1e-5), Word(text, place.start(), place.end()).shown())


def test_a_word_differs_by_its_context_and_not_by_its_batch(model):
    bert, tokens = store.load(Path("data/models/bert"))
    bert.eval()
    texts = ["A word here.", "Some other word here."]
    words = [[Word(texts[0], 2, 6)], [Word(texts[1], 11, 15)]]
    for layer in (1, 2):
        (_, a), (_, b) = contexts.embedded(bert, tokens, texts, words, layer)
        assert not torch.allclose(a, b, atol=1e-4) and float(a.norm()) == pytest.approx(1)
        (_, alone) = next(contexts.embedded(bert, tokens, texts[:1], words[:1], layer))
        torch.testing.assert_close(alone, a, atol=1e-5, rtol=1e-4)


def test_the_command_shows_a_word_with_and_without_its_context(model):
    with open("params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    rows = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    space.save(space.Space(["river", *(f"w{i}" for i in range(29))], np.ones(30, int), rows), Path("data/vectors/one"))
    asked = ["neighbours", "bert", "the dog sees the *river*", "--vectors", "one", "--top", "3"]
    done = CliRunner().invoke(cli.app, asked)
    assert done.exit_code == 0, done.output
    assert "bert, layer 2, among the words of" in done.output and "one: river without context" in done.output
    assert len([line for line in done.output.splitlines() if line.strip()[:2] in ("0.", "1.", "-0")]) == 6, done.output


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        ("no stars", {}, "one word between stars expected, as in 'a .play. in context'; 0 found"),
        ("*two* *words*", {}, "; 2 found"),
        ("a *word*", {"layer": 3}, r"model bert has no layer 3 \(0, the embedding, to 2\)"),
        ("long " * 200 + "*word*", {}, "the prompt has [0-9]+ tokens, and model bert reads 32: shorten it"),
        ("*a* " + "long " * 200, {}, "the prompt has [0-9]+ tokens, and model bert reads 32: shorten it"),
    ],
)
def test_what_is_wrong_is_one_line(model, prompt, options, said):
    with pytest.raises(SesameError, match=said):
        contexts.neighbours("bert", prompt, "tiny", options.get("layer"), 20, 4)


def test_without_context(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    rows[7] = rows[3] + 0.01
    space.save(space.Space([f"w{i}" for i in range(30)], np.ones(30, int), rows), Path("data/vectors/own"))
    found = contexts.without_context("own", "W3", 4)
    assert found[0][1] == "w7" and len(found) == 4 and "w3" not in [word for _, word in found]
    with pytest.raises(SesameError, match="data/vectors/own has no vector of 'x'"):
        contexts.without_context("own", "x", 4)


def test_a_model_from_elsewhere_needs_a_corpus():
    with pytest.raises(SesameError, match="model minilm was not pre-trained here: name a corpus"):
        contexts.corpus_of(params.load(), "minilm")
    assert contexts.corpus_of(params.load(), "elmo") == "english"
    with pytest.raises(SesameError, match=r"no model 'nope' in params.yaml \(there are: bert, gpt, elmo"):
        contexts.corpus_of(params.load(), "nope")
    words = params.load().model_copy(update={"word_models": {"glove": None}})
    with pytest.raises(SesameError, match="model glove was not pre-trained here: name a corpus"):
        contexts.corpus_of(words, "glove")


def averaged(**options) -> tuple[dict, space.Space]:
    block = params.ContextualVectors(model="bert", corpus="tiny", min_count=3, **options)
    metrics = contextual.contextual_vectors(params.Params.model_construct(contextual_vectors={"own": block}), "own", None)
    return metrics, space.load("data/vectors/own")


def test_a_word_is_the_mean_of_its_occurrences(model):
    metrics, own = averaged(layer=1)
    assert metrics["vocabulary"] == len(own.words) > 20 and own.counts[0] == max(own.counts) and min(own.counts) >= 3
    bert, tokens = store.load(Path("data/models/bert"))
    bert.eval()
    word, found = own.words[5], []
    for text in chain.from_iterable(corpora.read(Path("data/corpora/tiny"), "train")):
        found += [vector for at, vector in contexts.embedded(bert, tokens, [text], [contexts.words_in(text)], 1) if at.lowered() == word]
    assert len(found) == own.counts[5]
    np.testing.assert_allclose(own.vectors[5], torch.stack(found).mean(dim=0).numpy(), atol=1e-5)


def test_words_beyond_what_the_model_reads_at_once_are_read_too(model):
    """As behind the cut of sentence-transformers (its issue 4060): a long segment is read in windows."""
    folder = Path("data/corpora/long")
    folder.mkdir()
    line = " ".join(["The dog sees the river."] * 12 + ["Two children paint a wooden house."] * 12)
    (folder / "train.txt").write_text(f"{line}\n\n{line}\n")
    block = params.ContextualVectors(model="bert", corpus="long", min_count=3)
    contextual.contextual_vectors(params.Params.model_construct(contextual_vectors={"own": block}), "own", None)
    own = space.load("data/vectors/own")
    words = space.WORD.findall(f"{line} {line}".lower())
    assert dict(zip(own.words, own.counts.tolist(), strict=True)) == {word: words.count(word) for word in words}
    bert, tokens = store.load(Path("data/models/bert"))
    asked = contexts.words_in(line)
    read = list(contexts.embedded(bert.eval(), tokens, [line], [asked], 2))
    assert [word for word, _ in read] == asked
    assert list(contexts.windows(7, np.array([[0, 1], [1, 4], [4, 7]]), 3)) == [(0, 1), (1, 4), (4, 7)]
    assert list(contexts.windows(9, np.array([[0, 8]]), 4)) == [(0, 4), (4, 8), (8, 9)]
    assert not list(contexts.windows(0, np.zeros((0, 2), dtype=np.int64), 4))


def test_two_layers_of_a_model_are_aligned_like_two_languages(model):
    """Of the same words: a rotation finds most of them again, and by chance it would find one in forty."""
    for name, layer in (("below", 0), ("above", 2)):
        block = params.ContextualVectors(model="bert", corpus="tiny", min_count=3, layer=layer)
        contextual.contextual_vectors(params.Params.model_construct(contextual_vectors={name: block}), name, None)
    pair = params.Alignment(
        source="below", target="above", dictionary={"kind": "identical", "train": 24, "test": 8, "min_count": 3}, methods=["xing_2015"]
    )
    metrics = align.align(params.Params.model_construct(alignments={"layers": pair}), "layers", None)
    assert metrics["methods"]["xing_2015"]["csls"]["p1"] > 0.2 > 4 * metrics["chance_p1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": 3}, r"model bert has no layer 3 \(0, the embedding, to 2\)"),
        ({"max_words": 5}, "no word occurs min_count .3. times in corpus 'tiny': lower it or take more text"),
    ],
)
def test_what_gives_no_vectors_is_one_line(model, options, said):
    with pytest.raises(SesameError, match=said):
        averaged(**options)
