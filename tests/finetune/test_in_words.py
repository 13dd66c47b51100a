"""Tasks in words: prompts, what is written and read back, how likely an answer is."""

import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from lightning import Fabric
from pydantic import TypeAdapter
from rouge_score.rouge_scorer import RougeScorer

from components import params, tasks
from components.comparison import verdicts
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive.checkpoints import pieces
from components.finetune import __main__ as finetune
from components.finetune import loop, methods
from components.finetune.methods import in_context, text_to_text
from components.finetune.prompts import sources_targets
from components.models import store
from components.models.decoder import hub
from components.tasks import Example, metrics
from components.text.tokenizer import CLS, SEP
from components.text.tokenizer.fast import FastTokenizer
from tests.conftest import run_stage, tiny_params
from tests.models.test_transformers import gpt_bpe, roberta_bpe

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]
SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 64}
ARCHITECTURES = {
    "decoder": {"name": "decoder", **SIZES}, "encoder_decoder": {"name": "encoder_decoder", "norm_first": True, **SIZES},
    "recurrent": {"name": "recurrent", "num_layers": 1, "hidden_size": 16, "max_length": 64},
}  # fmt: skip
FABRIC = Fabric(accelerator="cpu", precision="32-true")


def recipe(method: str = "text_to_text", **changes) -> params.Recipe:
    given = {"learning_rate": 0.003, "epochs": 60, "batch_size": 8, "max_length": 40, "dropout": 0.0}
    own = {"target_length": 16} if method == "text_to_text" else {}
    return params.Recipe(method=method, **(given | own | changes))


def task(kind: str = "classification", **changes) -> params.Task:
    own = {"labels": ["no", "yes"]} if kind == "classification" else {"labels": []}
    return TASK.model_copy(update={"kind": kind, **own, **changes})


def prompt(text: str, **answers: str) -> params.Prompt:
    return params.Prompt(text=text, answers=answers)


def build(family: str, tokens, asked: params.Task, chosen: params.Recipe, pair: bool = False):
    torch.manual_seed(0)
    model = store.build(TypeAdapter(params.Architecture).validate_python(ARCHITECTURES[family]), tokens)
    kind = methods.build_kind(asked, chosen, "same")
    return methods.build(model, tokens, chosen, kind, pair), kind


@pytest.fixture
def rows(built):
    """Whether the text begins with an article."""
    read = tasks.read(built / "data/tasks/same", "train")[:32]
    return [Example(row.id, row.text_a, None, "yes" if row.text_a.startswith("The") else "no") for row in read]


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_answers_are_learned_and_a_seed_repeats(family, tokens, rows):
    def train(epochs: int):
        chosen = recipe(epochs=epochs)
        module, kind = build(family, tokens, task(), chosen)
        encoded = module.inputs(kind.encode(rows, tokens), FABRIC)
        fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 0, lambda epoch, loss: None)
        return module, kind, fitted, fitted.predict(encoded).values

    module, kind, fitted, found = train(80)
    assert np.mean([own == row.label for own, row in zip(found, rows, strict=True)]) > 0.8 and fitted.flops > 0
    assert kind.invalid == sum(own not in ("no", "yes") for own in found)
    (once, *_), (again, *_) = train(2), train(2)
    assert all(map(torch.equal, once.state_dict().values(), again.state_dict().values()))

    asked = methods.build_kind(task(), recipe("in_context"), "same")
    likely = methods.build(module.model, tokens, recipe("in_context"), asked, False)
    asked.prepare_inputs(rows, 0)
    split = likely.inputs(asked.encode(list(rows), tokens), FABRIC)
    likeliest = loop.fit(FABRIC, likely, asked, split, recipe("in_context"), 0, print).predict(split).values
    same = [own == other for own, other in zip(found, likeliest, strict=True) if own in ("no", "yes")]
    assert np.mean(same) > 0.95, "what is written is what is likeliest, of answers of one length"


KINDS = {
    "regression": ([1.3, 3.9], task("regression", range=(0.0, 5.0), metrics=["pearson"])),
    "choice": ([["0"], ["1"]], task("choice", metrics=["accuracy"])),
    "extraction": ([["dog"], ["river"]], task("extraction", metrics=["f1"])),
    "text": ([["the dog sleeps"], ["a river"]], task("text", metrics=["rouge_l"])),
}


@pytest.mark.parametrize(("family", "kind"), [*(("decoder", kind) for kind in KINDS), ("encoder_decoder", "text")])
def test_every_kind_of_task_is_learned_by_heart(family, kind, tokens):
    labels, asked = KINDS[kind]
    rows = [
        Example(str(i), text, "the dog sees the river" if kind == "extraction" else None, label,
                choices={"0": "the old dog", "1": "a river"} if kind == "choice" else None)
        for i, (text, label) in enumerate(zip(["the dog sees the river", "a man sings"], labels, strict=True))
    ]  # fmt: skip
    module, read = build(family, tokens, asked, recipe(epochs=180, learning_rate=0.01))
    encoded = read.encode(rows, tokens)
    found = (
        loop.fit(FABRIC, module, read, encoded, recipe(epochs=180, learning_rate=0.01), 0, lambda epoch, loss: None).predict(encoded).values
    )
    expected = {"regression": [1.2, 4.0], "choice": ["0", "1"], "extraction": ["dog", "river"], "text": ["the dog sleeps", "a river"]}
    assert found == pytest.approx(expected[kind]) if kind == "regression" else found == expected[kind]
    assert read.invalid == (None if kind == "text" else 0) and metrics.METRICS[kind][asked.metrics[0]](asked, rows, found) == pytest.approx(
        1.0
    )


def test_what_is_no_answer_is_counted_and_wrong(tokens):
    row = Example("1", "the dog", None, "yes")
    asked = task(prompt=prompt("{text_a}?", yes="river"), metrics=["f1"])
    _, kind = build("decoder", tokens, asked, recipe())
    found = [kind.parse(kind.answers([text])[0], row) for text in ("no", "river", "yes", "the man")]
    assert found == ["no", "yes", "yes", "the man"] and kind.invalid == 2, "the label's name is no answer where other words stand for it"
    rows = [Example(str(i), "", None, label) for i, label in enumerate(["no", "yes", "no", "yes"])]
    assert metrics.METRICS["classification"]["f1"](asked, rows, ["no", "yes", "a river", "the man"]) == pytest.approx(2 / 3)


def test_an_answer_that_is_not_in_the_passage_is_counted_and_wrong(tokens):
    row = Example("1", "what", "The man sees a red  ball", ["a red ball"])
    _, kind = build("decoder", tokens, KINDS["extraction"][1], recipe())
    found = [kind.parse(kind.answers([text])[0], row) for text in ("red ball", "the river", "")]
    assert found[1:] == ["", ""] and found[0].replace(" ", "") == "redball" and kind.invalid == 2
    assert metrics.METRICS["extraction"]["f1"](KINDS["extraction"][1], [row] * 2, found[1:]) == 0


def test_of_a_question_without_an_answer_nothing_is_the_right_answer_and_a_hallucination_a_wrong_one(tokens):
    """By SQuAD 2.0's script; both were counted as outside, and both as right."""
    asked = KINDS["extraction"][1].model_copy(update={"unanswerable": True})
    rows = [Example("1", "what", "The man sees a red ball", answers) for answers in ([""], [""], ["a red ball"], ["a red ball"])]
    _, kind = build("decoder", tokens, asked, recipe())
    found = [kind.parse(kind.answers([text])[0], row) for text, row in zip(("", "the river", "", "red ball"), rows, strict=True)]
    assert kind.invalid == 1
    for metric in ("f1", "exact_match"):
        scored = [metrics.METRICS["extraction"][metric](asked, [row], [own]) for row, own in zip(rows, found, strict=True)]
        assert scored == [1, 0, 0, 1]


def test_a_written_answer_counts_as_the_passage_has_it():
    """A word-piece tokenizer writes blanks around punctuation and lower case."""
    passage = "In Super Bowl 50 the score was 24–10, on February  7, 2016; Straße."
    found = [text_to_text._as_written(text, passage) for text in ("24 – 10", "february 7 , 2016", "STRASSE .", "25", " ")]
    assert found == ["24–10", "February  7, 2016", "Straße.", "", ""]


@pytest.mark.parametrize(("passage", "answer"), [
    ("The lake is 20 km² wide.", "20 km²"), ("It grew by ½ percent.", "½ percent"), ("Windows™ was sold.", "Windows™"),
    ("速度は１００キロです。", "１００キロ"), ("cafe\u0301 in Paris", "cafe\u0301"), ("a café", "café"),
])  # fmt: skip
def test_an_answer_is_found_that_nfkc_changes(passage, answer):
    """Every tokenizer trained here writes NFKC, so such an answer was never right."""
    assert text_to_text._as_written(unicodedata.normalize("NFKC", answer).lower(), passage) == answer


@pytest.mark.parametrize(("written", "passage", "found"), [
    ("서우", "서울 사람", ""), ("cafe", "a café, a cafe", "cafe"), ("cafe", "cafe\u0301", ""), ("か", "がか", "か"), ("1", "½ of 1", "1"),
    ("ss", "Maß, Mass", "ß"), ("Ma ss", "Maß", "Maß"), ("カ", "ｶﾞ ｶ", "ｶ"), ("aa", "ａａａ", "ａａ"),
])  # fmt: skip
def test_a_written_answer_has_whole_characters_of_the_passage(written, passage, found):
    """The first part of a letter that is written decomposed was found, and made a wrong answer right."""
    assert text_to_text._as_written(written, passage) == found


@pytest.mark.parametrize(("setting", "value", "needs"), [
    ("label_smoothing", 0.1, "classification or tagging or text"), ("class_weights", "balanced", "classification or tagging"),
    ("temperature_scaling", True, "classification"),
])  # fmt: skip
def test_settings_of_classes_are_refused_where_no_task_has_any(setting, value, needs):
    raw = tiny_params()
    raw["finetune"]["recipes"]["bert"][setting] = value
    params.check(raw)
    same = raw["tasks"]["same"]
    raw["tasks"]["scores"] = {key: own for key, own in same.items() if key != "labels"} | {"kind": "regression", "metrics": ["pearson"]}
    raw["finetune"]["tasks"] = ["scores", "same"]
    params.check(raw)  # one of two has classes
    raw["finetune"]["tasks"] = ["scores"]
    with pytest.raises(SesameError, match=rf"finetune\.recipes\.bert\.{setting} has no effect: it needs a task of kind {needs}"):
        params.check(raw)


@pytest.mark.parametrize("setting", [{"layer_decay": 0.5}, {"gradual_unfreezing": True}, {"head": "mix"}])
def test_what_nothing_frozen_can_use_is_refused(setting):
    raw = tiny_params()
    raw["finetune"]["recipes"]["elmo"] |= setting | {"method": "mix"}
    with pytest.raises(SesameError, match=f"{next(iter(setting))} has no effect under method mix: leave it out"):
        params.check(raw)


@pytest.mark.parametrize(("method", "setting", "needs"), [
    ("full", {"rank": 64}, "lora"), ("lora", {"bottleneck": 64}, "adapters"), ("adapters", {"alpha": 4.0}, "lora"),
    ("bitfit", {"prompt_length": 4}, "prompt"), ("in_context", {"target_length": 4}, "text_to_text"),
    ("full", {"layer": 0}, "linear_probe or sentence_probe or cosine"), ("linear_probe", {"vector": "mean"}, "sentence_probe or cosine"),
])  # fmt: skip
def test_a_setting_of_another_method_is_refused(method, setting, needs):
    """A LoRA's rank under `method: full`, as peft's configs for all methods at once take it, changes nothing and says so."""
    [name] = setting
    with pytest.raises(ValueError, match=f"{name} has no effect with method {method}: it needs {needs}; leave it out"):
        params.Recipe(method=method, learning_rate=0.003, epochs=1, batch_size=8, **setting)


def test_a_prompt_alone_has_no_layers_that_learn_slower():
    for setting in ({"layer_decay": 0.5}, {"gradual_unfreezing": True}):
        with pytest.raises(ValueError, match=f"{next(iter(setting))} has no effect under method prompt: leave it out"):
            params.Recipe(method="prompt", learning_rate=0.003, epochs=1, batch_size=8, **setting)


def test_another_method_over_a_recipe_does_not_inherit_what_it_lacks():
    low_rank = params.Recipe(method="lora", rank=4, learning_rate=0.003, epochs=1, batch_size=8, dropout=0.0)
    assert low_rank.under({"method": "full"}) == low_rank.model_dump(include={"method", "learning_rate", "epochs", "batch_size", "dropout"})
    assert low_rank.under({"alpha": 2.0})["rank"] == 4


def test_scores_that_are_no_numbers_say_what_says_least(tokens):
    rows = [Example(str(i), "the dog", None, label) for i, label in enumerate([1.0, 2.0])]
    module, kind = build("decoder", tokens, KINDS["regression"][1], recipe())
    kind.prepare_targets(kind.encode(rows, tokens))
    texts = ["2.6", "the dog", "-1"]
    read = [kind.parse(kind.answers([text])[0], rows[0]) for text in texts]
    assert read == [2.6, 1.5, -1.0] and kind.invalid == 1
    _, kind = build("decoder", tokens, KINDS["regression"][1].model_copy(update={"range": (1.0, 10.0)}), recipe())
    written = [kind.answer(Example("", "", None, label)) for label in (1.0, 1.3, 10.0)]
    assert written == ["1.00", "1.36", "10.00"], "25 even steps from the lowest"
    _, kind = build("decoder", tokens, KINDS["extraction"][1], recipe())
    passage = Example("1", "who?", "The Dog sees a river.", ["The Dog"])
    assert [kind.parse(kind.answers([text])[0], passage) for text in ("the dog", "a man")] == ["The Dog", ""] and kind.invalid == 1


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_rows_of_prompt_and_answer(family, tokens):
    row, end = Example("1", "the dog", "a river", "yes"), [SEP] if family == "encoder_decoder" else []
    worded = prompt("{text_b} because {text_a}, so", yes="the man")
    for own, read, written in (
        (worded, "a river because the dog, so", "the man"), (None, "same first: the dog second: a river", "yes"),
    ):  # fmt: skip
        _, kind = build(family, tokens, task(prompt=own), recipe(max_length=55, target_length=8), pair=True)
        encoded = kind.encode([row], tokens)
        [ids], [segments] = encoded.texts[0], encoded.segments[0]
        [source], [target] = sources_targets(ids[None], torch.tensor([len(ids)]), segments[None])
        assert source.tolist() == [CLS, *tokens.encode([read])[0], *end] and target.tolist() == [*tokens.encode([written])[0], SEP]
    _, kind = build(family, tokens, task(), recipe())
    assert kind.prompt(replace(row, text_b=None), 30).ids == tokens.encode(["same: the dog"])[0]


def test_a_long_text_loses_its_end_and_not_the_question_behind_it(tokens):
    rows = [Example("1", "the old dog sees " * 20, "a man", "yes"), Example("2", "the dog", "a man", "no")]
    _, kind = build("decoder", tokens, task(prompt=prompt("{text_a}. {text_b} sings, yes or no?")), recipe(max_length=30))
    encoded = kind.encode(rows, tokens)
    long = tokens.decode(encoded.texts[0][0].tolist())
    assert (encoded.segments[0][0] == 0).sum() <= 30 and encoded.cut == 1 and "a man sings, yes or no?" in re.sub(r" ([,?])", r"\1", long)
    _, kind = build("decoder", tokens, KINDS["choice"][1], recipe(max_length=40))
    of_choices = replace(rows[0], label=["b"], choices={"a": "a man sings", "b": "the river"})
    [ids] = kind.encode([of_choices], tokens).texts[0]
    said = re.sub(r" ([:;])", r"\1", tokens.decode(ids.tolist()))
    assert "choices: a man sings; the river" in said, "which stand there whole"
    _, kind = build("decoder", tokens, task("text", metrics=["rouge_l"]), recipe(target_length=3))
    assert kind.encode([Example("1", "the dog", None, ["the old dog sees a river"])], tokens).lost == 1, "an answer too long is counted"


@pytest.mark.parametrize(("cut", "times"), [("longest", 6), ("text_a", 2)])
def test_of_two_long_texts_each_keeps_its_half(cut, times, tokens):
    row = Example("1", "the old dog " * 20, "a man sings " * times, "yes", spans=[("text_b", 0, 5)])
    _, kind = build("decoder", tokens, task(prompt=prompt("{text_a} | {text_b}"), cut=cut), recipe(max_length=40))
    read = kind.prompt(row, 36)
    first, _, second = tokens.decode(read.ids).partition("|")
    sizes = [len(tokens.encode([text])[0]) for text in (first, second)]
    assert 30 <= len(read.ids) <= 36 and read.cut and not read.lost
    assert (abs(sizes[0] - sizes[1]) <= 3) if cut == "longest" else second.count("man") == times, sizes
    assert kind.prompt(Example("1", row.text_a, row.text_b, "yes", spans=[("text_b", 15, 20)]), 10).lost
    assert kind.prompt(row, 1).empty and kind.prompt(row, 1).lost


@torch.no_grad()
@pytest.mark.parametrize("family", ARCHITECTURES)
@pytest.mark.parametrize("calibrated", [False, True])
def test_how_likely_an_answer_is_by_hand(family, calibrated, tokens, rows, monkeypatch):
    monkeypatch.setattr(in_context, "BATCH_SIZE", 1)  # several batches
    chosen = recipe("in_context", shots=2, max_length=60, calibrated=calibrated)
    module, kind = build(family, tokens, task(prompt=prompt("{text_a}:")), chosen)
    for parameter in module.model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    kind.prepare_inputs(rows, 7)
    assert len(kind.encode(rows, tokens)) == 0, "those that the prompt's examples are drawn from are not asked about"
    asked = [Example("x", "the dog sees", None, None), Example("y", "a man", None, None)]
    read = module.inputs(kind.encode(asked, tokens), FABRIC)
    found = torch.tensor([[float(score) for score in own] for own in read.texts])
    [batch] = loop.batches(read, 2, None)
    assert torch.equal(module(batch.texts, batch.segments).view(2, 2), found[batch.index]) and read.flops > 0
    source_first, end = family == "encoder_decoder", [SEP] if family == "encoder_decoder" else []

    def by_hand(text: str) -> torch.Tensor:
        scores, source = [], [CLS, *kind.context, *tokens.encode([f"{text}:"])[0], *end]
        for label in ("no", "yes"):
            answer, total = tokens.encode([label])[0] + end, 0.0
            for i, token in enumerate(answer):
                if source_first:
                    hidden = module.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[*answer[:i], token]]))[0, -1]
                else:
                    hidden = module.model.top(torch.tensor([source + answer[:i]]), torch.tensor([len(source) + i]))[0, -1]
                total += float(module.model.logits(hidden).log_softmax(0)[token])
            scores.append(total)
        return torch.tensor(scores)

    expected = torch.stack([by_hand(example.text_a) for example in asked])
    if calibrated:
        expected -= torch.stack([by_hand(text).softmax(0) for text in ("N/A", "[MASK]", "")]).mean(0).log()
    assert torch.allclose(found, expected, atol=1e-4)
    assert kind.context.count(SEP) == 2 and not any(parameter.requires_grad for parameter in module.parameters())


@torch.no_grad()
def test_a_choice_is_judged_by_the_mean_over_its_tokens(tokens):
    row = Example("1", "the dog", None, ["b"], choices={"a": "a man sings in the old house", "b": "sees"})
    chosen = recipe("in_context", max_length=60)
    module, kind = build("decoder", tokens, task("choice", metrics=["accuracy"], prompt=prompt("{text_a}")), chosen)
    kind.prepare_inputs([row], 1)
    read = module.inputs(kind.encode([Example("2", *list(vars(row).values())[1:])], tokens), FABRIC)
    for found, text in zip(read.texts[0], row.choices.values(), strict=True):
        [source], [answer] = tokens.encode(["the dog"]), tokens.encode([text])
        hidden = module.model.top(torch.tensor([[CLS, *source, *answer]]), torch.tensor([1 + len(source + answer)]))[0]
        logits = module.model.logits(hidden).log_softmax(1)
        assert float(found) == pytest.approx(float(np.mean([logits[len(source) + i, own] for i, own in enumerate(answer)])), abs=1e-4)
    with pytest.raises(SesameError, match="example 3 of same has a choice without a token"):
        kind.encode([Example("3", "the dog", None, None, choices={"a": "", "b": "so"})], tokens)


def test_the_examples_in_the_prompt_are_drawn_by_the_seed(tokens, rows, tmp_path, capsys):
    _, kind = build("decoder", tokens, task(), recipe("in_context", shots=3, max_length=60))
    said = []
    for seed in (1, 1, 2):
        kind.prepare_inputs(rows, seed)
        said.append(kind.context)
    assert said[0] == said[1] != said[2] and all(ids.count(SEP) == 3 and len(ids) <= 45 for ids in said)
    with pytest.raises(SesameError, match="shots: 3, but there are only 2 training examples"):
        kind.prepare_inputs(rows[:2], 1)
    with pytest.raises(
        SesameError, match="max_length 30 leaves 3 tokens for each of 8 examples and the one to predict: raise it or lower shots"
    ):
        build("decoder", tokens, task(), recipe("in_context", shots=8, max_length=30))
    with pytest.raises(SesameError, match="max_length 34 leaves 8 tokens"):  # no answer has a token left: each is worth 0 / 0
        build("decoder", tokens, task("choice", metrics=["accuracy"]), recipe("in_context", shots=3, max_length=34))
    pieces.write(tokens, hub, 64, tmp_path)
    imported = FastTokenizer(tmp_path)  # of sentencepiece, as T5's: it makes a blank of a line break
    _, kind = build("decoder", imported, task(), recipe("in_context", shots=3, max_length=60))
    kind.prepare_inputs(rows, 1)
    assert kind.context.count(SEP) == 3, "an example ends with something"
    _, kind = build("decoder", tokens, task(), recipe("in_context", shots=4, max_length=60))
    kind.prepare_inputs([Example(str(i), "the old dog sees the river " * 9, None, "yes") for i in range(4)], 1)
    encoded = kind.encode([Example("x", "a man " * 40, None, None)], tokens)
    assert all(len(ids) <= 60 for ids in encoded.texts[0]) and encoded.cut == 1, "long ones are cut to their share"
    assert kind.cut == 4, "so are those of the prompt, and counted"
    asked = task(prompt=prompt("the old dog sees the river in the morning and {text_a} near the sea"))
    _, kind = build("decoder", tokens, asked, recipe("in_context", shots=4, max_length=60))
    kind.prepare_inputs(rows, 1)
    assert (kind.cut, kind.lost) == (4, 4)
    said = "4 of 4 examples in the prompt of same are cut, 4 lost their answer, 4 words of the prompt itself: each has 11 of"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("labels", "words", "said"), [
    (["the_man", "the man"], {}, "the text 'the man' of label 'the man' of same has the same tokens as that of 'the_man'"),
    (["the man", "the man sings"], {}, "label 'the man sings' of same begins with that of 'the man'"),
])  # fmt: skip
def test_labels_that_can_not_be_told_apart(labels, words, said, tokens):
    with pytest.raises(SesameError, match=said):
        build("decoder", tokens, task(labels=labels), recipe("in_context"))
    if "has the same tokens" in said:
        with pytest.raises(SesameError, match=said):
            build("decoder", tokens, task(labels=labels), recipe())
    else:
        build("decoder", tokens, task(labels=labels), recipe())
        with pytest.raises(SesameError, match="two labels of same begin with the same 2 tokens: raise target_length"):
            build("decoder", tokens, task(labels=labels), recipe(target_length=3))


def test_what_two_choices_share_names_neither(tokens):
    """The same ids, in small letters or cut to the length that is generated: an answer that is none, and is counted."""
    small_letters, cut = {"0": "The dog", "1": "the dog", "2": "a man"}, {"0": "a man sees", "1": "a man likes", "2": "the dog"}
    for choices, length in ((small_letters, 16), (cut, 3)):
        _, kind = build("decoder", tokens, task("choice"), recipe(target_length=length))
        example = Example("1", "who", None, ["0"], choices=choices)
        ids = {name: kind.answers([text])[0][: kind.longest] for name, text in choices.items()}
        assert [kind.parse(ids[name], example) in choices for name in choices] == [False, False, True] and kind.invalid == 2


def test_an_answer_that_does_not_fit_is_counted_and_labels_that_end_otherwise_are_refused(tokens):
    """In context, where all that is judged of an answer is what there is room for."""
    long = " the old dog sees a river in the morning" * 4
    for labels, alike in (([f"a man{long}", f"some bread{long}"], False), ([f"{long} one", f"{long} two"], True)):
        _, kind = build("decoder", tokens, task(labels=labels), recipe("in_context", shots=0, max_length=32))
        rows = [Example("1", "the dog", None, labels[0])]
        kind.prepare_inputs(rows, 1)
        if alike:
            with pytest.raises(SesameError, match="labels of same begin with the same .* tokens, and no more fit"):
                kind.encode([replace(row) for row in rows], tokens)
        else:
            assert [getattr(kind.encode([replace(row) for row in rows], tokens), key) for key in ("cut", "lost")] == [1, 1]


@pytest.mark.parametrize(("family", "write"), [("decoder", gpt_bpe), ("encoder_decoder", roberta_bpe)])
def test_models_with_tokenizers_from_elsewhere(family, write, tmp_path):
    """GPT-2's, whose words begin with a space, and BART's, whose targets open with the prefix of a text; kept at the best epoch."""
    write(tmp_path)
    tokens, texts = FastTokenizer(tmp_path), {"the dog sees": "no", "a man": "yes", "an old river": "no"}
    rows = [Example(str(i), text, None, label) for i, (text, label) in enumerate(texts.items())]
    chosen = recipe(epochs=200, learning_rate=0.005, patience=200)
    module, kind = build(family, tokens, task(), chosen)
    encoded, unlabelled = kind.encode(rows, tokens), kind.encode([replace(row, label=None) for row in rows], tokens)
    ids = encoded.texts[0][0].tolist()
    answer = tokens.encode(["no" if family == "encoder_decoder" else " no"])[0]
    assert ids[-len(answer) - 1 :] == [*answer, tokens.suffix[-1]] and kind.opening == (
        tokens.prefix if family == "encoder_decoder" else []
    )
    assert (encoded.segments[0][0] == 1).sum() == len(kind.opening) + len(answer) + 1
    _, shown = build(family, tokens, task(), recipe("in_context", shots=2))
    shown.prepare_inputs(rows, 1)
    line_break = tokens.encode(["\n"])[0]
    assert shown.context[-len(line_break) :] == line_break != tokens.suffix, "where the pieces have one"
    judge = lambda found: float(np.mean([own == row.label for own, row in zip(found, rows, strict=True)]))  # noqa: E731
    fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 0, lambda epoch, loss: None, judge, encoded)
    assert fitted.predict(encoded).values == fitted.predict(unlabelled).values == ["no", "yes", "no"] and fitted.epochs < 200


TEXTS = ["the dog sleeps in the old house by the river", "a man sings", "the red cat runs to the river", "an old man sleeps"]
WRITTEN = [["the dog sleeps in a house by the river", "a man", "the cat runs", "an old man sleeps"],
           ["a dog", "a man sings", "the red cat runs to a river", "the man sleeps"]]  # fmt: skip


@pytest.mark.parametrize("metric", params.tasks.METRICS_OF["text"])
def test_metrics_of_texts_are_those_of_the_libraries(metric):
    asked = task("text", metrics=[metric])
    rows = [Example(str(i), "", None, [text, text.replace("the", "a")]) for i, text in enumerate(TEXTS)]
    references = [[row.label[i] for row in rows] for i in range(2)]
    rouge = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)

    def by_library(written: list[str]) -> float | None:
        if metric in ("bleu", "chrf"):
            return {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[metric](written, references).score / 100
        if not metric.startswith("rouge"):
            return None
        name = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}[metric]
        pairs = zip(written, rows, strict=True)
        return float(np.mean([max(rouge.score(answer, own)[name].fmeasure for answer in row.label) for own, row in pairs]))

    for written in WRITTEN:
        found = metrics.METRICS["text"][metric](asked, rows, written)
        assert 0 < found <= 1 and by_library(written) in (None, pytest.approx(found))
    side = verdicts.side(asked, metric, rows, WRITTEN)
    assert side.scores == pytest.approx([metrics.METRICS["text"][metric](asked, rows, written) for written in WRITTEN])
    for block, without in zip(verdicts.blocks_of(rows), side.without, strict=True):
        kept = [i for i in range(4) if i not in block]
        by_hand = [metrics.METRICS["text"][metric](asked, [rows[i] for i in kept], [own[i] for i in kept]) for own in WRITTEN]
        assert without == pytest.approx(by_hand)


def test_case_counts_unless_the_task_says_otherwise():
    rows = [Example("1", "", None, ["The Dog Sleeps In The House"])]
    scores = [
        metrics.METRICS["text"]["bleu"](task("text", lowercase=blind), rows, ["the dog sleeps in the house"]) for blind in (False, True)
    ]
    assert scores[0] < 0.5 and scores[1] == pytest.approx(1.0)


def in_words(raw: dict) -> dict:
    """The tiny project with a task of texts and an encoder-decoder for it."""
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 64}
    raw["models"]["t5"] = raw["models"]["bert"] | {
        "architecture": {"name": "encoder_decoder", **sizes}, "prompts": [],
        "objective": {"name": "denoising", "noise": {"kind": "whole", "infilled": 0.3}},
    }  # fmt: skip
    two = {"kind": "files", "paths": ["raw/one.txt", "raw/two.txt"]}
    raw["tasks"]["turned"] = {
        "licence": "none", "kind": "text", "metrics": ["bleu", "rouge_l"], "reader": "parallel", "train": {"source": two},
        "dev": {"share": 0.2}, "test": {"share": 0.2},
    }  # fmt: skip
    given = {"learning_rate": 0.003, "epochs": 2, "batch_size": 8}
    raw["finetune"]["recipes"] |= {
        "t5": {"method": "text_to_text", **given, "max_length": 40, "target_length": 12},
        "gpt": {"method": "in_context", **given, "max_length": 20},
    }  # fmt: skip
    raw["finetune"] |= {"models": ["gpt", "t5"], "tasks": ["same"]}
    return raw


def test_a_model_is_asked_in_context(project):
    """Over the seeds, which draw the examples; from random weights as well."""
    raw = in_words(tiny_params())
    raw["finetune"]["models"] = ["gpt"]
    raw["finetune"]["recipes"]["gpt"] |= {"shots": 1, "max_length": 32, "calibrated": True}
    Path("params.yaml").write_text(json.dumps(raw))
    done = run_stage("components.pretrain", "gpt")
    assert done.returncode == 0, done.stderr
    figures = finetune.finetune(params.load(), "gpt-same", Run(None))
    how = "nothing trained, 1 examples in the prompt, calibrated, pairs read jointly; 1 labelled examples, others for each seed"
    assert figures["protocol"].endswith(how)
    assert figures["trainable_parameters"] == 0 and figures["cost"]["flops"] > 0 and figures["cut"]["train"] == 0 < figures["cut"]["test"]
    assert figures["shots"] == {"cut": 1, "lost": 1}, "of the seed that was last"
    predictions = [json.loads(line) for line in Path("data/scores/gpt/same/predictions.jsonl").read_text().splitlines()]
    assert {row["prediction"] for row in predictions} <= {"no", "yes"} and {row["init"] for row in predictions} == {"pretrained", "random"}
    asked = {(row["seed"], row["id"]): row["prediction"] for row in predictions if row["init"] == "pretrained"}
    assert {seed for seed, _ in asked} == {1, 2}


def test_from_two_files_to_scores(project):
    lines = [line for line in Path("raw/text.txt").read_text().split("\n") if line][:60]
    Path("raw/one.txt").write_text("\n".join([*lines, "alone"]) + "\n")
    Path("raw/two.txt").write_text("\n".join([*(" ".join(line.split()[::-1]) for line in lines), ""]) + "\n")
    raw = in_words(tiny_params())
    raw["finetune"]["models"], raw["finetune"]["tasks"] = ["t5"], ["same", "turned"]
    del raw["finetune"]["recipes"]["gpt"]
    Path("params.yaml").write_text(json.dumps(raw))
    for module, name in (("components.tasks", "turned"), ("components.pretrain", "t5"), ("components.finetune.baseline", "turned")):
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    assert json.loads(Path("data/tasks/turned/card.json").read_text())["dropped"] == {"train: empty text": 1}
    all_params = params.load()
    figures = {name: finetune.finetune(all_params, f"t5-{name}", Run(None)) for name in ("same", "turned")}
    assert figures["turned"]["metric"] == "bleu" and "outside" not in figures["turned"]
    assert set(figures["same"]["outside"]["pretrained"]) == {"dev", "test"} and len(figures["same"]["outside"]["random"]["test"]) == 2
    predictions = [json.loads(line) for line in Path("data/scores/t5/turned/predictions.jsonl").read_text().splitlines()]
    assert all(isinstance(row["prediction"], str) and isinstance(row["label"], list) for row in predictions)
    baseline = json.loads(Path("data/metrics/baseline/turned.json").read_text())["baselines"]["majority"]["test"]
    assert baseline["rouge_l"]["mean"] > 0, "the source as it is"
    Path("raw/two.txt").write_text("one line\n")
    done = run_stage("components.tasks", "turned")
    assert done.returncode == 2 and "one.txt has 61 lines and raw/two.txt 1" in done.stderr


@pytest.mark.parametrize(("change", "said"), [
    (lambda raw: raw["finetune"]["recipes"].update(bert={**raw["finetune"]["recipes"]["t5"]}),
     "needs a model that generates text, and models.bert does not"),
    (lambda raw: raw["finetune"].update(tasks=["turned"], models=["gpt"]),
     "in_context is for tasks of kind classification, choice, and turned is of kind text"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(method="full", target_length=32)
     or raw["finetune"].update(tasks=["turned"], models=["t5"]),
     "full generates no text, as the task turned needs"),
    (lambda raw: raw["tasks"]["same"].update(kind="regression", labels=[], metrics=["pearson"])
     or raw["finetune"].update(tasks=["same"], models=["t5"]),
     "text_to_text writes a score as one of 25 steps of the task's range; give tasks.same.range"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "{text_c}"}), r"unknown field \{text_c\} \(there are: \{text_a\}"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "no text"}), "does not contain the example"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "{text_a", "answers": {}}), "write a literal brace twice"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "{text_a}", "answers": {"maybe": "so"}}),
     "'maybe', which is not a label"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "{text_a}", "answers": {"no": "yes"}}), "'yes' stands for two labels"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(pair="apart"), "pair has no effect under method text_to_text"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(class_weights="balanced"),
     "class_weights has no effect under method text_to_text"),
    (lambda raw: raw["finetune"]["recipes"]["gpt"].update(patience=1), "patience has no effect under method in_context"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(shots=4), "shots has no effect with method text_to_text: it needs in_context"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(target_length=65), "target_length is 65, more than models.t5 has room for"),
    (lambda raw: raw["finetune"]["recipes"]["gpt"].update(method="text_to_text", target_length=13),
     "max_length and target_length together are 33"),
    (lambda raw: raw["tasks"]["same"].update(prompt={"text": "{text_a}", "answers": {"no": " "}}), "prompt.answers: an answer is "
            "empty"),
    (lambda raw: raw["search"].update(models=["gpt"], tasks=["same"]), "nothing is trained"),
    (lambda raw: raw["learning_curve"].update(models=["gpt"], tasks=["same"]), "nothing is trained"),
    (lambda raw: raw["finetune"]["recipes"]["t5"].update(method="full", target_length=32)
     or raw["learning_curve"].update(models=["t5"], tasks=["turned"]),
     "full generates no text, as the task turned needs"),
])  # fmt: skip
def test_wrong_settings_are_a_line(change, said):
    raw = in_words(tiny_params())
    change(raw)
    with pytest.raises(SesameError, match=said):
        params.check(raw)
