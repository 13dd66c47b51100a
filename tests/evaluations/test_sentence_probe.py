"""Sentence probes: the mean vectors of texts, the layer that is selected, both kinds of tasks, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from sklearn.linear_model import LogisticRegression

from components import params
from components.core.errors import SesameError
from components.evaluations.contract import rule
from components.evaluations.sentence_probe import evaluation
from components.evaluations.sentence_probe.config import SentenceProbe
from components.stages import resolve
from components.tasks import Example
from tests.conftest import ran, tiny_params
from tests.evaluations.test_scoring import built


def with_probe(**changes: object) -> dict:
    """The tiny project's params with a sentence probe of its task for the model gpt."""
    probe = {
        "kind": "sentence_probe",
        "corpus": "tiny",
        "task": "same",
        "train_examples": 60,
        "test_examples": 30,
        **changes,
    }
    asked = {"models": ["gpt"], "evaluations": ["same_probe"], "twins": [1, 2]}
    return tiny_params(evaluations={"same_probe": probe}, evaluate=asked)


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_a_text_is_the_mean_of_its_tokens(name, tokens):
    """Special tokens are read and not averaged; the pieces of a text that is too long count by their tokens."""
    model = built(name, tokens)
    model.eval()
    texts = ["the dog sees the river", "the man", " ".join(["the dog sees the river"] * 20)]
    vectors = evaluation.mean_vectors(model, tokens, [*texts, ""])
    assert vectors[3].isnan().all() and vectors[:3].isfinite().all()
    before, after = list(tokens.prefix), list(tokens.suffix)
    room = model.max_length - len(before) - len(after)
    for text, vector in zip(texts, vectors, strict=False):
        (ids,) = tokens.encode([text])
        states = []
        for start in range(0, len(ids), room):
            piece = ids[start : start + room]
            row = torch.tensor([[*before, *piece, *after]])
            with torch.no_grad():
                layers = torch.stack(model.layers(row, torch.tensor([row.shape[1]])))[:, 0]
            states.append(layers[:, len(before) : len(before) + len(piece)])
        torch.testing.assert_close(vector, torch.cat(states, 1).mean(1), atol=1e-5, rtol=1e-4)
    assert len(tokens.encode([texts[2]])[0]) > room or name == "elmo"


def test_a_pair_is_read_as_in_senteval(tokens):
    model = built("bert", tokens)
    rows = [Example("1", "the dog", "the river", "yes"), Example("2", "the man", "the dog", "no")]
    inputs = evaluation.features(model, tokens, rows)
    u, v = (evaluation.mean_vectors(model, tokens, [text])[0] for text in ("the man", "the dog"))
    torch.testing.assert_close(inputs[1], torch.cat([u, v, (u - v).abs(), u * v], 1))


def probe(monkeypatch, tmp_path, kind: str, inputs: torch.Tensor, labels: list, references: dict) -> evaluation.Answers:
    """Run the probe of planted vectors (examples, layers, width): the first 100 are train, the others test."""
    rows = [Example(str(i), f"text {i}", None, label) for i, label in enumerate(labels)]
    for name, some in (("train", rows[:100]), ("test", rows[100:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(row.line() for row in some))
    (tmp_path / "card.json").write_text(json.dumps({"kind": kind, "references": references}))
    monkeypatch.setattr(
        evaluation, "features", lambda model, tokens, some: inputs[:100] if some[0].id == "0" else inputs[100:]
    )
    return evaluation.evaluate(tmp_path, None, None, "planted")


def test_a_fifth_of_train_selects_the_layer_and_not_test(monkeypatch, tmp_path):
    """The first layer tells the label on that fifth, the second on test."""
    draws = np.random.default_rng(0)
    labels = draws.permutation(["yes", "no"] * 75).tolist()
    signal = torch.tensor([[label == "yes"] for label in labels]).float() * 6
    inputs = torch.from_numpy(draws.normal(size=(150, 2, 1))).float()
    inputs[:100, 0] += signal[:100]
    inputs[8:, 1] += signal[8:]
    inputs[149] = torch.nan
    answers = probe(monkeypatch, tmp_path, "classification", inputs, labels, {"most_frequent": 0.5})
    assert answers.layer == 0 and answers.layers[1]["score"] > 0.95 > answers.layers[0]["score"]
    assert np.nanmean(answers.values) == answers.layers[0]["score"] and np.isnan(answers.values[-1])
    assert answers.measure == "accuracy" and set(answers.groups) == {"yes", "no"}


def test_each_pre_training_is_said_to_have_its_own_layer(monkeypatch, tmp_path):
    """A score that is a mean over two layers is not that of the first one's layer."""
    labels = ["yes", "no"] * 75
    answers = []
    for layer in (1, 0):
        inputs = torch.zeros(150, 2, 1)
        inputs[:, layer, 0] = torch.tensor([label == "yes" for label in labels]).float()
        answers.append(probe(monkeypatch, tmp_path, "classification", inputs, labels, {}))
    assert rule(answers) == "sentence probe, layers 1, 0 of the pre-trainings"
    assert rule(answers[:1]) == rule(answers[:1] * 2) == "sentence probe, layer 1"


def test_a_score_is_the_variance_that_is_explained(monkeypatch, tmp_path):
    draws = np.random.default_rng(0)
    scores = draws.normal(3, 2, 1100)
    inputs = torch.from_numpy(scores[:, None, None] + draws.normal(0, 2, (1100, 1, 1))).float()
    answers = probe(monkeypatch, tmp_path, "regression", inputs, scores.tolist(), {})
    assert answers.measure == "variance explained" and answers.values.mean() == pytest.approx(0.5, abs=0.05)
    train, test = inputs[20:100, 0, 0].numpy(), inputs[100:, 0, 0].numpy()
    slope, start = np.polyfit(train, scores[20:100], 1)
    residual = ((scores[100:] - start - slope * test) ** 2).mean()
    assert answers.values.mean() == pytest.approx(1 - residual / scores[100:].var(), abs=0.02)


def test_scores_far_from_zero_are_fitted_as_those_near_it():
    """Ridge regression casts the scores to the type of the vectors; in 32 bits Unix times would be steps of 128."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(200, 4)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5, 0.0]) + draws.normal(0, 0.1, 200)
    near, far = (evaluation._fitted("regression", 1.0, x, zero + y).predict(x) - zero for zero in (0.0, 1.7e9))
    assert far == pytest.approx(near, abs=1e-4)


def test_pairs_with_one_first_text_are_left_out_together(monkeypatch, tmp_path):
    rows = [Example(str(i), f"premise {i // 3}", None, "yes" if i % 2 else "no") for i in range(190)]
    for name, some in (("train", rows[:100]), ("test", rows[100:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(row.line() for row in some))
    (tmp_path / "card.json").write_text(json.dumps({"kind": "classification", "references": {}}))
    monkeypatch.setattr(evaluation, "features", lambda model, tokens, some: torch.randn(len(some), 1, 2))
    answers = evaluation.evaluate(tmp_path, None, None, "planted")
    assert len(np.unique(answers.clusters)) == 31 and len(answers.values) == 90


def test_from_a_task_to_the_metrics(project):
    raw = with_probe()
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    ran("pretrain", "gpt")
    said = ran("evaluations", "same_probe")
    assert "same: 60 examples of train and 30 of test" in said
    assert len(Path("data/evaluations/same_probe/test.jsonl").read_text().splitlines()) == 30
    said = ran("evaluations.evaluate", "gpt-same_probe")
    measured = json.loads(Path("data/metrics/evaluate/gpt-same_probe.json").read_text())
    assert "layer 2: score" in said and len(measured["layers"]) == 3 and measured["items"] == 30
    assert {"most_frequent", "bag_of_words"} == {*measured["references"]} and measured["groups"].keys() <= {"no", "yes"}
    items = pd.read_csv("data/evaluated/gpt/same_probe/items.csv")
    assert items["score"].mean() == pytest.approx(measured["score"]) and {"label", "cluster", "random_1"} <= {
        *items.columns
    }


def test_the_bag_of_words_is_chosen_on_a_fifth_of_train():
    labels = ["yes", "no"] * 60
    rows = [
        Example(str(i), "good " * (label == "yes") + f"film {i % 7}", None, label) for i, label in enumerate(labels)
    ]
    references = evaluation._references(rows[:100], rows[100:], "classification")
    assert references == {"most_frequent": 0.5, "bag_of_words": 1.0}
    signs = [Example(row.id, row.text_a.replace("good", "good." if int(row.id) % 3 else "good"), None, row.label) for row in rows]
    assert evaluation._references(signs[:100], signs[100:], "classification")["bag_of_words"] == 1.0, "punctuation is no part of a word"
    texts = ["很好的" * (label == "yes") + "电影" + chr(0x4E00 + i) for i, label in enumerate(labels)]
    chinese = [Example(row.id, text, None, row.label) for row, text in zip(rows, texts, strict=True)]
    assert evaluation._references(chinese[:100], chinese[100:], "classification")["bag_of_words"] == 1.0
    graded = [Example(row.id, row.text_a, None, float(row.label == "yes")) for row in rows]
    references = evaluation._references(graded[:100], graded[100:], "regression")
    assert references["mean_score"] == pytest.approx(0) and references["bag_of_words"] > 0.9


def test_weak_and_strong_penalties_are_those_of_scikit_learn():
    x = np.random.default_rng(0).normal(size=(50, 3))
    y = (x[:, 0] > 0).astype(str)
    ours, theirs = (
        evaluation._fitted("classification", 100.0, x, y),
        LogisticRegression(C=0.01, max_iter=1000).fit(x, y),
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_)


def test_what_makes_a_probe_stale():
    """The task's own settings and the code that reads it, and nothing of other evaluations."""

    def entry(raw: dict) -> str:
        return resolve.contents(params.check(raw))[Path("data/resolved/evaluation/same_probe.json")]

    changed = with_probe()
    changed["tasks"]["same"]["train"]["source"]["paths"] = ["raw/others.tsv"]
    other_note = with_probe()
    other_note["tasks"]["same"]["note"] = "another note"
    assert entry(with_probe()) == entry(other_note) != entry(changed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "sane"}, "no task 'sane'|'sane'"),
        ({"split": "train"}, "'dev' or 'test'"),
        ({"train_examples": 0}, "train_examples"),
        ({"task": "long"}, "evaluations.same_probe.task: long is of kind text; take a classification or a regression"),
        (
            {"task": "hidden"},
            "evaluations.same_probe.split: hidden has no labelled split test; take one that has labels",
        ),
    ],
)
def test_a_wrong_setting_is_named(changes, said):
    raw = with_probe(**changes)
    same = raw["tasks"]["same"]
    raw["tasks"]["long"] = {key: value for key, value in same.items() if key != "labels"} | {
        "kind": "text",
        "metrics": ["exact_match"],
    }
    raw["tasks"]["hidden"] = {**same, "test": {"source": same["train"]["source"], "labelled": False}}
    with pytest.raises(SesameError, match=said):
        params.check(raw)


def test_too_few_examples_are_one_line(project):
    block = SentenceProbe(kind="sentence_probe", corpus="tiny", task="same", train_examples=5)
    checked = params.check(with_probe())
    with pytest.raises(SesameError, match="task same: 5 training examples, or all of one label"):
        evaluation.prepare(Path("."), block, checked.tasks["same"], 1)
