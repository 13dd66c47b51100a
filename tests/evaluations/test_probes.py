"""Probes: linear classifiers and their control, description lengths, trees, and the words of a treebank in a model."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from sklearn.linear_model import LogisticRegression

from components import params
from components.core.errors import SesameError
from components.evaluations import treebanks
from components.evaluations.config import CONLL_U, Treebank
from components.evaluations.probe import linear, structural
from components.evaluations.probe.evaluation import _classify, evaluate, labelled
from components.evaluations.treebanks import Sentence
from components.models import store
from components.report import evaluations
from components.text import sources
from tests.conftest import ran, tiny_params
from tests.evaluations.test_scoring import built

KEYS = Sentence(
    ["the", "keys", "on", "the", "table", "are", "old", "."], ["DET", "NOUN", "ADP", "DET", "NOUN", "AUX", "ADJ", "PUNCT"],
    [2, 7, 5, 5, 2, 7, 0, 7], ["det", "nsubj", "case", "det", "nmod", "cop", "root", "punct"],
)  # fmt: skip


def conll(sentences: list[Sentence]) -> str:
    """As CoNLL-U, with a comment and a multiword token before each sentence."""
    text = ""
    for own in sentences:
        text += "# a comment\n1-2\tx" + "\t_" * 8 + "\n"
        for i, (word, tag, head, relation) in enumerate(zip(own.words, own.tags, own.heads, own.relations, strict=True), 1):
            text += f"{i}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}:sub\t_\t_\n"
        text += "\n"
    return text


def of_file(path: Path, text: str, columns: list[str] = CONLL_U) -> list[Sentence]:
    path.write_text(text)
    block = Treebank(source={"kind": "files", "paths": [str(path)]}, columns=columns)
    return [*treebanks.read(sources.open_files(block.source), block.columns)]


def test_a_treebank_is_read_and_what_is_wrong_with_it_is_named(tmp_path):
    assert of_file(tmp_path / "a.conllu", conll([KEYS, KEYS])) == [KEYS, KEYS]
    assert (KEYS.depths, KEYS.spans[1], KEYS.text[4:8]) == ([2, 1, 3, 3, 2, 1, 0, 1], (4, 8), "keys")
    few = ["form", "upos", "head", "deprel"]
    assert of_file(tmp_path / "b.tsv", "# a comment\n#\tSYM\t0\troot\n1\tNUM\t1\tnummod\n", few)[0].words == ["#", "1"]
    for text, said in (
        ("a\tX\t0\n", "line 1: 3 fields, where columns names 4"), ("a\tX\t3\troot\n", "head '3': a number from 0 to 1"),
        ("\n\na\tX\t2\tdet\nb\tX\t1\tdet\n", "line 3: 0 words have head 0: one root expected"),
        ("a\tX\t0\troot\nb\tX\t3\tdet\nc\tX\t2\tdet\n", "the heads of word 2 form a cycle"),
        ("a\tX\t\u00b3\troot\n", "head '\u00b3': a number from 0 to 1"), ("a\tX\t0\troot\n \tX\t1\tdet\n", "line 1: a form is empty"),
    ):  # fmt: skip
        with pytest.raises(SesameError, match=said):
            of_file(tmp_path / "c.tsv", text, few)


def test_a_missing_id_is_one_line(tmp_path):
    """Heads count words: behind the gap each would be of another word."""
    lines = conll([KEYS]).splitlines(keepends=True)
    del lines[4]
    with pytest.raises(SesameError, match="line 5: id 4, where 3 is next; heads count the words from 1"):
        of_file(tmp_path / "a.conllu", "".join(lines))


ALONE = Sentence(["dog"], ["NOUN"], [0], ["root"])


@pytest.mark.parametrize(
    ("label", "train", "test", "said"),
    [
        ("depth", [KEYS], [KEYS], "8 words of 4 labels to train on, 0 in a tenth of train"),
        ("depth", [ALONE] * 10, [KEYS], "9 words of 1 labels to train on"),
        ("relation", [KEYS] * 10, [ALONE], "10 in a tenth|0 to test"),
        ("tree", [KEYS] * 10, [ALONE], "0 to test, and needs some of each"),
        ("tree", [KEYS], [KEYS], "a probe of tree has 0 words to train on"),
        ("depth", [KEYS] * 10, [KEYS], "bert can read 1 of 1 sentences, and the error of a score needs 2 or more"),
    ],
)
def test_too_few_words_for_a_probe_are_one_line(label, train, test, said, tokens, tmp_path):
    for split, sentences in (("train", train), ("test", test)):
        treebanks.write(tmp_path / f"{split}.jsonl", sentences)
    (tmp_path / "card.json").write_text(json.dumps({"label": label, "seed": 1}))
    with pytest.raises(SesameError, match=said):
        evaluate(tmp_path, built("bert", tokens), tokens, "bert")


@pytest.mark.parametrize("damage", ["", "null", "[]", "{}", "\xff", "text"])
@pytest.mark.parametrize("name", ["train.jsonl", "card.json"])
def test_a_damaged_file_is_one_line(name, damage, tokens, tmp_path):
    for split in ("train", "test"):
        treebanks.write(tmp_path / f"{split}.jsonl", [KEYS] * 10)
    (tmp_path / "card.json").write_text(json.dumps({"label": "depth", "seed": 1}))
    (tmp_path / name).write_bytes(damage.encode("latin-1"))
    with pytest.raises(SesameError, match=f"{name} can't be read"):
        evaluate(tmp_path, built("bert", tokens), tokens, "bert")


def test_what_a_probe_reads_of_each_word():
    assert labelled([KEYS], "part_of_speech").labels == KEYS.tags and labelled([KEYS], "depth").labels[2] == "3"
    relations = labelled([KEYS], "relation")
    assert len(relations.labels) == 7 and relations.positions[0] == (0, 1) and "root" not in relations.labels


def test_a_linear_probe_is_that_of_scikit_learn():
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(400, 6)) * [1, 5, 1, 1, 0.1, 1] + 3, draws.integers(0, 3, 400)
    x[:, 0] += y
    ours = linear.fit(torch.from_numpy(x), torch.from_numpy(y), 3)
    z = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1.0, max_iter=1000, tol=1e-8).fit(z, y).predict_log_proba(z)
    np.testing.assert_allclose(ours.logits(torch.from_numpy(x)).log_softmax(1).numpy(), theirs, atol=2e-3)


def test_a_code_is_short_where_labels_are_easy_to_read():
    draws = np.random.default_rng(0)
    y = torch.from_numpy(draws.integers(0, 4, 3000))
    easy = torch.nn.functional.one_hot(y).float() + 0.1 * torch.randn(3000, 4)
    noise = torch.randn(3000, 4)
    assert linear.compression(easy, y, 4) > 20 and 0.9 < linear.compression(noise, y, 4) < 1.01
    # vectors that say nothing cost nothing, however wide; they made codes of twice the length
    rare = torch.from_numpy(draws.choice(4, 3000, p=[0.7, 0.1, 0.1, 0.1]))
    counted = linear.compression_by_frequency(rare, 4)
    assert counted == pytest.approx(2 / 1.357, rel=0.03), "the entropy of the labels is 1.357 bits"
    assert 0.9 * counted < linear.compression(torch.randn(3000, 300), rare, 4) < 1.02 * counted
    # by hand: two blocks, the first by a uniform code, the second by a probe of the first
    two = linear.fit(easy[:1500], y[:1500], 4).bits(easy[1500:], y[1500:])
    assert two == pytest.approx(-float(linear.fit(easy[:1500], y[:1500], 4).logits(easy[1500:]).log_softmax(1)[range(1500), y[1500:]].sum())
                                / np.log(2), rel=1e-5)  # fmt: skip


def test_a_control_label_is_the_words_alone():
    words = ["a", "b", "a", "c", "b"] * 40
    labels = np.array([0, 0, 0, 1] * 50)
    drawn = linear.control_labels(words, labels, 1)
    assert len({*zip(words, drawn.tolist(), strict=True)}) == 3 and (drawn != linear.control_labels(words, labels, 3)).any()


def test_sentences_are_drawn_until_they_have_enough_words():
    sentences = [Sentence(["a"] * (1 + i % 3), [], [], []) for i in range(90)]
    some = treebanks.drawn(sentences, 50)
    assert 50 <= sum(len(own.words) for own in some) < 53 and some == treebanks.drawn(sentences, 50)
    assert some != sentences[: len(some)]
    assert len(treebanks.drawn(sentences, 1000)) == 90
    source = {"source": {"kind": "files", "paths": ["a"]}}
    raw = {"kind": "probe", "corpus": "a", "label": "tree", "train": source, "test": source}
    block = TypeAdapter(params.Evaluation).validate_python(raw)
    assert (block.train_words, block.test_words) == (20_000, 10_000)


def test_a_tenth_of_train_chooses_the_layer_and_not_test():
    """The first layer is right on that tenth and the second on test; a word without a vector is no item."""
    draws = np.random.default_rng(0)

    def split(count: int, told: list[range]) -> tuple[list[Sentence], list[torch.Tensor]]:
        tags = [draws.permutation(["NOUN"] * 3 + ["VERB"] * 3).tolist() for _ in range(count)]
        vectors = torch.from_numpy(draws.normal(size=(count, 2, 6, 1))).float()
        for layer, rows in enumerate(told):
            for row in rows:
                vectors[row, layer, :, 0] = torch.tensor([tag == "NOUN" for tag in tags[row]]) * 8.0
        return [Sentence(["a"] * 6, own, [0] * 6, ["x"] * 6) for own in tags], [*vectors]

    train, test = split(40, [range(40), range(36)]), split(20, [range(0), range(20)])
    test[1][3][:, 2] = torch.nan
    answers = _classify(train, test, {"label": "part_of_speech", "seed": 1})
    first, second = (layer["score"] for layer in answers.layers)
    assert answers.layer == 0 and np.nanmean(answers.values) == first < second == 1
    assert np.flatnonzero(np.isnan(answers.values)).tolist() == [3 * 6 + 2]


def test_the_structural_probe_finds_a_planted_tree():
    """Each word is the sum of one direction for each edge above it: squared distances are those of the tree."""
    draws = np.random.default_rng(0)
    sentences, vectors = [], []
    for _ in range(120):
        size = int(draws.integers(4, 9))
        heads = [0, *(int(draws.integers(1, i + 1)) for i in range(1, size))]
        sentences.append(Sentence([f"w{i}" for i in range(size)], ["NOUN"] * size, heads, ["x"] * size))
        x = torch.zeros(size, 12)
        for i in range(1, size):
            x[i] = x[heads[i] - 1]
            x[i, i] += 1
        vectors.append(x + 0.01 * torch.randn(size, 12))
    for sentence, x in zip(sentences[:5], vectors, strict=False):
        np.testing.assert_allclose(sentence.distances, torch.cdist(x, x).square().numpy(), atol=0.3)
    projection = structural.fit(vectors[:100], sentences[:100], 1)
    found = np.concatenate([
        structural.right_edges(projection.squared_distances(x).numpy(), sentence)
        for x, sentence in zip(vectors[100:], sentences[100:], strict=True)
    ])  # fmt: skip
    assert np.isnan(found).sum() == 20 and np.nanmean(found) > 0.95
    chain = np.abs(np.subtract.outer(np.arange(8), np.arange(8))).astype(float)
    edges = structural.right_edges(chain, KEYS)
    assert np.isnan(edges[[6, 7]]).all() and edges[:6].tolist() == [1, 0, 0, 1, 0, 1]


@pytest.fixture
def bank(project):
    """The tiny project, with a treebank of sentences whose nouns and verbs are always the same words."""
    sources = {}
    for split, last, length in (("train", "river", 70), ("test", "woman", 69)):  # no sentence is in both
        sentences = []
        for noun in ("man", "dog", "woman", "bird"):
            for verb in ("sees", "likes", "carries"):
                words = ["the", noun, verb, "the", last, "."]
                tags, heads = ["DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"], [2, 3, 0, 5, 3, 3]
                sentences.append(Sentence(words, tags, heads, ["det", "nsubj", "root", "det", "obj", "punct"]))
        long = Sentence(["the"] * length, ["DET"] * length, [0] + [1] * (length - 1), ["x"] * length)
        Path(f"{split}.conllu").write_text(conll([*sentences * 3, long]))
        sources[split] = {"source": {"kind": "files", "paths": [f"{split}.conllu"]}}
    probe = {"kind": "probe", "corpus": "tiny", **sources}
    kinds = ("part_of_speech", "relation", "tree")
    raw = tiny_params(
        evaluations={label: probe | {"label": label} for label in kinds},
        evaluate={"models": ["gpt"], "evaluations": [*kinds], "twins": [1, 2]},
    )
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    return raw


def test_test_sentences_that_train_has_are_left_out(bank):
    lines = Path("train.conllu").read_text() + Path("test.conllu").read_text()
    Path("test.conllu").write_text(lines)
    assert "37 of 74 test sentences are left out: train has them, too" in ran("evaluations", "tree")
    Path("test.conllu").write_text(Path("train.conllu").read_text())
    with pytest.raises(AssertionError, match="all test sentences are among those of train; name other files"):
        ran("evaluations", "tree")


@pytest.mark.long
def test_from_a_treebank_to_the_report(bank):
    """Of every label; a sentence that is longer than the model reads is read in parts, and none is left out."""
    ran("pretrain", "gpt")
    metrics = {}
    for label in ("part_of_speech", "relation", "tree"):
        said = ran("evaluations", label)
        assert "37 train sentences" in said and "37 test sentences" in said
        said = ran("evaluations.evaluate", f"gpt-{label}")
        measured = json.loads(Path(f"data/metrics/evaluate/gpt-{label}.json").read_text())
        metrics["evaluate", f"gpt-{label}"] = measured
        assert measured["left_out"] == 0 and len(measured["layers"]) == 3 and "layer 2: score" in said
        [layer] = re.findall(r", layer (\d)$", measured["protocol"])
        assert measured["score"] == measured["layers"][int(layer)]["score"] and "random_score" in measured["layers"][0]
        items = pd.read_csv(f"data/evaluated/gpt/{label}/items.csv")
        assert len(items) == measured["items"] and items["score"].mean() == pytest.approx(measured["score"])
    read = metrics["evaluate", "gpt-part_of_speech"]
    assert read["references"]["by_word"] == 1 and read["score"] > 0.9 and read["layers"][0]["compression"] > 1
    assert read["layers"][0]["selectivity"] == pytest.approx(read["layers"][0]["score"] - read["layers"][0]["control"])
    checked = params.check(bank)
    assert list(evaluations.layers(checked, metrics)["layer"]) == [0, 1, 2] * 3
    table = evaluations.table(checked, metrics)
    assert {"by_word", "word_before"} <= {*evaluations.references_of(table)} and evaluations.reading(table)


def test_a_word_is_the_mean_of_its_ids_and_parts_are_whole_words(bank):
    ran("pretrain", "gpt")
    model, tokens = store.load(Path("data/models/gpt"))
    model.eval()
    sentence = Sentence(["carries", "the", "unseenword"], ["X"] * 3, [0, 1, 1], ["x"] * 3)
    own = treebanks.encode(model, tokens, [sentence])
    with torch.no_grad():
        states = torch.stack(model.layers(torch.tensor(own.ids), torch.tensor([len(own.ids[0])])))[:, 0]
    for word in range(3):
        expected = states[:, [i for i, number in enumerate(own.words[0]) if number == word]].mean(1)
        torch.testing.assert_close(treebanks.word_vectors(model, tokens, [sentence])[0][:, word], expected)
    long = Sentence(["the", "river"] * 60, ["X"] * 120, [0] + [1] * 119, ["x"] * 120)
    parts, of = treebanks.windows(model, tokens, treebanks.encode(model, tokens, [long]))
    assert len(parts.ids) > 1 and of == [0] * len(parts.ids) and max(map(len, parts.ids)) <= model.max_length
    words = [number for part in parts.words for number in dict.fromkeys(part) if number >= 0]
    assert words == list(range(120)) and treebanks.word_vectors(model, tokens, [long])[0].isfinite().all()
