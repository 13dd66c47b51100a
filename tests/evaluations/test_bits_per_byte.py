"""Bits per byte of held-out sentences: by hand from the scores, below random weights, and in the report."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from torch.nn.functional import cross_entropy

from components import params
from components.models import store
from components.report import evaluations
from components.text import corpora
from tests.conftest import ran, tiny_params


def test_of_each_objective_by_its_rule(project):
    raw = tiny_params(
        evaluations={"held_out": {"kind": "bits_per_byte", "corpus": "tiny", "sentences": 20}},
        evaluate={"models": ["gpt", "bert"], "evaluations": ["held_out"], "twins": [1, 2]},
    )
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    assert "20 sentences of " in ran("evaluations", "held_out")
    prepared, metrics = json.loads(Path("data/evaluations/held_out/sentences.json").read_text()), {}
    sentences, numbers = prepared["sentences"], prepared["documents"]
    documents = list(corpora.read(Path("data/corpora/tiny"), "test"))
    assert all(sentence in documents[number] for sentence, number in zip(sentences, numbers, strict=True)) and len(set(numbers)) > 5
    trained, test = (sum(corpora.read(Path("data/corpora/tiny"), split), []) for split in ("train", "test"))
    seen = json.loads(Path("data/metrics/evaluation/held_out.json").read_text())["seen_in_training"]
    assert seen == sum(text in trained for text in test) > 0 and not set(sentences) & set(trained)
    for model in ("gpt", "bert"):
        ran("pretrain", model)
        assert "bits_per_byte" in ran("evaluations.evaluate", f"{model}-held_out")
        metrics["evaluate", f"{model}-held_out"] = json.loads(Path(f"data/metrics/evaluate/{model}-held_out.json").read_text())
    gpt, bert = (metrics["evaluate", f"{model}-held_out"] for model in ("gpt", "bert"))
    assert (gpt["protocol"], bert["protocol"]) == ("log_probability", "pll_within_word_l2r")
    assert gpt["score"] == pytest.approx(gpt["bits"] / gpt["bytes"]) and gpt["gain"]["difference"] < 0
    model, tokens = store.load(Path("data/models/gpt"))
    model.eval()
    with torch.no_grad():  # by hand, of the first sentence
        ids = torch.tensor([[*tokens.prefix, *tokens.encode(sentences[:1])[0]]])
        logits = model.logits(model.top(ids, torch.tensor([ids.shape[1]])))[0, :-1]
        bits = float(cross_entropy(logits, ids[0, 1:], reduction="sum")) / np.log(2)
    items = pd.read_csv("data/evaluated/gpt/held_out/items.csv")
    assert items["cluster"].tolist() == numbers, "sentences of one document are left out together"
    assert items["score"][0] == pytest.approx(bits / len(sentences[0].encode()), rel=1e-4)
    table = evaluations.table(params.check(raw), metrics)
    row = table[(table["model"] == "gpt") & (table["group"] == "all")].iloc[0]
    assert row["measure"] == "bits_per_byte" and row["difference"] < 0
    if row["verdict"] == "lower":  # less is better
        assert "gpt" in evaluations.reading(table)
