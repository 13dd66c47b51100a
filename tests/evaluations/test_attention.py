"""Weights of attention are those that a model computes with; what heads find of a treebank, and the page of maps."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components import params
from components.core.errors import SesameError
from components.evaluations import treebanks
from components.evaluations.attention import evaluation, maps, page
from components.evaluations.treebanks import Sentence
from components.models import store
from components.models.bilm.config import BiLMArchitecture
from components.models.canine.config import CanineArchitecture
from components.models.deberta.config import DebertaArchitecture
from components.models.decoder.config import DecoderArchitecture
from components.models.encoder.config import EncoderArchitecture
from components.models.encoder_decoder.config import EncoderDecoderArchitecture
from components.models.prefix_decoder.config import PrefixDecoderArchitecture
from components.models.recurrent.config import RecurrentArchitecture
from components.models.recurrent_encoder_decoder.config import RecurrentEncoderDecoderArchitecture
from components.models.xlnet.config import XLNetArchitecture
from components.report import evaluations
from pipelines import cli
from tests.conftest import run_stage, save_random, tiny_params
from tests.models.test_canine import SIZES as OF_CANINE
from tests.models.test_canine import Ascii
from tests.models.test_transformers import CHECKPOINTS, SENTENCES, batch, bring, given  # noqa: F401 (a fixture)

RECURRENT = {"num_layers": 1, "hidden_size": 16, "max_length": 24}
SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 24}


@pytest.fixture
def ids(tokens):
    torch.manual_seed(0)
    return torch.randint(5, tokens.vocab_size, (3, 20)), torch.tensor([20, 13, 7])


def built(architecture, tokens, scale: float = 30):
    """A model with random weights that are large enough for attention not to be even."""
    torch.manual_seed(0)
    model = store.build(architecture, tokens).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"(query|key|query_key_value|distance|relative_embedding|bias)\.weight$", name):
                parameter *= scale
    return model


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("kind", [EncoderArchitecture, DecoderArchitecture])
def test_weights_times_values_are_what_the_model_goes_on_with(tokens, ids, kind, positions):
    name = {EncoderArchitecture: "encoder", DecoderArchitecture: "decoder"}[kind]
    model, seen = built(kind(name=name, positions=positions, **SIZES), tokens), []
    for block in model.blocks:
        block.attention.register_forward_hook(lambda module, inputs, made: seen.append((module, inputs[0], made)))
    weights = maps.token_attention(model, *ids, "it")
    assert [own.shape for own in weights] == [(3, 2, 20, 20)] * 2 and weights[0][0].max() > 0.5
    for own, (module, x, expected) in zip(weights, seen, strict=True):
        value = module.query_key_value(x).chunk(3, 2)[2].unflatten(2, (2, -1))
        made = module.output((own @ value.transpose(1, 2)).transpose(1, 2).flatten(2))
        torch.testing.assert_close(made, expected, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta", "albert", "deberta_v3", "xlnet"])
def test_weights_equal_those_of_transformers(given, name):  # noqa: F811
    folder = given(name)
    bring(folder)
    model, tokens = store.load(Path("data/models/brought"))
    eager = CHECKPOINTS[name][1].from_pretrained(folder, attn_implementation="eager").eval()
    ids, lengths, real = batch(tokens, SENTENCES[:4], model.max_length)
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    if name == "xlnet":  # its last token is of a segment of its own, which their tokenizer says
        inputs["token_type_ids"] = torch.zeros_like(ids).scatter(1, lengths[:, None] - 1, 2)
    expected = eager(**inputs, output_attentions=True).attentions
    weights = maps.token_attention(model.eval(), ids, lengths, name)
    assert not real.all() and len(weights) == 3
    for own, other in zip(weights, expected, strict=True):
        other = other.permute(2, 3, 0, 1) if other.shape[0] == ids.shape[1] else other
        for row, length in enumerate(lengths):
            here = row, slice(None), slice(length), slice(length)
            torch.testing.assert_close(own[here], other[here], atol=1e-5, rtol=0)


FAMILIES = {
    "encoder": EncoderArchitecture(name="encoder", **SIZES),
    "decoder": DecoderArchitecture(name="decoder", **SIZES),
    "deberta": DebertaArchitecture(name="deberta", **SIZES),
    "xlnet": XLNetArchitecture(name="xlnet", **SIZES),
    "encoder_decoder": EncoderDecoderArchitecture(name="encoder_decoder", **SIZES),
    "prefix_decoder": PrefixDecoderArchitecture(name="prefix_decoder", **SIZES),
    "both_stacks": EncoderDecoderArchitecture(name="encoder_decoder", task_states="both", **SIZES),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_sum_to_one_and_nothing_goes_to_padding_or_ahead(tokens, ids, family):
    """Of two stacks those of the encoder."""
    weights = maps.token_attention(built(FAMILIES[family], tokens, 5), *ids, "it")
    assert [own.shape for own in weights] == [(3, 2, 20, 20)] * 2
    for own, (row, length) in ((own, place) for own in weights for place in enumerate(ids[1])):
        inside = own[row, :, :length, :length]
        torch.testing.assert_close(inside.sum(2), torch.ones(2, length))
        ahead = inside.triu(1)
        assert not ahead.any() if family == "decoder" else ahead.sum() > 0.1


def test_bf16_is_recorded_too(tokens, ids):
    """On a CPU attention has a path of its own there."""
    model = built(FAMILIES["decoder"], tokens, 10)
    expected = maps.token_attention(model, *ids, "it")
    for own, other in zip(maps.token_attention(model.bfloat16(), *ids, "it"), expected, strict=True):
        torch.testing.assert_close(own, other, atol=0.05, rtol=0)


@pytest.mark.parametrize(
    "architecture",
    [
        BiLMArchitecture(name="bilm", hidden_size=16, projection_size=8),
        RecurrentArchitecture(name="recurrent", **RECURRENT),
        RecurrentEncoderDecoderArchitecture(name="recurrent_encoder_decoder", **RECURRENT),
    ],
    ids=lambda own: own.name,
)
def test_a_model_without_attention_is_one_line(tokens, ids, architecture):
    with pytest.raises(SesameError, match="^model it has no attention between tokens: use a Transformer"):
        maps.token_attention(store.build(architecture, tokens).eval(), *ids, "model it")


def test_groups_of_characters_are_no_tokens():
    model = store.build(CanineArchitecture(name="canine", **OF_CANINE), Ascii()).eval()
    with pytest.raises(SesameError, match="^it attends between groups of tokens, as CANINE does"):
        maps.token_attention(model, torch.full((2, 20), 7), torch.tensor([20, 9]), "it")


def test_a_split_up_word_is_attended_to_as_a_whole_and_attends_on_average():
    """[CLS] un|do it [SEP]: to the word the sum over its pieces, from it their mean."""
    weights = torch.tensor([
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.5, 0.1, 0.1, 0.2, 0.1],
        [0.1, 0.3, 0.3, 0.2, 0.1],
        [0.1, 0.2, 0.3, 0.3, 0.1],
        [1.0, 0.0, 0.0, 0.0, 0.0],
    ])  # fmt: skip
    member = maps.membership([-1, 0, 0, 1, -1])
    between = maps.word_attention(weights, member)
    torch.testing.assert_close(between, torch.tensor([[0.4, 0.2], [0.5, 0.3]]))
    assert maps.most_attended(between).tolist() == [1, 0]
    assert maps.most_attended(torch.tensor([[1.0, 0.0], [0.4, 0.6]])).tolist() == [-1, 0], "no word ahead is seen"
    means = evaluation.Means()
    sentence = Sentence(["undo", "it"], ["VERB", "PUNCT"], [0, 1], ["root", "obj"])
    special = torch.tensor([True, False, False, False, True])
    means.add(weights[None], between[None], member, special, sentence)
    [head] = means.by_head()
    entropies = -(weights[1:4] * weights[1:4].log()).sum(1)
    assert head == pytest.approx({
        "itself": 0.35, "previous": 0.5, "next": 0.2, "specials": (0.4 + 0.2) / 2, "punctuation": 0.25,
        "entropy": float((entropies[:2].mean() + entropies[2]) / 2),
    })  # fmt: skip


@pytest.fixture
def even(tokens):
    """A decoder whose queries and keys are nothing: with ALiBi it attends to itself, then to the word before, and so on."""
    architecture = DecoderArchitecture(name="decoder", positions="alibi", **SIZES)
    model = store.build(architecture, tokens).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query_key_value.weight[:32] = 0
            block.attention.query_key_value.bias[:32] = 0
    return model


def test_the_head_of_a_relation_is_chosen_on_train_and_judged_on_test(tokens, even, tmp_path):
    """Heads that attend to the word before find what stands there, and in the other direction what stands behind."""
    words, tags = ["the", "dog", "a", "two", "children", "."], ["DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]
    assert all(len(own) == 1 for own in tokens.encode(words)), "a word of more pieces would be attended to for each"
    plain = Sentence(words, tags, [2, 3, 0, 5, 3, 5], ["det", "nsubj", "root", "det", "obj", "punct"])
    turned = Sentence(words[:5], tags[:5], [2, 3, 0, 2, 4], ["det", "nsubj", "root", "det", "new"])
    long = Sentence(["the"] * 30, ["DET"] * 30, [0, *[1] * 29], ["root", *["det"] * 29])
    treebanks.write(tmp_path / "train.jsonl", [plain] * 3 + [turned])
    treebanks.write(tmp_path / "test.jsonl", [plain] * 30 + [turned] * 10 + [long])
    answers = evaluation.evaluate(tmp_path, even, tokens, "it")
    assert answers.protocol == "best head for each relation" and answers.measure == "accuracy"
    assert len(answers.values) == 30 * 5 + 10 * 4 + 29 and np.isnan(answers.values).sum() == 29, "roots are no items"
    best = answers.figures["best"]
    assert sorted(best) == ["det"], "others have fewer than 50 words"
    # train: 7 of 8 determiners stand before their head, of which a word after attends to them most
    assert best["det"] == {
        "layer": 1, "head": 1, "direction": "head_to_dependent", "accuracy": pytest.approx(70 / 80), "offset": 1,
        "offset_accuracy": pytest.approx(70 / 80), "words": 80,
    }  # fmt: skip
    right = pd.Series(answers.values).groupby(answers.groups).mean()
    assert right[["nsubj", "punct"]].tolist() == [1, 1] and right["obj"] == 0 and right["new"] == 1
    by_place = answers.items.groupby("label")["offset"].mean()
    assert by_place["obj"] == 1, "two words before, which an offset knows and no head here"
    assert answers.figures["references"]["offset"] == pytest.approx(answers.items["offset"][:190].mean())
    assert answers.items.iloc[0].tolist() == ["the", "dog", "det", 1] and answers.clusters[-1] == 40
    heads = answers.figures["heads"]
    assert [(own["layer"], own["head"]) for own in heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert all(own["next"] == 0 and own["itself"] > own["previous"] > 0.1 and own["specials"] > 0.1 for own in heads)
    with pytest.raises(SesameError, match="^it can read none of 1 sentences: each is too long, or a single word"):
        evaluation.attend(even, tokens, [long], "it")
    with pytest.raises(SesameError, match="^it can read none of 2 sentences"):
        evaluation.attend(even, tokens, [Sentence(["yes"], ["INTJ"], [0], ["root"])] * 2, "it")


def test_what_is_chosen_is_not_what_is_best_on_test():
    right = np.array([[1, 1, 0, 0], [0, 1, 1, 1]], bool)
    choice = evaluation.select(right, np.array(["det", "det", "obj", "obj"]))
    assert choice == {"det": 0, "obj": 1}
    other = np.array([[0, 1, 1], [1, 0, 1]], bool)
    judged = evaluation.correct(choice, other, np.array(["det", "obj", "aux"]))
    assert judged.tolist() == [False, False, False], "for aux nothing was chosen"


def write(name: str, sentences: list[list[tuple[str, str, int, str]]]) -> None:
    """A treebank of four columns."""
    rows = ["\n".join("\t".join(map(str, word)) for word in sentence) for sentence in sentences]
    Path("treebank").mkdir(exist_ok=True)
    Path("treebank", name).write_text("\n\n".join(rows) + "\n")


def sentence(subject: str, verb: str, thing: str) -> list[tuple[str, str, int, str]]:
    return [
        ("the", "DET", 2, "det"), (subject, "NOUN", 3, "nsubj"), (verb, "VERB", 0, "root"), ("the", "DET", 5, "det"),
        (thing, "NOUN", 3, "obj"), (".", "PUNCT", 3, "punct"),
    ]  # fmt: skip


@pytest.fixture
def asking(project):
    """The tiny project with a treebank."""
    names = ["dog", "man", "farmer", "president"]
    write("train.tsv", [sentence(one, verb, other) for one in names for other in names for verb in ("sees", "likes")])
    write(
        "test.tsv",
        [sentence(one, verb, other) for one in names for other in ["river", *names] for verb in ("follows", "buys")],
    )
    own = {"kind": "attention", "corpus": "tiny"} | {
        split: {
            "source": {"kind": "files", "paths": [f"treebank/{split}.tsv"]},
            "columns": ["form", "upos", "head", "deprel"],
        }
        for split in ("train", "test")
    }
    raw = tiny_params(
        evaluations={"heads": own},
        evaluate={"models": ["bert", "gpt", "elmo"], "evaluations": ["heads"], "twins": [1, 2]},
    )
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    return raw


def test_from_a_treebank_to_figures(asking, tokens):
    """Of trained models, next to random twins, which choose heads of their own."""
    done = run_stage("components.evaluations", "heads")
    assert done.returncode == 0 and "32 train sentences, 192 train words, 40 test sentences" in done.stdout, done.stderr
    metrics = {}
    for model in ("bert", "gpt"):
        assert run_stage("components.pretrain", model).returncode == 0
        done = run_stage("components.evaluations.evaluate", f"{model}-heads")
        assert done.returncode == 0 and "best head for each relation: accuracy" in done.stdout, done.stderr
        measured = metrics["evaluate", f"{model}-heads"] = json.loads(Path(f"data/metrics/evaluate/{model}-heads.json").read_text())
        items = pd.read_csv(f"data/evaluated/{model}/heads/items.csv")
        assert measured["items"] == len(items) == 200 and measured["score"] == pytest.approx(items["score"].mean())
        assert list(items) == ["word", "head", "label", "offset", "cluster", "weight", "score", "random_1", "random_2"]
        assert measured["random"]["n"] == 2 and set(measured["groups"]) == {"det", "nsubj", "obj", "punct"}
        assert measured["references"] == {"offset": 1.0}, "all trees are the same"
        assert list(measured["best"]) == ["det"] and measured["best"]["det"]["words"] == 80
        assert len(measured["heads"]) == 4
        for head in measured["heads"]:
            assert 0 < head["itself"] < 1 and 0 < head["specials"] < 1 and head["entropy"] > 0
            assert (head["next"] == 0) == (model == "gpt")
    shown = evaluations.attention_heads(params.check(asking | {"evaluate": asking["evaluate"] | {"models": ["bert", "gpt"]}}), metrics)
    assert [(row["model"], row["relation"]) for row in shown] == [("bert", "det"), ("gpt", "det")]
    assert shown[0]["accuracy"] == metrics["evaluate", "bert-heads"]["best"]["det"]["accuracy"]
    save_random(params.check(asking), "elmo", tokens)
    done = run_stage("components.evaluations.evaluate", "elmo-heads")
    assert done.returncode and "data/models/elmo has no attention between tokens" in done.stderr


@pytest.fixture
def models(project, tokens):
    with open("params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    for name in ("bert", "gpt", "elmo"):
        save_random(params.load(), name, tokens)
    return project


def test_a_page_of_maps(models):
    run = CliRunner().invoke
    done = run(cli.app, ["attention", "bert", "The dog costs $1 or $2 <b>."])
    path = Path("data/attention/bert.html")
    assert done.exit_code == 0 and done.output.strip() == str(path), done.output
    shown = path.read_text()
    titles = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    assert shown.count("<svg") == 2 and all(title in shown for title in titles)
    assert "The dog costs $1 or $2 &lt;b&gt;." in shown and shown.count(">[CLS]<") == shown.count(">[SEP]<") == 2 + 4
    assert ">dog<" in shown and ">$<" in shown, "characters of the text, capitals and dollars too"
    assert "<script" not in shown and not re.search(r'(src|href)="http', shown), "it is drawn without the net"
    done = run(cli.app, ["attention", "bert", "the river"])
    assert done.exit_code == 0 and "the river" in path.read_text(), "its last page is replaced"
    done = run(cli.app, ["attention", "gpt", "the dog", "--out", "mine/page.html"])
    assert done.exit_code == 0 and "What gpt attends to" in Path("mine/page.html").read_text()
    labels = page.labelled(store.load(Path("data/models/bert"))[1], "The dog")[1]
    assert labels == ["[CLS]", "The", "dog", "[SEP]"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bert", "the dog " * 20], "the text has 42 tokens, and model bert reads 32: shorten it"),
        (["bert", ""], "the text '' has no token: give at least one word"),
        (["nobody", "the dog"], "data/models/nobody: no model there; run the stage that makes nobody first"),
        (["elmo", "the dog"], "model elmo has no attention between tokens: use a Transformer"),
        (
            ["bert", "the dog", "--out", "params.yaml"],
            "params.yaml is there already; name a new file, or remove it first",
        ),
    ],
)
def test_what_cannot_be_drawn_is_one_line(models, arguments, said):
    before = Path("params.yaml").read_text()
    done = CliRunner().invoke(cli.app, ["attention", *arguments])
    assert done.exit_code == 1 and f"sesame: {said}" in done.output + str(done.exception)
    assert Path("params.yaml").read_text() == before and not Path("data/attention").exists()
