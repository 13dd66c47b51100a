"""Sentences are scored in batches as they are one by one; published ways to score give what `minicons` gives."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from components import params
from components.core.errors import SesameError
from components.evaluations.minimal_pairs import alignment, scoring
from components.evaluations.minimal_pairs.pairs import Pair
from components.models import store
from components.text.tokenizer import MASK
from tests.conftest import text, tiny_params
from tests.models.test_transformers import bring, given  # noqa: F401, a fixture

SENTENCES = [line for line in text(12).splitlines() if line] + [
    "A dog .",
    "the river",
    "dog",
    "The extraordinary unforgettables",
]


def built(name: str, tokens, **changes):
    """A model of the tiny project with random weights, far from uniform."""
    raw = tiny_params()["models"]
    sizes = {"num_layers": 1, "hidden_size": 8, "max_length": 32}
    block = {"back": {"name": "recurrent", **sizes, "backward": True}, "ahead": {"name": "recurrent", **sizes}}
    block["t5"] = {"name": "encoder_decoder", **sizes, "num_heads": 2, "intermediate_size": 16}
    block["xlnet"] = block["t5"] | {"name": "xlnet"}
    architecture = params.check(tiny_params()).models[name].architecture if name in raw else None
    if architecture is None:
        architecture = TypeAdapter(params.Architecture).validate_python(block[name])
    torch.manual_seed(0)
    model = store.build(architecture, tokens)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


WAYS = [
    ("gpt", "log_probability"),
    ("ahead", "log_probability"),
    ("back", "log_probability"),
    ("elmo", "log_probability"),
]
WAYS += [(name, protocol) for name in ("bert", "xlnet") for protocol in ("pll_original", "pll_within_word_l2r")]


@pytest.mark.parametrize(("name", "protocol"), WAYS)
def test_a_batch_is_its_sentences(name, protocol, tokens, monkeypatch):
    model = built(name, tokens)
    found = scoring.score(model, tokens, SENTENCES, protocol)
    assert model.training and found.scored.all() and found.log_probability.dtype == np.float32
    assert found.pieces.tolist() == [len(ids) for ids in tokens.encode(SENTENCES)]
    alone = [float(scoring.score(model, tokens, [one], protocol).log_probability[0]) for one in SENTENCES]
    np.testing.assert_allclose(found.log_probability, alone, atol=2e-4)
    monkeypatch.setitem(scoring.TOKENS, "cpu", 60)
    monkeypatch.setattr(scoring, "SENTENCES_AT_ONCE", 7)
    np.testing.assert_allclose(scoring.score(model, tokens, SENTENCES, protocol).log_probability, alone, atol=2e-4)


@torch.no_grad()
def test_what_follows_of_a_word_is_hidden_as_well(tokens):
    model, sentence = built("bert", tokens).eval(), "the extraordinary unforgettables see it's over ."
    [ids] = tokens.encode([sentence])
    shown = [tokens.pieces[i].decode() for i in ids]
    joined = [False]
    for before, piece in zip(shown, shown[1:], strict=False):
        joined.append(before == " " or (before[-1].isalpha() and piece[0].isalpha()))
    assert any(joined)
    right = 0.0
    for i, wanted in enumerate(ids):
        end = i + 1
        while end < len(ids) and joined[end]:
            end += 1
        row = [*tokens.prefix, *ids[:i], *[MASK] * (end - i), *ids[end:], *tokens.suffix]
        hidden = model(torch.tensor([row]), torch.tensor([len(row)]))[0, i + 1]
        right += float(model.logits(hidden).log_softmax(0)[wanted])
    found = scoring.score(model, tokens, [sentence], "pll_within_word_l2r")
    assert found.log_probability[0] == pytest.approx(right, rel=1e-4)
    original = scoring.score(model, tokens, [sentence], "pll_original")
    assert original.log_probability[0] != pytest.approx(right, rel=1e-4)


@torch.no_grad()
def test_xlnet_predicts_each_token_from_all_others(tokens):
    """By its query stream: what stands in the hole, and at the padding, changes nothing, and any other token does."""
    model = built("xlnet", tokens).eval()
    [ids] = tokens.encode(["the dog sees the river ."])
    row, positions = torch.tensor([[*tokens.prefix, *ids, *tokens.suffix]]), torch.tensor([[2]])
    hole = torch.arange(row.shape[1])[None] == 2

    def state(changed: dict[int, int], padding: int = 0) -> torch.Tensor:
        other = torch.nn.functional.pad(row, (0, padding), value=7)
        for position, token in changed.items():
            other[0, position] = token
        padded = torch.nn.functional.pad(hole, (0, padding))
        return model.at_holes(other, torch.tensor([row.shape[1]]), positions, padded)

    assert torch.equal(state({}), state({2: 9})) and torch.allclose(state({}), state({}, padding=3), atol=1e-6)
    assert not any(torch.allclose(state({}), state({position: 9}), atol=1e-6) for position in (1, 3, 4))
    expected = sum(
        float(model.logits(model.at_holes(row, torch.tensor([row.shape[1]]), torch.tensor([[at]]), torch.arange(row.shape[1])[None] == at))
              [0, 0].log_softmax(0)[row[0, at]]) for at in range(len(tokens.prefix), len(tokens.prefix) + len(ids))
    )  # fmt: skip
    found = scoring.score(model, tokens, ["the dog sees the river ."], "pll_original")
    assert found.log_probability[0] == pytest.approx(expected, rel=1e-4)
    assert scoring.usual_protocol(model) == "pll_within_word_l2r"


@pytest.mark.parametrize(
    ("sentence", "spans", "words"),
    [
        ("don't go", [(0, 3), (3, 4), (4, 5), (5, 6), (6, 8)], [0, 1, 2, 3, 3]),
        ("the river", [(0, 3), (3, 6), (6, 9)], [0, 1, 1]),
        (
            "café 👍👍",
            [(0, 3), (3, 3), (3, 4), (4, 5), (5, 5), (5, 5), (5, 6), (6, 6), (6, 7)],
            [0, 0, 0, 1, 1, 1, 1, 2, 2],
        ),
        ("4th.", [(0, 1), (1, 3), (3, 4)], [0, 0, 1]),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits(sentence, spans, words):
    """A blank may be a piece or in one, a character several."""
    assert alignment.word_of_tokens(sentence, spans) == words


def test_pairs_are_their_sentences(tokens):
    own = [Pair("0", "a", "a", "the dog sees it", "the the sees it"), Pair("1", "a", "a", "a dog", "the the sees it")]
    gpt = built("gpt", tokens)
    right, wrong = scoring.score_pairs(gpt, tokens, own)
    for side, found in (("good", right), ("bad", wrong)):
        expected = scoring.score(gpt, tokens, [getattr(pair, side) for pair in own])
        np.testing.assert_allclose(found.log_probability, expected.log_probability, atol=1e-4)
        assert found.pieces.tolist() == expected.pieces.tolist()


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_shared_words_are_scored_given_the_others(name, tokens):
    """As CrowS-Pairs does (Nangia et al. 2020, section 4): without the words in which the sentences of a pair differ."""
    good, bad = "the old dog sees a ball .", "the cats see the ball ."
    assert alignment.shared_words(good, bad) == ([(0, 3), (19, 23), (24, 25)], [(0, 3), (17, 21), (22, 23)])
    assert alignment.shared_words("हिन्दी है", "हिन्दी था")[0] == [(0, 6)], "combining marks are of their word"
    model = built(name, tokens)
    scores = scoring.score_shared_words(model, tokens, [Pair("0", "a", "a", good, bad), Pair("1", "a", "a", bad, good)])
    for sentence, others, score in ((good, [(4, 18)], scores[0][0]), (bad, [(4, 16)], scores[1][0])):
        [whole] = scoring.score(model, tokens, [sentence]).log_probability
        [[differing]] = scoring.score_spans(model, tokens, [sentence], [others])
        assert score == pytest.approx(whole - differing, abs=1e-4)
    np.testing.assert_allclose(scores[0], scores[1][::-1], atol=1e-4)
    [right], [wrong] = scoring.score_shared_words(model, tokens, [Pair("0", "a", "a", "the dog", "a cat")])
    assert np.isnan([right, wrong]).all(), "nothing to score is no tie: left out"


def test_what_is_too_long_or_unknown_is_said(tokens):
    model = built("gpt", tokens)
    sentences = ["the dog", "the dog " * 40, "the dog"]
    found = scoring.score(model, tokens, sentences)
    assert found.scored.tolist() == [True, False, True] and np.isnan(found.log_probability).tolist() == [
        False,
        True,
        False,
    ]
    assert found.pieces[1] == 80 and found.log_probability[0] == pytest.approx(found.log_probability[2])
    odd = SimpleNamespace(prefix=[2], suffix=[3], unknown=1, encode=lambda texts: [[7, 1, 1]] * len(texts))
    assert scoring.score(model, odd, ["a b c"]).unknown.tolist() == [2]


def test_what_goes_wrong_is_a_line(tokens):
    gpt, bert, t5 = (built(name, tokens) for name in ("gpt", "bert", "t5"))
    with pytest.raises(
        SesameError,
        match="t5 has no log-probability of a text: it reads source_then_target; use a model that predicts",
    ):
        scoring.score(t5, tokens, ["a"], name="t5")
    with pytest.raises(SesameError, match="gpt has no pll_original: it reads left_to_right; use log_probability"):
        scoring.score(gpt, tokens, ["a"], "pll_original", name="gpt")
    with pytest.raises(
        SesameError,
        match="bert has no log_probability: it reads both_sides; use pll_within_word_l2r or pll_original",
    ):
        scoring.score(bert, tokens, ["a"], "log_probability", name="bert")
    with pytest.raises(SesameError, match="protocol 'sum': log_probability, pll_within_word_l2r"):
        scoring.score(gpt, tokens, ["a"], "sum")
    with pytest.raises(SesameError, match="sentence 2 of 2, ' ', has no token"):
        scoring.score(gpt, tokens, ["a", " "])
    bert.absent = ["head_transform"]
    with pytest.raises(SesameError, match="bert has no trained head for masked tokens"):
        scoring.score(bert, tokens, ["a"], "pll_original", name="bert")
    next(gpt.parameters()).data.fill_(float("nan"))
    with pytest.raises(
        SesameError, match="gpt: the log-probability of 1 of 1 sentences is nan, first of 'a dog'; its weights"
    ):
        scoring.score(gpt, tokens, ["a dog"], name="gpt")


def test_the_first_token_of_gpt2_is_predicted_from_the_end_of_a_text(given):  # noqa: F811
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = given("gpt2")
    bring(folder)
    sentences = ["the dog sees the river", "a", "the"]
    found = scoring.score(*store.load(Path("data/models/brought")), sentences).log_probability
    theirs, tokens = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for sentence, value in zip(sentences, found, strict=True):
        ids = torch.tensor([[tokens.eos_token_id, *tokens(sentence)["input_ids"]]])
        likely = theirs(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        assert value == pytest.approx(likely.sum().item(), abs=1e-4)
    assert found[1] != found[2]


@pytest.mark.skipif(
    not find_spec("minicons"), reason="minicons is not installed: pip install --no-deps minicons wonderwords"
)
@pytest.mark.parametrize(
    ("name", "protocol", "metric"),
    [
        ("gpt2", "log_probability", None),
        ("bert", "pll_original", "original"),
        ("bert", "pll_within_word_l2r", "within_word_l2r"),
    ],
)
def test_scores_are_those_of_minicons(given, name, protocol, metric):  # noqa: F811
    """On 500 pairs, of a checkpoint of `transformers` with random weights."""
    from minicons import scorer

    folder = given(name)
    bring(folder)
    model, tokens = store.load(Path("data/models/brought"))
    lines = list(dict.fromkeys(line for line in text(700).splitlines() if line))
    good = [line.replace(" .", "").replace("the", "extraordinary", 1) for line in lines][:500]
    bad = [" ".join(reversed(line.split())) + ", isn't it?" for line in lines][:500]
    assert len(good) == len(bad) == 500
    theirs = (scorer.MaskedLMScorer if metric else scorer.IncrementalLMScorer)(str(folder), "cpu")
    theirs.tokenizer.batch_encode_plus = theirs.tokenizer  # its name up to transformers 4
    options = {"PLL_metric": metric} if metric else {"bos_token": True}
    expected = []
    for start in range(0, 1000, 50):
        some = [*good, *bad][start : start + 50]
        expected += theirs.sequence_score(some, reduction=lambda x: x.sum().item(), **options)
    found = scoring.score(model, tokens, [*good, *bad], protocol)
    assert found.scored.all()
    furthest = float(np.abs(found.log_probability - np.array(expected)).max())
    print(
        f"{name} {protocol}: differs by {furthest:.2e} at most, of sums from {min(expected):.0f} to {max(expected):.0f}"
    )
    assert furthest < 1e-4


def test_the_bytes_of_a_character_are_of_one_word():
    """A byte-level tokenizer gives each byte of "ü" the whole character, ours give all but the last no characters."""
    assert alignment.word_of_tokens("Zürich!", [(0, 1), (1, 2), (1, 2), (2, 4), (4, 6), (6, 7)]) == [0, 0, 0, 0, 0, 1]
    assert alignment.word_of_tokens("so 👍 go", [(0, 2), (3, 4), (3, 4), (3, 4), (4, 7)]) == [0, 1, 1, 1, 2]


def test_a_word_goes_on_over_its_combining_marks():
    """By the characters' own classes हिन्दी and an accent that stands by itself were cut."""
    assert alignment.word_of_tokens("हिन्दी", [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)]) == [0] * 5
    assert alignment.word_of_tokens("cafe\u0301s!", [(0, 4), (4, 5), (5, 6), (6, 7)]) == [0, 0, 0, 1]


def test_each_token_of_a_script_without_blanks_is_a_word():
    """As `word_ids` of the tokenizers has it, by which minicons masks; a sentence was one word."""
    assert alignment.word_of_tokens("我喜欢cats", [(0, 1), (1, 2), (2, 3), (3, 6), (6, 7)]) == [0, 1, 2, 3, 3]
    assert alignment.word_of_tokens("学习汉语", [(0, 2), (2, 4)]) == [0, 1]
    assert alignment.word_of_tokens("ภาษาไทย", [(0, 4), (4, 7)]) == [0, 1]
    assert alignment.word_of_tokens("ที่นี่", [(0, 2), (2, 3), (3, 6)]) == [0, 0, 1], "a mark stays with its letter"
