"""Fine-tuning: inputs, which weights learn, that a learnable task is learned, that seeds repeat, scores over seeds."""

import copy
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightning import Fabric
from pydantic import ValidationError
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity
from torch.nn.functional import layer_norm

from components import notebook, params, tasks
from components.comparison import calibration, plots
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import __main__ as derive
from components.finetune import __main__ as finetune
from components.finetune import adapt, baseline, data, kinds, learning_curve, loop, methods, tuned
from components.finetune.methods.cosine import CosineHead
from components.finetune.task_setup import PreparedModel, TaskSetup
from components.models import store
from components.models.common.decomposable_attention import DecomposableAttentionHead
from components.models.common.heads import BiLSTMAttentionHead, ConcatHead, MeanHead, OneLayer, PooledHead, ScalarMix
from components.models.encoder.config import EncoderArchitecture
from components.models.recurrent.config import RecurrentArchitecture
from components.optimizers import factor
from components.optimizers.adamw.config import AdamW
from components.report import tables
from components.tasks import Example, metrics
from components.tasks import __main__ as task_stage
from components.tasks.metrics import summary
from components.text.tokenizer import CLS, PAD, SEP
from tests.conftest import save_random, tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]
RECIPE = params.Recipe(method="full", learning_rate=0.01, epochs=40, batch_size=8, max_length=20, hidden_size=8)


def recipe(**changes) -> params.Recipe:
    return RECIPE.model_copy(update=changes)


def other_task(kind: str, **changes) -> params.Task:
    return TASK.model_copy(update={"kind": kind, "labels": [], **changes})


def test_pairs_are_joined_or_kept_apart_and_cuts_counted(tokens):
    rows = [Example("1", "the dog sees the river", "a man", "yes"), Example("2", "the dog " * 40, "a man", "no")]
    joined, apart = (kinds.build(TASK, recipe(pair=pair)).encode(rows, tokens) for pair in ("joined", "apart"))
    assert joined.cut == apart.cut == 1 and joined.targets == [1, 0]
    for [ids], [segments] in zip(joined.texts, joined.segments, strict=True):
        ids, segments = ids.tolist(), segments.tolist()
        assert len(ids) == len(segments) <= 20 and ids[0] == CLS and ids[-1] == SEP and ids.count(SEP) == 2
        assert segments[: ids.index(SEP) + 1] == [0] * (ids.index(SEP) + 1) and set(segments[ids.index(SEP) + 1 :]) == {1}
    a_man = tokens.encode(["a man"])[0]
    assert joined.texts[1][0][-len(a_man) - 1 : -1].tolist() == a_man, "the longer text is cut, the shorter stays whole"
    assert all(len(texts) == 2 and texts[1].tolist() == [CLS, *a_man, SEP] for texts in apart.texts)


def test_a_passage_alone_is_cut_where_the_task_says_so(tokens):
    answer = tokens.encode(["an old song " * 4])[0]
    row = data.join(tokens, list(range(5, 40)), answer, 20, cut="text_a")
    assert row.second == min(len(answer), 17) and row.first == 17 - row.second and len(row.ids) == 20


def test_marked_words_that_a_cut_takes_away_are_counted(tokens):
    text = "the dog sees *the* river " + "a man " * 30
    kept, far = ("text_a", 13, 18), ("text_a", len(text) - 5, len(text))
    rows = [
        Example("1", text, None, "yes", spans=[kept]), Example("2", text, None, "yes", spans=[kept, far]),
        Example("3", "a man", None, "no", spans=[]),
    ]  # fmt: skip
    encoded = kinds.build(TASK, recipe()).encode(rows, tokens)
    assert (encoded.cut, encoded.lost) == (2, 1)


def test_batches_hold_every_example_once_without_needless_padding(tokens):
    rows = [Example(str(i), "river " * (1 + i % 15), None, "yes") for i in range(103)]
    encoded = kinds.build(TASK, recipe()).encode(rows, tokens)
    seen = []
    for batch in data.batches(encoded, 8, np.random.default_rng(0)):
        [(ids, lengths)] = batch.texts
        seen += batch.index
        assert ids.shape[1] == lengths.max() and (ids[lengths < ids.shape[1], -1] == PAD).all()
    assert sorted(seen) == list(range(103))


def only(encoded) -> data.Batch:
    """All of a split as one batch, in order."""
    return data.Batch([], torch.empty(0), [len(texts) for texts in encoded.texts], list(range(len(encoded))))


def test_choices_are_scored_side_by_side(tokens):
    choices = {"0": "the river", "1": "a man", "2": "the city"}
    rows = [
        Example("1", "the dog sees", None, ["1"], choices=choices),
        Example("2", "a man likes", None, ["0", "1"], choices={"0": "a", "1": "b"}),
    ]
    kind = kinds.build(other_task("choice"), recipe())
    encoded = kind.encode(rows, tokens)
    assert [len(texts) for texts in encoded.texts] == [3, 2] and encoded.choices
    [batch] = data.batches(encoded, 8, None)
    assert batch.texts[0][0].shape[0] == 5 and batch.segments.shape == batch.texts[0][0].shape
    scores = torch.tensor([[0.0], [2.0], [1.0], [0.5], [0.1]])
    assert kind.predict(scores, encoded, only(encoded)) == ["1", "0"]
    by_hand = -torch.log_softmax(scores[:3, 0], 0)[1]  # both choices of the second are right: no loss
    torch.testing.assert_close(kind.loss(scores, encoded, only(encoded)), by_hand / 2)


def test_answers_are_found_again_from_their_tokens(tokens):
    text = "the president sees the river in the morning"
    start = text.index("the river")
    kind = kinds.build(other_task("extraction", metrics=["f1"]), recipe(max_length=32))
    row = Example("1", "who sees", text, ["the river"], spans=[("text_b", start, start + 9)])
    encoded = kind.encode([row, Example("2", "who", "x " * 60 + "a man", ["a man"], spans=[("text_b", 120, 125)])], tokens)
    assert encoded.lost == 1 and encoded.targets[1] is None
    first, last = encoded.targets[0]
    length = max(len(texts[0]) for texts in encoded.texts)
    output = torch.zeros(2, length, 2)
    output[0, encoded.notes[0][0] + first, 0] = output[0, encoded.notes[0][0] + last, 1] = 9.0
    assert kind.predict(output, encoded, only(encoded))[0] == "the river"
    assert kind.loss(output, encoded, only(encoded)) < 0.1
    assert torch.isfinite(kind.loss(output[1:], encoded, data.Batch([], torch.empty(0), [1], [1])))


def test_a_question_may_have_no_answer(tokens):
    """The token behind the text stands for that: BERT learns which of two questions the text answers, and the metrics are SQuAD 2.0's."""
    task = other_task("extraction", metrics=["f1", "exact_match"], unanswerable=True)
    text = "the dog sees a man"
    two = [Example("1", "the dog", text, ["a man"], spans=[("text_b", 13, 18)]), Example("2", "the river", text, [""])]
    rows = [replace(two[i % 2], id=str(i)) for i in range(8)]
    kind = kinds.build(task, recipe(max_length=32))
    encoded = kind.encode(rows, tokens)
    (start, kept, _), behind = encoded.notes[1], encoded.targets[1]
    assert behind == (len(kept), len(kept)) and encoded.texts[1][0][start + behind[0]] == SEP and encoded.lost == 0
    module, _, _ = build("bert", tokens, kind=kind, epochs=40, dropout=0.0)
    fitted = loop.fit(FABRIC, module, kind, module.inputs(encoded, FABRIC), recipe(epochs=40, dropout=0.0), 1, lambda epoch, loss: None)
    written = fitted.predict(module.inputs(encoded, FABRIC)).values
    assert written == ["a man", ""] * 4
    f1, exact_match = (metrics.METRICS["extraction"][metric] for metric in task.metrics)
    assert f1(task, rows, written) == exact_match(task, rows, written) == 1
    assert f1(task, rows, ["a man"] * 8) == f1(task, rows, [""] * 8) == 0.5
    assert baseline.supports("majority", task, True) and not baseline.supports("majority", other_task("extraction"), True)
    assert baseline.majority(task, {"train": rows, "dev": rows[:2]})["dev"] == ["", ""]


def test_answers_are_as_long_as_the_longest_of_train(tokens):
    """Not of 30 tokens at most: those of a character each are soon more. What is longer still is counted."""
    text = "the river " * 40
    kind = kinds.build(other_task("extraction", metrics=["f1"]), recipe(max_length=200))
    rows = [Example(str(i), "who", text, [text[:end].strip()], spans=[("text_b", 0, end)]) for i, end in enumerate((9, 249, 309))]
    short, long, longer = (kind.encode([row], tokens) for row in rows)
    assert kind.longest_answer == 30 and kind.extra_counts({"dev": long}) == {"too_long": {"dev": 1}}
    kind.prepare_targets(kind.encode(rows[:2], tokens))
    first, last = long.targets[0]
    assert kind.longest_answer == last - first + 1 > 30
    assert kind.extra_counts({"dev": long, "test": longer})["too_long"] == {"dev": 0, "test": 1}
    output = torch.zeros(1, len(long.texts[0][0]), 2)
    output[0, long.notes[0][0] + first, 0] = output[0, long.notes[0][0] + last, 1] = 9.0
    assert kind.predict(output, long, only(long)) == [text[:249].strip()]


def test_texts_without_words_have_no_bag_of_them(project, capsys):
    raw = tiny_params()
    raw["baselines"] = raw.get("baselines", {}) | {"methods": ["majority", "logistic_regression", "second_text", "linear_svm"]}
    signs = [":)", "\U0001f600", "!?", "--"]
    lines = "".join(f"{signs[i % 4]}\t{signs[i // 4 % 4]}\t{('no', 'yes')[i % 2]}\n" for i in range(64))
    Path("raw/pairs.tsv").write_text("a\tb\tlabel\n" + lines)
    checked = params.check(raw)
    task_stage.prepare(checked, "same", Run(None))
    made = baseline.baseline(checked, "same", Run(None))
    assert list(made["baselines"]) == ["majority"]
    assert capsys.readouterr().out.count("left out, since no training text of same has a letter or a digit") == 3


def test_the_cosine_of_word_counts_is_scikit_learns():
    """Of texts that share all words, some and none; a word of dev alone has no weight."""
    texts = [("The cat sat.", "the cat sat"), ("a dog, a cat", "a dog barked"), ("one two", "three four"), ("cat cat dog", "dog")]
    rows = [Example(str(i), a, b, float(i)) for i, (a, b) in enumerate(texts)]
    dev = [Example("0", "a new cat", "the cat", 0.0)]
    found = baseline.tfidf_cosine(other_task("regression", metrics=["pearson"]), {"train": rows, "dev": dev})
    counts = TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True).fit([text for pair in texts for text in pair])
    for split, own in (("train", rows), ("dev", dev)):
        u, v = (counts.transform([getattr(row, side) for row in own]) for side in ("text_a", "text_b"))
        assert found[split] == pytest.approx(np.diag(cosine_similarity(u, v)).tolist())
    assert found["train"][0] == pytest.approx(1) and found["train"][2] == 0
    # relatedness of 1 to 5, to which a correlation clips: cosines themselves would all be 1
    of_range = baseline.tfidf_cosine(other_task("regression", metrics=["pearson"], range=[1, 5]), {"train": rows})
    assert of_range["train"] == pytest.approx([1 + 4 * cosine for cosine in found["train"]])


def test_tags_stand_on_the_first_piece_of_their_words(tokens):
    task = other_task("tagging", labels=["O", "B-x"], metrics=["f1"])
    kind = kinds.build(task, recipe())
    words = ["president", "sees", "wooden", "house"]
    examples = [
        Example("1", " ".join(words), None, ["B-x", "O", "O", "B-x"], words=words),
        Example("2", "a " * 40, None, ["O"] * 40, words=["a"] * 40),
    ]
    encoded = kind.encode(examples, tokens)
    places, count = encoded.notes[0]
    assert count == 4 and all(tokens.starts_word[encoded.texts[0][0][i]] for i in places) and encoded.lost == 1
    output = torch.zeros(2, 20, 2)
    output[0, places[[0, 3]], 1] = 5.0
    found = kind.predict(output, encoded, only(encoded))
    assert found[0] == ["B-x", "O", "O", "B-x"] and found[1] == ["O"] * 40


def build(name: str, tokens, method: str = "full", seed: int = 0, kind=None, **changes):
    torch.manual_seed(seed)
    chosen = recipe(method=method, **changes)
    kind = kind or kinds.build(TASK, chosen)
    model = store.build(CHECKED.models[name].architecture, tokens)
    return methods.build(model, tokens, chosen, kind, pair=True), kind, chosen


FABRIC = Fabric(accelerator="cpu", precision="32-true")


def train(name: str, tokens, rows, method: str = "full", seed: int = 0, **changes):
    module, kind, chosen = build(name, tokens, method, seed, **changes)
    encoded = module.inputs(kind.encode(rows, tokens), FABRIC)
    fitted = loop.fit(FABRIC, module, kind, encoded, chosen, seed, lambda epoch, loss: None)
    return module, fitted.predict(encoded).values, fitted


@pytest.fixture
def rows(built):
    """Whether the text begins with an article: learnable by any model, and true of half of the texts."""
    texts = tasks.read(built / "data/tasks/same", "train")[:60]
    return [Example(row.id, row.text_a, row.text_b, "yes" if row.text_a.startswith("The") else "no") for row in texts]


def accuracy(found: list[str], rows) -> float:
    return float(np.mean([value == row.label for value, row in zip(found, rows, strict=True)]))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("bert", {"method": "full"}), ("gpt", {"method": "full"}), ("elmo", {"method": "full"}), ("bert", {"method": "features"}),
        ("elmo", {"method": "features", "pair": "apart"}), ("bert", {"method": "full", "pair": "apart", "head": "mix"}),
        ("gpt", {"method": "full", "pair": "apart", "head": "decomposable_attention", "learning_rate": 0.003}),  # .01: 2 seeds of 6 fail
    ],
)  # fmt: skip
def test_a_learnable_task_is_learned_and_a_seed_repeats(name, recipe, tokens, rows, built):
    if recipe.get("pair") == "apart":  # whether both texts are the same
        rows = tasks.read(built / "data/tasks/same", "train")[:60]
    _, found, fitted = train(name, tokens, rows, **recipe)
    assert accuracy(found, rows) > 0.9 and fitted.flops > 0
    once, again = (train(name, tokens, rows, **recipe, epochs=3)[0].state_dict() for _ in range(2))
    assert all(torch.equal(value, again[key]) for key, value in once.items()), "bit for bit, from the first epochs on"


@pytest.mark.parametrize("method", ["bitfit", "adapters", "lora", "prompt"])
def test_random_weights_are_trained_in_the_same_places(method, tokens, project):
    """A pooler that no pre-training has touched is trained in both arms, or what they differ in is not pre-training alone."""
    block = CHECKED.models["bert"].architecture
    model = store.build(block, tokens)
    state = {name: value for name, value in model.state_dict().items() if not name.startswith(("pooler", "next_sentence"))}
    store.save(Path("data/models/bert"), state, block, tokens, ["next_sentence", "pooler"], [])
    trained = []
    for pretrained in (True, False):
        model, _ = store.load(Path("data/models/bert"), pretrained)
        module = methods.build(model, tokens, recipe(method=method), kinds.build(TASK, recipe()), pair=True)
        trained.append({name for name, value in module.named_parameters() if value.requires_grad})
    assert trained[0] == trained[1] and any("pooler" in name for name in trained[0])


CHANGES = {
    "bitfit": lambda name: "bias" in name.rsplit(".", 1)[-1],
    "adapters": lambda name: ".down." in name or ".up." in name or "norm" in name or "head_transform.2" in name,
    "lora": lambda name: "lora_" in name,
    "prompt": lambda name: name.endswith(".prompt"),
    "mix": lambda name: False, "linear_probe": lambda name: False, "features": lambda name: False,
}  # fmt: skip


@pytest.mark.parametrize("method", CHANGES)
def test_a_method_moves_its_own_weights_and_the_head_alone(method, tokens, rows):
    untouched, _, _ = build("bert", tokens, method, prompt_length=4)
    before = {name: value.clone() for name, value in untouched.named_parameters()}
    trained, _, fitted = train("bert", tokens, rows, method, epochs=3, prompt_length=4)
    moved = {name for name, value in trained.named_parameters() if not torch.equal(value, before[name])}
    learnable = {name for name in before if name.startswith("head.") or CHANGES[method](name)}
    assert moved <= learnable and {name for name in learnable if name.startswith("head.")} <= moved
    parts = {"adapters": [".down.", ".up."], "lora": ["lora_B"], "prompt": [".prompt"], "bitfit": ["bias"]}.get(method, [])
    assert all(any(part in name for name in moved) for part in parts)
    assert fitted.trained_parameters <= sum(before[name].numel() for name in learnable) < store.count_parameters(untouched) / 2


def test_adapters_lora_and_prompts_start_as_the_model_they_adapt(tokens, rows):
    encoded = kinds.build(TASK, recipe()).encode(rows[:8], tokens)
    [batch] = data.batches(encoded, 8, None)

    def hidden(method: str) -> torch.Tensor:
        module, _, _ = build("bert", tokens, method)
        [(ids, lengths)] = batch.texts
        return module.eval().model.top(ids, lengths, batch.segments)

    torch.testing.assert_close(hidden("adapters"), hidden("full"), atol=1e-3, rtol=0)
    torch.testing.assert_close(hidden("lora"), hidden("full"))


def test_a_prompt_has_no_output_of_its_own(tokens):
    """It stands behind `[CLS]`; what the tokens are judged by are their own outputs, at the places they had without it."""
    kind = kinds.build(other_task("tagging", labels=["O", "B-x"], metrics=["f1"]), recipe())
    module, _, _ = build("bert", tokens, "prompt", kind=kind, prompt_length=4)
    encoded = kind.encode([Example("1", "a man", None, ["O", "O"], words=["a", "man"])], tokens)
    [batch] = data.batches(module.inputs(encoded, FABRIC), 1, None)
    [(ids, lengths)] = batch.texts
    [[plain]] = encoded.texts
    own = [0, *range(5, len(plain) + 4)]
    assert ids[0, own].tolist() == plain.tolist() and (ids[0, 1:5] >= tokens.vocab_size).all()
    module.eval()
    expected = module.head(module.model.top(ids, lengths, batch.segments))[:, own]
    torch.testing.assert_close(module(batch.texts, batch.segments), expected)


def test_dropout_of_a_recipe_is_below_the_head_and_that_of_the_architecture_in_the_model(tokens):
    """As `classifier_dropout` is apart from `hidden_dropout_prob` in transformers."""
    ids, lengths = torch.tensor([[CLS, 9, 10, SEP]]), torch.tensor([4])
    for in_model, below_head in ((0.0, 0.5), (0.5, 0.0)):
        block = CHECKED.models["bert"].architecture.model_copy(update={"dropout": in_model})
        chosen = recipe(dropout=below_head)
        module = methods.build(store.build(block, tokens), tokens, chosen, kinds.build(TASK, chosen), False).train()
        once, again = (module.model.top(ids, lengths) for _ in range(2))
        assert torch.equal(once, again) == (in_model == 0) and module.head.dropout.probability == below_head


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_bitfit_needs_biases(name, tokens):
    """Without them, as in T5, the head alone would be trained under the name of BitFit."""
    block = CHECKED.models[name].architecture
    model = store.build(block.model_copy(update={"biases": False}), tokens)
    with pytest.raises(SesameError, match="method bitfit tunes biases, and the layers of this model have none"):
        methods.build(model, tokens, recipe(method="bitfit"), kinds.build(TASK, recipe()), True)
    raw = tiny_params()
    raw["models"][name]["architecture"]["biases"] = False
    raw["finetune"]["recipes"][name]["method"] = "bitfit"
    with pytest.raises(SesameError, match=f"bitfit tunes biases, and models.{name}.architecture.biases is false"):
        params.check(raw)


def test_methods_that_need_a_transformer_say_so(tokens):
    for method in ("adapters", "lora"):
        with pytest.raises(SesameError, match=f"method {method} needs a Transformer, which BiLM is not"):
            build("elmo", tokens, method)
    with pytest.raises(SesameError, match="layer 7: the model has 0"):
        build("bert", tokens, "linear_probe", layer=7)
    with pytest.raises(SesameError, match="is more than the 32 tokens"):
        build("bert", tokens, "prompt", max_length=30)


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
@pytest.mark.parametrize("method", ["full", "features", "mix", "prompt"])
def test_every_kind_of_task_runs_on_every_model(name, method, tokens):
    """Shapes fit, the loss falls."""
    words = ["the", "dog", "sees", "the", "river"]
    examples = {
        "choice": [Example(str(i), "the dog", None, ["1"], choices={"0": "a man", "1": "the river"}) for i in range(8)],
        "extraction": [Example(str(i), "who", "the dog sees a man", ["a man"], spans=[("text_b", 13, 18)]) for i in range(8)],
        "tagging": [Example(str(i), " ".join(words), None, ["O", "B-x", "O", "O", "B-x"], words=words) for i in range(8)],
        "regression": [Example(str(i), ["the dog", "a man", "the river"][i % 3], "a man", float(i % 3)) for i in range(8)],
    }
    for name_of_kind, rows in examples.items():
        task = other_task(name_of_kind, labels=["O", "B-x"] if name_of_kind == "tagging" else [], range=None)
        losses = []
        chosen = recipe(method=method, epochs=12, dropout=0.0, prompt_length=4)
        kind = kinds.build(task, chosen)
        module, _, _ = build(name, tokens, method, kind=kind, epochs=12, dropout=0.0, prompt_length=4)
        encoded = module.inputs(kind.encode(rows, tokens), FABRIC)
        fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 1, lambda epoch, loss, losses=losses: losses.append(loss))
        assert losses[-1] < losses[0] or method == "prompt", (name_of_kind, losses)  # vectors before a random model teach little
        assert len(fitted.predict(encoded).values) == 8


def test_lower_layers_learn_slower_and_thaw_later(tokens, rows, capsys):
    module, kind, _ = build("bert", tokens)
    chosen = recipe(layer_decay=0.5, learning_rate=0.08)
    rates = {}
    for group in loop.optimizer_groups(module, chosen):
        for parameter in group["params"]:
            rates[next(name for name, value in module.named_parameters() if value is parameter)] = group["full_lr"]
    assert rates["head.output.weight"] == rates["model.blocks.1.attention.output.weight"] == 0.08
    assert rates["model.blocks.0.attention.output.weight"] == 0.04 and rates["model.token_embedding.weight"] == 0.02
    start, _, _ = build("bert", tokens)
    for epochs, frozen in ((1, "model.blocks.1."), (2, "model.blocks.0."), (3, "model.token_embedding")):
        trained, _, _ = train("bert", tokens, rows, epochs=epochs, gradual_unfreezing=True)
        pairs = [(name, a, b) for (name, a), b in zip(start.named_parameters(), trained.parameters(), strict=True)]
        assert all(torch.equal(a, b) for name, a, b in pairs if name.startswith(frozen)), (epochs, frozen)
        assert f"{epochs} epochs unfreeze {epochs} of 4 groups of layers, the others are never trained" in capsys.readouterr().out
        assert not all(torch.equal(a, b) for _, a, b in pairs)
    train("bert", tokens, rows, epochs=4, gradual_unfreezing=True)
    assert "never trained" not in capsys.readouterr().out


@pytest.mark.parametrize("settings", [
    {"kind": "tagging", "labels": ["O", "B-x"], "metrics": ["f1"], "reader": "conll"},
    {"kind": "choice", "labels": [], "metrics": ["accuracy"],
     "table": {"format": "jsonl", "text_a": "q", "choices": ["a", "b"], "label": "l"}},
], ids=lambda settings: settings["kind"])  # fmt: skip
def test_what_a_notebook_asks_a_tagger_and_a_model_of_choices(settings, tokens, tmp_path):
    """Both ended in a traceback."""
    splits = {"train": {"source": {"kind": "files", "paths": ["x"]}}, "dev": {"share": 0.1}}
    task = params.Task.model_validate({"licence": "x", **splits, **settings})
    chosen, architecture = recipe(), CHECKED.models["bert"].architecture
    kind, model = kinds.build(task, chosen), store.build(architecture, tokens)
    module = methods.build(model, tokens, chosen, kind, pair=False)
    store.save(tmp_path, model.state_dict(), architecture, tokens)
    tuned.save(tmp_path, PreparedModel(module, kind, tokens, 1), "asked", task, chosen, False)
    loaded = notebook.Loaded(tmp_path)
    if task.kind == "choice":
        with pytest.raises(SesameError, match="was tuned on asked, whose examples have choices of their own"):
            loaded.predict("the dog sees")
    else:
        tags = loaded.predict("the dog  sees .")["prediction"]
        assert len(tags) == 4 and set(tags) <= {"O", "B-x"} and loaded.predict("")["prediction"] == []


def test_a_prompt_before_a_model_that_drops_whole_words(tokens, rows):
    """A recurrent model asks its embedding for its number of rows."""
    chosen, architecture = recipe(method="prompt", prompt_length=4), {"num_layers": 1, "hidden_size": 8, "max_length": 64}
    model = store.build(RecurrentArchitecture(name="recurrent", embedding_dropout=0.1, **architecture), tokens)
    kind = kinds.build(TASK, chosen)
    module = methods.build(model, tokens, chosen, kind, pair=True)
    fitted = loop.fit(FABRIC, module, kind, module.inputs(kind.encode(rows, tokens), FABRIC), chosen, 1, lambda epoch, loss: None)
    assert fitted.trained_parameters == 4 * 8 + sum(parameter.numel() for parameter in module.head.parameters())


@pytest.mark.parametrize(("shared", "rates"), [
    ({}, {"blocks.0.feed_forward.0.weight": 0.125, "blocks.3.feed_forward.0.weight": 1}),
    ({"shared_layers": "all"}, {"blocks.0.feed_forward.0.weight": 1}),
    ({"shared_layers": "all", "layer_groups": 2}, {"blocks.0.feed_forward.0.weight": 0.25, "blocks.2.feed_forward.0.weight": 1}),
    ({"shared_layers": "attention"}, {"blocks.0.attention.output.weight": 1, "blocks.0.feed_forward.0.weight": 0.125}),
])  # fmt: skip
def test_what_layers_share_learns_with_the_last_of_them(shared, rates, tokens):
    """ALBERT's one layer is the top one as well: it was tuned at the rate of the lowest, and unfrozen last."""
    sizes = {"num_layers": 4, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 24}
    model = store.build(EncoderArchitecture(name="encoder", **sizes, **shared), tokens)
    assert {name: 0.5 ** (model.num_layers - model.depth(name)) for name in rates} == rates
    assert model.depth("token_embedding.weight") == 0 and model.depth("pooler.0.weight") == 5


def test_the_slanted_triangle():
    config = AdamW(learning_rate=1.0, warmup=0.1, schedule="slanted_triangular")
    assert [round(factor(config, at), 4) for at in (0.0, 0.05, 0.1, 0.55, 1.0)] == [0.0312, 0.5156, 1.0, 0.5156, 0.0312]


def test_patience_keeps_the_best_epoch(tokens, rows):
    module, kind, chosen = build("bert", tokens, epochs=9, patience=1)
    encoded = kind.encode(rows, tokens)
    scores = iter([0.1, 0.7, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9, 0.9])
    states = []

    def judge(found):
        states.append({name: value.clone() for name, value in module.state_dict().items()})
        return next(scores)

    fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 0, lambda epoch, loss: None, judge, encoded)
    assert fitted.epochs == 2 and len(states) == 4, "two epochs without a gain are one more than patience allows"
    assert all(torch.equal(value, states[1][name]) for name, value in module.state_dict().items())


def test_patience_says_where_nothing_can_be_chosen(tokens, rows, capsys):
    """As with Matthews correlation on a dev split of one label."""
    module, kind, chosen = build("bert", tokens, epochs=3, patience=1)
    encoded = kind.encode(rows, tokens)
    fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 0, lambda epoch, loss: None, lambda values: None, encoded)
    assert fitted.epochs == 3 and "the score on dev is undefined after each epoch" in capsys.readouterr().out


def test_class_weights_and_smoothing_go_together(tokens):
    """A class's weight is that of its examples; smoothing spreads over all classes alike (torch multiplies both)."""
    kind = kinds.build(TASK, recipe(class_weights="balanced", label_smoothing=0.1))
    encoded = data.Encoded([[torch.ones(2)]] * 4, [], targets=[0, 0, 0, 1])
    kind.prepare_targets(encoded)
    torch.testing.assert_close(kind.weights, torch.tensor([4 / 6, 4 / 2]))
    output, target, batch = torch.randn(4, 2), torch.tensor([0, 0, 0, 1]), data.Batch([], torch.empty(0), [1] * 4, [0, 1, 2, 3])
    log, each = output.log_softmax(1), kind.weights[target]
    smoothed = -(0.9 * log[range(4), target] + 0.1 * log.mean(1))
    torch.testing.assert_close(kind.loss(output, encoded, batch), (each * smoothed).sum() / each.sum())
    for settings in ({"class_weights": "balanced"}, {"label_smoothing": 0.1}, {}):
        one = kinds.build(TASK, recipe(**settings))
        one.prepare_targets(encoded)
        expected = torch.nn.CrossEntropyLoss(one.weights, label_smoothing=settings.get("label_smoothing", 0.0))(output, target)
        torch.testing.assert_close(one.loss(output, encoded, batch), expected)
    surest = torch.tensor([[5.0, 0.0]] * 99 + [[0.0, 5.0]], requires_grad=True)  # one rare label among a hundred, all said rightly
    many = data.Encoded([[torch.ones(2)]] * 100, [], targets=[0] * 99 + [1])
    kind.prepare_targets(many)
    kind.loss(surest, many, data.Batch([], torch.empty(0), [1] * 100, list(range(100)))).backward()
    alone = kinds.build(TASK, recipe(label_smoothing=0.1))
    [plain] = torch.autograd.grad(alone.loss(surest[:1], many, data.Batch([], torch.empty(0), [1], [0])), surest)
    assert (surest.grad[0] * plain[0] > 0).all(), "weights make a frequent label's loss smaller, and turn it nowhere"


def test_mix_starts_as_the_plain_mean():
    layers = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(ScalarMix(4, normalised=False)(layers), layers.mean(2))


def test_a_normalised_mix_hears_each_layer_alike_whatever_its_scale():
    layers = torch.randn(2, 3, 4, 50, generator=torch.Generator().manual_seed(0))  # so wide that no variance is near the norm's epsilon
    mixed = ScalarMix(4, normalised=True)(layers * torch.tensor([0.03, 0.04, 1.0, 100.0])[:, None])
    torch.testing.assert_close(mixed, layer_norm(layers, (50,)).mean(2), atol=5e-3, rtol=0.02)


@pytest.mark.parametrize(
    ("name", "method", "head"),
    [
        ("elmo", "mix", "pooled"), ("bert", "full", "pooled"), ("gpt", "full", "mix"), ("elmo", "bitfit", "bilstm"),
        ("gpt", "prompt", "mix"), ("bert", "full", "decomposable_attention"), ("elmo", "decomposable_attention", "pooled"),
    ],
)  # fmt: skip
def test_a_pair_read_apart_reads_each_text_as_if_it_were_alone(name, method, head, tokens, rows):
    """Whatever the model, the method and the head."""
    module, kind, _ = build(name, tokens, method, pair="apart", head=head, prompt_length=4)
    assert not kind.joined
    encoded = module.inputs(kind.encode(rows[:6], tokens), FABRIC)
    together = torch.cat([module.eval()(batch.texts, batch.segments) for batch in data.batches(encoded, 6, None)])
    [order] = [batch.index for batch in data.batches(encoded, 6, None)]
    alone = torch.cat([module(batch.texts, batch.segments) for batch in data.batches(encoded, 1, None)])
    by_length = sorted(order, key=lambda i: sum(map(len, encoded.texts[i])))
    torch.testing.assert_close(together, alone[[by_length.index(i) for i in order]], atol=2e-2, rtol=0)


def test_regression_predicts_in_the_tasks_own_unit(tokens):
    task = other_task("regression", metrics=["pearson"], range=(0, 5))
    rows = [Example(str(i), "the dog", "a man", 4.0 + 0.1 * (i % 2)) for i in range(40)]
    kind = kinds.build(task, recipe())
    module, _, chosen = build("bert", tokens, kind=kind)
    encoded = kind.encode(rows, tokens)
    fitted = loop.fit(FABRIC, module, kind, encoded, chosen, 0, lambda epoch, loss: None)
    assert np.mean(fitted.predict(encoded).values) == pytest.approx(4.05, abs=0.1)


def test_regression_is_learned_in_units_of_the_deviation(tokens):
    rows = [Example(str(i), "the dog", "a man", 100.0 * i) for i in range(3)]
    kind = kinds.build(other_task("regression", metrics=["pearson"]), recipe())
    encoded = kind.encode(rows, tokens)
    kind.prepare_targets(encoded)
    right = torch.tensor([[-(1.5**0.5)], [0.0], [1.5**0.5]])
    assert kind.predict(right, encoded, only(encoded)) == pytest.approx([0.0, 100.0, 200.0], abs=1e-3)
    assert float(kind.loss(right, encoded, only(encoded))) == pytest.approx(0, abs=1e-6)
    assert float(kind.loss(right + 1, encoded, only(encoded))) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("method", ["logistic_regression", "linear_svm"])
def test_a_linear_baseline_does_not_know_where_the_zero_of_scores_is(method):
    """Scores of 0 to 5 and the same as years: LinearSVR regularises its intercept."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(["river", "bank", "money", "tree", "light"], k=6)) for _ in range(60)]
    task = other_task("regression", metrics=["pearson"])

    def predictions(zero: float) -> list[float]:
        examples = [Example(str(n), text, None, zero + text.count("river")) for n, text in enumerate(texts)]
        return baseline.linear(method, task, {"train": examples[:40], "dev": examples[40:]}, pair=False).predictions[0]["dev"]

    assert [score - 2000 for score in predictions(2000.0)] == pytest.approx(predictions(0.0), abs=1e-3)


@pytest.mark.parametrize("zero", [1e6, 20_250_101.0, 1.7e9], ids=["millions", "dates", "Unix times"])
def test_scores_far_from_zero_keep_what_they_differ_in(tokens, zero):
    """In 32 bits all three Unix times are one number; loss and predictions are those of the same scores near zero."""
    outputs = torch.tensor([[-1.2], [0.1], [1.3]])

    def learned(scores: list[float]) -> tuple[list[float], float]:
        rows = [Example(str(i), "the dog", "a man", score) for i, score in enumerate(scores)]
        kind = kinds.build(other_task("regression", metrics=["pearson"]), recipe())
        encoded = kind.encode(rows, tokens)
        kind.prepare_targets(encoded)
        return kind.predict(outputs, encoded, only(encoded)), float(kind.loss(outputs, encoded, only(encoded)))

    predictions, loss = learned([zero, zero + 0.5, zero + 1.5])
    near, right = learned([0.0, 0.5, 1.5])
    assert [score - zero for score in predictions] == pytest.approx(near, abs=1e-5) and loss == pytest.approx(right, rel=1e-5)


def test_nan_is_one_line(tokens, rows):
    module, kind, chosen = build("bert", tokens)
    torch.nn.init.constant_(module.head.output.weight, float("nan"))
    with pytest.raises(SesameError, match="not a number in epoch 1"):
        loop.fit(FABRIC, module, kind, kind.encode(rows, tokens), chosen, 0, lambda epoch, loss: None)


def test_baselines_use_the_same_examples(project):
    raw = tiny_params()
    raw["baselines"]["methods"] = ["majority", "logistic_regression", "linear_svm", "averaging", "decomposable_attention", "bilstm"]
    found = baseline.baseline(params.check(raw), "same", Run(None))
    assert list(found["baselines"]) == raw["baselines"]["methods"] and "60 labelled examples" in found["protocol"]
    for part in found["baselines"].values():
        assert part["test"]["accuracy"]["n"] == 2, "each seed draws its examples"
    raw["finetune"]["train_examples"] = None
    found = baseline.baseline(params.check(raw), "same", Run(None))
    for method, part in found["baselines"].items():
        assert part["test"]["accuracy"]["n"] == (2 if method in baseline.NETWORKS else 1), "all examples, and nothing is drawn"
    rows = tasks.read("data/tasks/same", "test")
    shares = {sum(row.label == label for row in rows) / len(rows) for label in ("no", "yes")}
    assert found["baselines"]["majority"]["test"]["accuracy"]["mean"] in shares


def test_bags_of_words_are_of_characters_where_words_have_no_blanks():
    texts = [("这个电影很" if i % 3 else "我觉得那里") + "坏好"[i % 2] + ("但是票很贵" if i % 5 else "也不太长") for i in range(60)]
    rows = [Example(str(i), text, None, ("no", "yes")[i % 2]) for i, text in enumerate(texts)]
    task, splits = params.check(tiny_params()).tasks["same"], {"train": rows[:40], "test": rows[40:]}
    fitted = baseline.linear("logistic_regression", task, splits, pair=False)
    assert fitted.predictions[0]["test"] == [row.label for row in rows[40:]]


def test_baselines_with_probabilities_are_judged_by_them(project):
    """In the order of the task's labels, whatever a library's is; mended by a temperature where the recipe asks for it."""
    raw, found, read = tiny_params(), {}, {}
    raw["tasks"]["same"]["labels"] = ["yes", "no"]
    raw["baselines"]["methods"] = ["majority", "logistic_regression", "linear_svm", "averaging"]
    for scaled in (False, True):
        raw["baselines"]["recipe"]["temperature_scaling"] = scaled
        found[scaled] = baseline.baseline(params.check(raw), "same", Run(None))
        lines = [json.loads(line) for line in Path("data/baselines/same/predictions.jsonl").read_text().splitlines()]
        read[scaled] = [row for row in lines if row["split"] == "test"]
    assert list(found[False]["calibration"]) == ["logistic_regression", "averaging"]
    for plain, mended in zip(read[False], read[True], strict=True):
        assert plain["prediction"] == mended["prediction"] and ("probabilities" in plain) == (
            plain["init"] not in ("majority", "linear_svm")
        )
        if "probabilities" in plain:
            assert plain["prediction"] == ["yes", "no"][int(np.argmax(plain["probabilities"]))] and sum(
                plain["probabilities"]
            ) == pytest.approx(1, abs=1e-3)
    for method, runs in (("logistic_regression", 2), ("averaging", 2)):
        plain, mended = (found[scaled]["calibration"][method]["test"] for scaled in (False, True))
        assert plain["temperature"]["values"] == [1] * runs and 1 not in mended["temperature"]["values"]
        first = [row for row in read[False] if row["init"] == method and row["seed"] == 1]
        likely, gold = np.array([row["probabilities"] for row in first]), np.array([["yes", "no"].index(row["label"]) for row in first])
        assert plain["brier_score"]["values"][0] == pytest.approx(calibration.brier_score(likely, gold), abs=1e-3)
    frame = tables.calibration({("baseline", "same"): found[True]})
    names = ("logistic_regression", "averaging")
    assert frame[["model", "method", "init", "n"]].values.tolist() == [[name, name, "baseline", 2] for name in names]


def test_a_label_that_no_example_has_is_all_but_impossible():
    task = params.check(tiny_params()).tasks["same"].model_copy(update={"labels": ["c", "a", "b"]})
    fitted = baseline.LINEAR["logistic_regression"]["classification"].fit(np.eye(4), ["b", "b", "c", "c"])
    made = np.exp(baseline.label_logits(fitted, task, sparse.csr_matrix(np.eye(4))))
    assert made[:, 1].max() < 1e-9 and (made.argmax(1) == [2, 2, 0, 0]).all() and made.sum(1) == pytest.approx(1)


def test_the_share_of_trained_weights_is_of_all_that_are_there(project, tokens):
    """Adapters wider than the model are weights, too: a share of the others would be above 1."""
    raw = tiny_params()
    raw["finetune"] |= {"train_examples": 16, "seeds": [1]}
    wide = raw["finetune"]["recipes"]["bert"] | {"method": "adapters", "bottleneck": 128, "epochs": 1}
    raw["adapt"] = {"models": ["bert"], "methods": ["wide"], "tasks": ["same"], "recipes": {"wide": wide}}
    checked = params.check(raw)
    save_random(checked, "bert", tokens)
    found = adapt.adapt(checked, "bert-wide-same", Run(None))
    [model] = {store.count_parameters(store.load(Path("data/models/bert"))[0])}
    bottlenecks = 4 * (16 * 128 + 128 + 128 * 16 + 16)
    head = 16 * 2 + 2
    assert found["trainable_share"] == found["trainable_parameters"] / (model + bottlenecks + head) < 1


def test_a_learning_curve_ends_where_finetune_stands(project, tokens):
    raw = tiny_params()
    raw["finetune"] |= {"models": ["bert"], "train_examples": 40, "inits": ["pretrained", "random"]}
    raw["learning_curve"] = {"models": ["bert"], "tasks": ["same"], "train_examples": [16, 40], "min_steps": 6}
    checked = params.check(raw)
    block = checked.models["bert"].architecture
    store.save(Path("data/models/bert"), store.build(block, tokens).state_dict(), block, tokens, [], [])
    whole = finetune.finetune(checked, "bert-same", Run(None))
    assert whole["memory_mib"] > 0 and not any("memory_mib" in cost for cost in whole["costs"].values()), "one process, one peak"
    found = learning_curve.learning_curve(checked, "bert-same", Run(None))
    assert found["points"]["16"]["epochs"] == 3 and found["points"]["40"]["epochs"] == raw["finetune"]["recipes"]["bert"]["epochs"] == 2
    for init in ("pretrained", "random"):
        assert found["points"]["40"][init] == whole[init]["test"]["accuracy"]
    bags = baseline.baseline(checked, "same", Run(None))["baselines"]["logistic_regression"]
    assert found["points"]["40"]["logistic_regression"] == bags["test"]["accuracy"]
    same = [Path(folder, "predictions.jsonl").read_text() for folder in ("data/learning_curves/bert/same/40", "data/scores/bert/same")]
    assert same[0] == same[1] and Path("data/learning_curves/bert/same/16/predictions.jsonl").read_text() != same[0]
    rest = {("finetune", "bert-same"): whole, ("baseline", "same"): baseline.baseline(checked, "same", Run(None))}
    rest |= {("task", "same"): {"examples": {"train": 64}}}
    table = tables.learning(checked, {("learning_curve", "bert-same"): found, **rest})
    assert table[["start", "examples"]].values.tolist() == [
        [start, examples] for examples in (16, 40) for start in ("pretrained", "random", "logistic_regression")
    ]  # fmt: skip
    shorter = found | {"points": {"16": found["points"]["16"]}}
    ends = tables.learning(checked, {("learning_curve", "bert-same"): shorter, **rest})
    pd.testing.assert_frame_equal(ends, table)
    longer = params.check(raw | {"learning_curve": raw["learning_curve"] | {"min_steps": 100}})
    ends = tables.learning(longer, {("learning_curve", "bert-same"): shorter, **rest})
    assert set(ends["examples"]) == {16}, "those of finetune have ten steps, the other points a hundred"
    drawn = plots.learning(table)
    other = table.assign(task="other")[table["start"] != "random"]
    panels = plots.learning(pd.concat([other, table])).axes
    looks = [{line.get_label(): line[0].get_color() for line in panel.containers} for panel in panels]
    assert list(looks[0]) == ["pre-trained", "logistic regression"] and looks[0].items() < looks[1].items(), "a colour for each start"
    named = plots.learning(pd.concat([other, table])).legends[0]
    assert [text.get_text() for text in named.texts] == ["pre-trained", "logistic regression", "random weights"]
    assert len(drawn.axes) == 1


def test_only_a_draw_that_is_trained_on_is_refused_for_its_labels(project):
    """Each seed draws its own examples: what the setup holds before that is no one's."""
    raw = tiny_params()
    raw["finetune"]["train_examples"] = 2
    refused = 0
    for seed in range(12):
        setup = TaskSetup.load(params.check(raw | {"seed": seed}), "same")
        labels = {row.label for row in tasks.subset(setup.train_pool, 2, [seed, 7])}
        if len(labels) == 1:
            refused += 1
            with pytest.raises(SesameError, match="the 2 training examples drawn from same for seed 7 have one label only"):
                setup.for_seed(7)
        else:
            assert {row.label for row in setup.for_seed(7).examples["train"]} == labels
    assert 0 < refused < 12


def test_a_point_beyond_the_task_is_the_whole_task(project, tokens):
    raw = tiny_params()
    raw["learning_curve"] = {"models": ["bert"], "tasks": ["same"], "train_examples": [16, 5000, 20000], "min_steps": 40, "baselines": []}
    raw["finetune"] |= {"models": ["bert"], "inits": ["pretrained"]}
    checked = params.check(raw)
    block = checked.models["bert"].architecture
    store.save(Path("data/models/bert"), store.build(block, tokens).state_dict(), block, tokens, [], [])
    rows = len(tasks.read(Path("data/tasks/same"), "train"))
    points = learning_curve.learning_curve(checked, "bert-same", Run(None))["points"]
    assert list(points) == ["16", str(rows)] and rows < 5000
    assert points[str(rows)]["epochs"] * -(-rows // raw["finetune"]["recipes"]["bert"]["batch_size"]) >= 40


def test_spread_over_seeds():
    found = summary([{"accuracy": 0.5, "pearson": None}, {"accuracy": 0.7, "pearson": 0.1}])
    assert found["accuracy"]["mean"] == 0.6 and found["accuracy"]["std"] == pytest.approx(0.1414, abs=1e-4) and found["accuracy"]["n"] == 2
    assert found["pearson"]["mean"] is None and found["pearson"]["std"] is None


def test_a_model_tuned_on_one_task_is_a_model_and_is_named_so(project, tokens):
    raw = tiny_params()
    recipe = raw["finetune"]["recipes"]["bert"]
    block = {"on": "tasks/same", "by": {"name": "tuned", "recipe": recipe}}
    raw["derived"] = {"bert_same": {**block, "start": "bert"}, "bert_twice": {**block, "start": "bert_same"}}
    raw["finetune"] |= {"models": ["bert_twice"], "recipes": {"bert_twice": recipe}, "inits": ["pretrained"]}
    checked = params.check(raw)
    block = checked.models["bert"].architecture
    torch.manual_seed(0)
    store.save(Path("data/models/bert"), store.build(block, tokens).state_dict(), block, tokens, absent=["next_sentence", "pooler"])
    for name in raw["derived"]:
        assert 0 <= derive.derive(checked, name, Run(None))["dev"]["accuracy"] <= 1
    its = store.about(Path("data/models/bert_twice"))
    assert all(step["tokens"] > 0 and step["flops"] > 0 for step in its.lineage), "each with its budget"
    assert its.derived_by == ["tuned on same"] * 2 and its.absent == ["next_sentence"], "its pooler has been trained"
    found = finetune.finetune(checked, "bert_twice-same", Run(None))
    assert found["derived"] == ["tuned on same"] * 2 and "random" not in found and found["cost"]["tokens"] > 0
    rows = [json.loads(line) for line in Path("data/scores/bert_twice/same/predictions.jsonl").read_text().splitlines()]
    judged = {("pretrained", seed, split) for seed in (1, 2) for split in ("dev", "test")}
    assert {(row["init"], row["seed"], row["split"]) for row in rows} == judged


def test_probabilities_stand_beside_the_predictions_and_are_judged(project, tokens):
    raw = tiny_params()
    raw["finetune"] |= {"models": ["bert"], "inits": ["pretrained"]}
    block = params.check(raw).models["bert"].architecture
    torch.manual_seed(0)
    store.save(Path("data/models/bert"), store.build(block, tokens).state_dict(), block, tokens)
    found, rows = {}, {}
    for scaled in (False, True):
        raw["finetune"]["recipes"]["bert"]["temperature_scaling"] = scaled
        found[scaled] = finetune.finetune(params.check(raw), "bert-same", Run(None))
        rows[scaled] = [json.loads(line) for line in Path("data/scores/bert/same/predictions.jsonl").read_text().splitlines()]
    for plain, scaled in zip(rows[False], rows[True], strict=True):
        assert plain["prediction"] == scaled["prediction"] == ["no", "yes"][int(np.argmax(plain["probabilities"]))]
        assert sum(plain["probabilities"]) == pytest.approx(1, abs=1e-3)
    assert any(plain["probabilities"] != scaled["probabilities"] for plain, scaled in zip(rows[False], rows[True], strict=True))
    plain, scaled = (found[which]["calibration"]["pretrained"]["test"] for which in (False, True))
    assert plain["temperature"]["values"] == [1, 1] and 1 not in scaled["temperature"]["values"]
    judged = [row for row in rows[False] if row["split"] == "test" and row["seed"] == 1]
    likely, gold = np.array([row["probabilities"] for row in judged]), np.array([["no", "yes"].index(row["label"]) for row in judged])
    assert plain["brier_score"]["values"][0] == pytest.approx(calibration.brier_score(likely, gold), abs=1e-3)


def test_a_circle_of_derived_models_is_one_line():
    raw = tiny_params()
    by = {"name": "tuned", "recipe": raw["finetune"]["recipes"]["bert"]}
    raw["derived"] = {name: {"start": start, "on": "tasks/same", "by": by} for name, start in (("a", "b"), ("b", "a"))}
    with pytest.raises(SesameError, match="derived.a: starts from itself"):
        params.check(raw)


def test_a_part_that_no_pre_training_has_touched_learns_with_the_head(tokens):
    torch.manual_seed(0)
    model = store.build(CHECKED.models["bert"].architecture, tokens)
    model.absent = ["pooler"]
    for method in ("bitfit", "adapters", "lora", "prompt"):
        copied, chosen = copy.deepcopy(model), recipe(method=method)
        module = methods.build(copied, tokens, chosen, kinds.build(TASK, chosen), pair=True)
        assert all(p.requires_grad for p in module.model.pooler.parameters()) and not module.model.next_sentence.weight.requires_grad


def test_ulmfits_head_by_hand():
    """The vector, the maximum and the mean of the real tokens alone, compared where there are two texts."""
    torch.manual_seed(0)
    head = ConcatHead(4, 6, 3, dropout=0.0, pair=True).eval()
    hidden, pooled, lengths = torch.randn(4, 5, 4), torch.randn(4, 4), torch.tensor([5, 2, 3, 1])
    rows = [torch.cat([pooled[i], hidden[i, :n].amax(0), hidden[i, :n].mean(0)]) for i, n in enumerate(lengths.tolist())]
    compared = torch.stack([torch.cat([u, v, (u - v).abs(), u * v]) for u, v in zip(rows[:2], rows[2:], strict=True)])
    torch.testing.assert_close(head(hidden, pooled, lengths, 2), head.output(compared))


def test_decomposable_attention_by_hand():
    """Every real token beside the weighted mean of the other text's real ones; padding neither asks nor answers."""
    torch.manual_seed(0)
    head = DecomposableAttentionHead(ScalarMix(3, normalised=False), 8, 6, 3, dropout=0.0).eval()
    layers, lengths = torch.randn(4, 5, 3, 8), [5, 2, 3, 1]
    texts = [layer_norm(layers[i, :n].mean(1), (8,)) for i, n in enumerate(lengths)]
    rows = []
    for u, v in zip(texts[:2], texts[2:], strict=True):
        read = []
        for own, other in ((u, v), (v, u)):
            scores = torch.stack([torch.stack([head.attend(a) @ head.attend(b) for b in other]) for a in own]) / 8**0.5
            attended = torch.stack([sum(w * token for w, token in zip(each, other, strict=True)) for each in scores.softmax(1)])
            read.append(head.compare(torch.cat([own, attended, (own - attended).abs(), own * attended], 1)))
        rows.append(torch.cat([*(each.mean(0) for each in read), *(each.amax(0) for each in read)]))
    torch.testing.assert_close(head(layers, torch.tensor(lengths), 2), head.aggregate(torch.stack(rows)), atol=1e-5, rtol=1e-5)


def test_what_is_read_in_one_input_has_nothing_to_attend_to(tokens, rows):
    rows = [Example(row.id, row.text_a, None, row.label) for row in rows]
    module, kind, _ = build("gpt", tokens, pair="apart", head="decomposable_attention")
    alone = methods.build(module.model, tokens, recipe(pair="apart", head="decomposable_attention"), kind, pair=False)
    assert isinstance(alone.head, MeanHead)
    encoded = kind.encode(rows[:4], tokens)
    [batch] = data.batches(encoded, 4, None)
    assert alone(batch.texts, batch.segments).shape == (4, 2)
    with pytest.raises(
        ValidationError,
        match=("decomposable_attention needs two separate texts, and pair: joined makes one; set pair: apart"),
    ):
        params.Recipe.model_validate(RECIPE.model_dump() | {"head": "decomposable_attention"})


@pytest.mark.parametrize("pair", [False, True])
def test_a_last_batch_of_one_example_is_learned_from(pair):
    """Nothing varies in it: it is normalised by the batches before, which stay as they are."""
    torch.manual_seed(0)
    head, texts = ConcatHead(4, 6, 3, dropout=0.0, pair=pair).train(), 1 + pair
    head(torch.randn(8 * texts, 5, 4), torch.randn(8 * texts, 4), torch.full((8 * texts,), 5), texts)
    before = {name: value.clone() for name, value in head.named_buffers()}
    one = torch.randn(texts, 5, 4), torch.randn(texts, 4), torch.full((texts,), 5), texts
    made = head(*one)
    made.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(torch.equal(value, before[name]) for name, value in head.named_buffers())
    torch.testing.assert_close(made, head.eval()(*one))


@pytest.mark.parametrize("vector", ["pooled", "mean"])
@pytest.mark.parametrize("name", ["bert", "elmo"])
def test_the_vectors_that_a_cosine_compares_are_in_32_bits(tokens, rows, name, vector):
    """Random weights give all texts nearly one vector, and in bf16 many of them were the same: their correlation was .02 to .05 too low."""
    module, kind, _ = build(name, tokens, "cosine", pair="apart", vector=vector, layer=-1)
    encoded = kind.encode(rows, tokens)
    kept = module.inputs(encoded, FABRIC)
    for ids, vectors in zip(encoded.texts, kept.texts, strict=True):
        for text, found in zip(ids, vectors, strict=True):
            with torch.no_grad():
                top = module.model.top(text[None], torch.tensor([len(text)]))
                right = top.mean(1)[0] if vector == "mean" else module.model.pool(top, torch.tensor([len(text)]))[0]
            assert found.shape == (1, 1, len(right)) and found.dtype == torch.float32
            torch.testing.assert_close(found[0, 0], right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", ["pooled", "mean", "concat", "bilstm_attention", "decomposable_attention", "cosine"])
def test_scores_of_texts_that_are_much_alike_differ_in_bf16_too(head):
    """bf16 has 8 bits: 64 cosines near .99 would be 4 values, of which no rank correlation can be taken."""
    torch.manual_seed(0)
    vectors = torch.randn(32) + 0.1 * torch.randn(128, 1, 1, 32)  # 64 pairs
    lengths, mix = torch.ones(128, dtype=torch.long), OneLayer(normalised=False)
    heads = {
        "pooled": (PooledHead(32, 1, 0.0), (vectors[:64, 0, 0],)),
        "mean": (MeanHead(mix, 32, 1, 0.0, pair=True, per_token=False), (vectors, lengths, 2)),
        "concat": (ConcatHead(32, 8, 1, 0.0, pair=True), (vectors[:, :, 0], vectors[:, 0, 0], lengths, 2)),
        "bilstm_attention": (BiLSTMAttentionHead(mix, 32, 8, 1, 0.0, pair=True, per_token=False), (vectors, lengths, 2)),
        "decomposable_attention": (DecomposableAttentionHead(mix, 32, 8, 1, 0.0), (vectors, lengths, 2)),
        "cosine": (CosineHead(1), (vectors, lengths, 2)),
    }
    module, inputs = heads[head]
    with torch.no_grad(), Fabric(accelerator="cpu", devices=1, precision="bf16-mixed").autocast():
        scores = module.eval()(*inputs)
    assert scores.dtype == torch.float32 and len(scores.unique()) == 64
