"""CANINE-S: which characters are hidden, what is asked of which, and a whole training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from components import objectives, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.models import store
from components.objectives.scoring import IGNORED
from components.objectives.subwords.config import SubwordLM
from components.text import encode, tokenizer
from components.text.encode import __main__ as encode_stage
from components.text.tokenizer import MASK
from components.text.tokenizer import __main__ as tokenizer_stage
from tests.conftest import run_stage, tiny_params

SIZES = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 4,
    "intermediate_size": 48,
    "max_length": 96,
    "num_buckets": 100,
    "local_width": 16,
}


def raw_params() -> dict:
    raw = tiny_params(studies={})
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "kind": "characters", "vocab_size": 300, "lowercase": True}
    raw["models"] = {"bert": raw["models"]["bert"] | {
        "architecture": {"name": "canine", **SIZES}, "budget": {"steps": 60},
        "objective": {"name": "subwords", "subword_vocab_size": 120}, "prompts": [],
    }}  # fmt: skip
    raw["finetune"] |= {"models": ["bert"], "seeds": [1]}
    return raw


@pytest.fixture
def read(project):
    """Its tokenizer and the training text, as characters."""
    YAML().dump(raw_params(), project / "params.yaml")
    tokenizer_stage.train(params.load(), "tiny", Run(None))
    encode_stage.encode(params.load(), "tiny", Run(None))
    return tokenizer.load(Path("data/encoded/tiny")), encode.load(Path("data/encoded/tiny"), "train")


def test_whole_subwords_are_hidden_and_one_character_of_each_is_asked(read):
    tokens, text = read
    objective = objectives.build(SubwordLM(name="subwords", subword_vocab_size=120), tokens)
    batches = objective.batches(text, 16, 96, seed=3)
    vocabulary = {objective.subwords.piece(i) for i in range(1, len(objective.subwords))}
    plain, fates, spots, longer = text.shards[0].tokens, [], set(), 0
    for step in range(8):
        rows, counts = batches[step]
        chosen = batches.selected(step)
        assert counts["subword"] == (rows["labels"] != IGNORED).sum() and rows["ids"].max() < tokens.vocab_size
        behind = 0
        for row, example in enumerate(batches.examples[chosen]):
            a, end, b, b_end, _ = example.tolist()
            sides = [part[part > 4] for part in (plain[a:end], plain[b:b_end])]  # without the [SEP]s between sentences
            own, ids = np.concatenate([[2], sides[0], [3], sides[1], [3]]), rows["ids"][row].numpy()
            for place, label in zip(rows["positions"][row].tolist(), rows["labels"][row].tolist(), strict=True):
                if label == IGNORED:
                    continue
                piece = objective.subwords.piece(label)
                begins = [at for at in range(place - len(piece) + 1, place + 1) if "".join(
                    tokens.pieces[i].decode() for i in own[max(at, 0) : at + len(piece)]) == piece]  # fmt: skip
                assert begins, (piece, place)
                begin = begins[-1]
                behind += len(piece)
                spots.add(place - begin)
                if len(piece) > 1 and len(begins) == 1:
                    longer += 1
                    seen, there = ids[begin : begin + len(piece)], own[begin : begin + len(piece)]
                    fates.append("masked" if (seen == MASK).all() else "left" if (seen == there).all() else "replaced")
                    assert fates[-1] != "replaced" or "".join(tokens.pieces[i].decode() for i in seen) in vocabulary
        assert behind == counts["bytes"], "ASCII alone"
        assert counts["bytes"] <= 0.16 * counts["tokens"]
    shares = {fate: fates.count(fate) / len(fates) for fate in set(fates)}
    assert longer > 150 and shares["masked"] == pytest.approx(0.8, abs=0.07) and shares["left"] == pytest.approx(0.1, abs=0.06)
    assert {0, 1, 2} <= spots, "any of its characters"
    again = objectives.build(SubwordLM(name="subwords", subword_vocab_size=120), tokens).batches(text, 16, 96, seed=3)
    assert all(torch.equal(part, again[5].tensors[name]) for name, part in batches[5].tensors.items()), "a pure function of seed and step"
    shown = objective.explain(batches, 0)
    assert len(shown) == 16 and any("_" in row["text"] for row in shown) and all(row["asked"] for row in shown)


def test_a_training_learns_subwords_and_forgets_their_vocabulary(read):
    done = run_stage("components.pretrain", "bert")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/bert.json").read_text())
    losses = [float(line.split(",")[3]) for line in Path("data/curves/bert.csv").read_text().splitlines()[1:]]
    assert metrics["loss"] < 0.85 * np.log(120) and losses[-1] < losses[0] and 0 <= metrics["nsp_accuracy"] <= 1
    assert store.about(Path("data/models/bert")).absent == ["head_transform", "head_bias", "output_embedding"]
    model, tokens = store.load(Path("data/models/bert"))
    assert not any("subword" in name for name, _ in model.named_parameters())
    raw = raw_params()
    raw["models"]["bert"]["prompts"] = ["the [MASK] sees the river"]
    with pytest.raises(SesameError, match=("models.bert: prompts: objective subwords predicts with a head that is not kept")):
        params.check(raw)
    with pytest.raises(
        SesameError, match="trains its vocabulary on the encoded text next to data/models/bert/tokenizer.model, and there"
    ):
        objectives.build(SubwordLM(name="subwords"), tokens).batches(read[1], 4, 96, 1)


def test_wrong_settings_are_a_line(read):
    for change, said in (
        ({"whole_word": True}, "objective subwords masks single subwords: leave whole_word and span_probability out"),
        ({"span_probability": 0.2}, "leave whole_word and span_probability out"),
    ):
        raw = raw_params()
        raw["models"]["bert"]["objective"] |= change
        with pytest.raises(SesameError, match=said):
            params.check(raw)
    raw = raw_params()
    raw["models"]["bert"]["architecture"] = tiny_params()["models"]["bert"]["architecture"]
    with pytest.raises(
        SesameError,
        match=("objective subwords is for models that read characters, and encoder reads subword tokens; take mlm"),
    ):
        params.check(raw)
    with pytest.raises(SesameError, match=r"objective.subword_vocab_size 100000: .*Vocabulary size"):
        objectives.build(SubwordLM(name="subwords", subword_vocab_size=100_000), read[0]).batches(read[1], 4, 96, 1)
