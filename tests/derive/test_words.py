"""Word vectors as a model: which words of a text it reads, its scale, and the tasks and probes of pre-trained models."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import words
from components.embeddings import contextual, space
from components.evaluations.sentence_probe.evaluation import mean_vectors
from components.models import store
from tests.conftest import ran, run_stage, tiny_params

VOCABULARY = ["the", "dog", "new_york", "sees", "n't", ".", "été", "1999"]


def made(vocabulary: list[str], **block: object) -> Path:
    """A word model of vectors that are 1, 2, 3, ... in all five dimensions."""
    vectors = np.arange(1, len(vocabulary) + 1, dtype=np.float32)[:, None].repeat(5, 1)
    space.save(space.Space(vocabulary, np.zeros(len(vocabulary), dtype=np.int64), vectors), Path("data/vectors/one"))
    checked = params.check(tiny_params(word_models={"words": {"vectors": "one", **block}}))
    words.word_model(checked, "words", Run(None))
    return Path("data/models/words")


def test_a_text_is_the_mean_of_the_words_that_have_a_vector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokens = store.load(made(VOCABULARY))
    [ids] = tokens.encode(["The dog, in 1999: sees"])
    assert [tokens.decode([i]) for i in ids] == ["the", "dog", "[UNK]", "[UNK]", "1999", "[UNK]", "sees"]
    vectors = model.layers(torch.tensor([[*tokens.prefix, *ids, *tokens.suffix]]), torch.tensor([len(ids) + 2]))[0]
    assert vectors[0, :, 0].tolist() == [0, 1, 2, 0, 0, 8, 0, 4, 0]
    assert model.pool(vectors, torch.tensor([len(ids) + 2]))[0].tolist() == [pytest.approx(15 / 4)] * 5
    assert model.pool(vectors[:, 3:5], torch.tensor([2]))[0].tolist() == [0] * 5, "no word has a vector"


def test_words_that_are_several_pieces_of_a_text_are_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made(VOCABULARY)
    assert "6 words of 5 numbers; left out, as they are several words of a text: 2, as new_york, n't" in capsys.readouterr().out
    made(["été"])  # one character and two are one word
    _, tokens = store.load(Path("data/models/words"))
    assert tokens.encode(["E\u0301te\u0301"]) == [[5]]
    with pytest.raises(SesameError, match=r"word_models\.words: none of the 1 words of one is a word of a text"):
        made(["new_york"])


def test_capitals_are_kept_where_the_vectors_have_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, tokens = store.load(made(["Paris", "paris"]))
    assert tokens.encode(["Paris paris PARIS"]) == [[5, 6, 1]]


def test_one_word_in_capitals_makes_no_cased_vectors(tmp_path, monkeypatch):
    """A row for unknown words is among many published vectors."""
    monkeypatch.chdir(tmp_path)
    _, tokens = store.load(made(["UNK", *(f"{first}{second}" for first in "abcdefghijk" for second in "abcdefghijk"), "the"]))
    assert tokens.decode(tokens.encode(["The AB UNK"])[0]) == "the ab [UNK]"


def test_letters_are_those_of_the_vectors(tmp_path, monkeypatch):
    """Small letters are Python's, with a final sigma, and ² is one of a word's."""
    monkeypatch.chdir(tmp_path)
    _, tokens = store.load(made(["οδος", "m²", "co₂", "σοφος"]))
    assert [tokens.decode([i]) for i in tokens.encode(["ΟΔΟΣ, 3 m² CO₂ Σοφος"])[0]] == ["οδος", "[UNK]", "[UNK]", "m²", "co₂", "σοφος"]
    for text in ("ΟΔΟΣ ΣΟΦΟΣ", "Σ", "ΑΣ1", "ΑΣ.", "ΣΑΣ"):
        assert words.pipeline(lowercase=True).normalizer.normalize_str(text) == text.lower()


def test_random_twins_have_the_scale_of_the_vectors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = made([f"word{'abcdefghij'[i % 10] * (i // 10 + 1)}" for i in range(500)])
    matrix = store.load(folder)[0].token_embedding.weight[5:]
    torch.manual_seed(0)
    twin = store.load(folder, pretrained=False)[0].token_embedding.weight[5:]
    scales = [weight.square().mean().sqrt().item() for weight in (twin, matrix)]
    assert scales[0] == pytest.approx(scales[1], rel=0.05) and not torch.equal(twin, matrix)


def test_unknown_words_stay_zero_while_the_others_are_tuned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokens = store.load(made(VOCABULARY))
    assert model.layers(torch.tensor([[1]]), torch.tensor([1]))[0].abs().sum() == 0
    model.layers(torch.tensor([[1, 5]]), torch.tensor([2]))[0].sum().backward()
    assert model.token_embedding.weight.grad[1].abs().sum() == 0 and model.token_embedding.weight.grad[5].abs().sum() > 0


def test_tasks_and_probes_of_pre_trained_models(project):
    """From vectors to a fine-tuning under four heads, and to a probe with random twins."""
    raw = tiny_params(word_models={"words": {"vectors": "one"}})
    recipe = raw["finetune"]["recipes"]["elmo"]
    raw["finetune"] |= {"models": ["words"], "recipes": {"words": {**recipe, "method": "full"}}}
    methods = ("features", "mix", "decomposable_attention", "linear_probe")
    raw["adapt"] = {"models": ["words"], "methods": list(methods), "tasks": ["same"],
                    "recipes": {method: {**recipe, "method": method} for method in methods}}  # fmt: skip
    probe = {"kind": "sentence_probe", "corpus": "tiny", "task": "same", "train_examples": 60, "test_examples": 30}
    raw["evaluations"] = {"same_probe": probe}
    raw["evaluate"] = {"models": ["words"], "evaluations": ["same_probe"], "twins": [1, 2]}
    raw["studies"] = {}
    YAML().dump(raw, Path("params.yaml"))
    ran("embeddings.vectors", "one")
    assert "words of 8 numbers" in ran("derive.words", "words")
    ran("finetune", "words-same")
    measured = json.loads(Path("data/metrics/finetune/words-same.json").read_text())
    assert measured["pretrained"]["test"]["accuracy"]["n"] == 2
    for method in methods:
        ran("finetune.adapt", f"words-{method}-same")
    ran("evaluations", "same_probe")
    assert "layer 0: score" in ran("evaluations.evaluate", "words-same_probe")
    model, tokens = store.load(Path("data/models/words"))
    assert mean_vectors(model, tokens, ["the dog sees"]).shape == (1, 1, 8)


def test_a_text_cannot_be_scored_without_context(project):
    raw = tiny_params(word_models={"words": {"vectors": "one"}})
    raw["evaluations"] = {"bits": {"kind": "bits_per_byte", "corpus": "tiny"}}
    raw["evaluate"] = {"models": ["words"], "evaluations": ["bits"], "twins": [1, 2]}
    raw["studies"] = {}
    YAML().dump(raw, Path("params.yaml"))
    made(VOCABULARY)
    ran("evaluations", "bits")
    done = run_stage("components.evaluations.evaluate", "words-bits")
    assert done.returncode == 2 and "words has no log-probability of a text: it reads no_context" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": 64}, r"words\.max_length 64 is more than the model reads, word_models\.words\.max_length 32"),
        ({"method": "bitfit"}, r"method bitfit tunes biases, and word_models\.words\.architecture\.biases is false"),
        ({"method": "lora"}, r"method lora needs the blocks of a Transformer, and word_models\.words has none"),
        ({"method": "linear_probe", "layer": 1}, r"layer 1: word_models\.words has 0 \(embedding\) to 0"),
        ({"method": "text_to_text", "target_length": 4}, r"needs a model that generates text, and word_models\.words does not"),
    ],
)  # fmt: skip
def test_what_word_vectors_cannot_do_is_said_before_anything_runs(changes, said):
    raw = tiny_params(word_models={"words": {"vectors": "one", "max_length": 32}})
    recipe = {"method": "full", "max_length": 32, "learning_rate": 0.003, "epochs": 2, "batch_size": 8} | changes
    raw["finetune"] |= {"models": ["words"], "recipes": {"words": recipe}}
    with pytest.raises(SesameError, match=said):
        params.check(raw)


def test_a_model_of_its_own_vectors_is_one_line():
    raw = tiny_params(word_models={"words": {"vectors": "read"}})
    raw["contextual_vectors"] = {"read": {"model": "words", "corpus": "base"}}
    with pytest.raises(SesameError, match=r"word_models\.words: is made of itself \(words from read from words\); name other vectors"):
        params.check(raw)


def test_vectors_in_context_leave_out_words_that_the_model_does_not_know(project, capsys):
    """Zeros are no vector."""
    made(["the", "dog", "river"])
    raw = tiny_params(word_models={"words": {"vectors": "one"}})
    raw["contextual_vectors"] = {"read": {"model": "words", "corpus": "base", "min_count": 2}}
    contextual.contextual_vectors(params.check(raw), "read", None)
    assert sorted(space.load("data/vectors/read").words) == ["dog", "river", "the"]
    assert "3 vectors out of" in (said := capsys.readouterr().out) and "words that it can't read have none" in said
