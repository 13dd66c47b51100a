"""A tuned model with its head: asked from Python, and loaded by `transformers`' own pipeline."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from typer.testing import CliRunner

from components import notebook, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import tuned
from components.finetune.task_setup import TaskSetup
from components.finetune.tuned import TunedModel
from components.tasks import Example, metrics
from pipelines import cli
from tests.conftest import save_random, tiny_params

PAIR = ("the dog sees the river", "a man likes some bread")


def tune(tokens, start: str, kind: str = "classification", positions="learned", **recipe) -> tuple[params.Params, dict]:
    """Derive `<start>_same` in the tiny project: the params and the stage's metrics."""
    raw = tiny_params()
    raw["finetune"]["eval_examples"] = None
    raw["models"][start]["architecture"] |= {} if start == "elmo" else {"positions": positions}
    if kind == "regression":
        raw["tasks"]["same"] |= {"kind": kind, "labels": [], "metrics": ["pearson"]}
        for split in ("train", "dev", "test"):
            file = Path(f"data/tasks/same/{split}.jsonl")
            file.write_text(file.read_text().replace('"label": "yes"', '"label": 4.5').replace('"label": "no"', '"label": 1.0'))
    by = {"name": "tuned", "recipe": raw["finetune"]["recipes"]["bert"] | recipe}
    raw["derived"] = {f"{start}_same": {"start": start, "on": "tasks/same", "by": by}}
    checked = params.check(raw)
    save_random(checked, start, tokens)
    return checked, tuned.derive(checked, f"{start}_same", Path("data/models", f"{start}_same"), Run(None))


@pytest.mark.parametrize(
    ("start", "recipe"), [("bert", {}), ("gpt", {"pair": "apart"}), ("elmo", {"head": "mix"}), ("gpt", {"head": "bilstm"})]
)
def test_a_kept_head_says_what_it_said_in_the_stage(project, tokens, start, recipe):
    checked, made = tune(tokens, start, **recipe)
    model, setup = TunedModel(Path(f"data/models/{start}_same")), TaskSetup.load(checked, "same")
    said = model.predict(setup.examples["dev"])
    assert metrics.evaluate(setup.task, "dev", setup.examples["dev"], said.values) == made["dev"]
    answer = notebook.load(f"{start}_same").predict(*PAIR)
    assert answer["prediction"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert list(answer["probabilities"]) == ["no", "yes"] and sum(answer["probabilities"].values()) == pytest.approx(1)
    with pytest.raises(SesameError, match=f"{start}_same was tuned on same, which has two texts"):
        notebook.load(f"{start}_same").predict(PAIR[0])
    with pytest.raises(SesameError, match=f"{start} has no task head; declare"):
        notebook.load(start).predict(*PAIR)


@pytest.mark.parametrize(("start", "positions"), [("bert", "learned"), ("gpt", "learned"), ("gpt", "rotary")])
def test_text_classification_loads_an_exported_classifier(project, tokens, start, positions):
    tune(tokens, start, positions=positions)
    done = CliRunner().invoke(cli.app, ["export", f"{start}_same", "--classifier"])
    assert done.exit_code == 0 and "for AutoModelForSequenceClassification" in done.output, done.output
    pipeline = transformers.pipeline("text-classification", f"data/export/{start}_same_classifier", top_k=None)
    said = {answer["label"]: answer["score"] for answer in pipeline({"text": PAIR[0], "text_pair": PAIR[1]})}
    assert said == pytest.approx(notebook.load(f"{start}_same").predict(*PAIR)["probabilities"], abs=1e-5)
    pairs = [{"text": PAIR[0], "text_pair": PAIR[1]}, {"text": "a dog", "text_pair": "some"}]  # the second is padded beside the first
    for alone, beside in zip(map(pipeline, pairs), pipeline(pairs, batch_size=2), strict=True):
        assert {own["label"]: own["score"] for own in beside} == pytest.approx({own["label"]: own["score"] for own in alone}, abs=1e-5)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_an_exported_classifier_cuts_a_text_as_its_recipe_did(project, tokens, positions):
    """It read on to the model's own length, which tuning never did."""
    for file in Path("data/tasks/same").glob("*.jsonl"):  # of a text alone: a pair is cut otherwise
        rows = [json.loads(line) | {"text_b": None} for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tune(tokens, "gpt", positions=positions, max_length=9)
    CliRunner().invoke(cli.app, ["export", "gpt_same", "--classifier"], catch_exceptions=False)
    pipeline = transformers.pipeline("text-classification", "data/export/gpt_same_classifier", top_k=None, truncation=True)
    said = {answer["label"]: answer["score"] for answer in pipeline("a man " * 12)[0]}
    assert said == pytest.approx(notebook.load("gpt_same").predict("a man " * 12)["probabilities"], abs=1e-5)


@pytest.mark.parametrize(("start", "positions"), [("bert", "learned"), ("gpt", "learned"), ("gpt", "rotary")])
def test_an_exported_regression_is_in_units_of_the_scores(project, tokens, start, positions):
    tune(tokens, start, "regression", positions)
    CliRunner().invoke(cli.app, ["export", f"{start}_same", "--classifier", "--out", "scorer"], catch_exceptions=False)
    model = transformers.AutoModelForSequenceClassification.from_pretrained("scorer").eval()
    inputs = transformers.AutoTokenizer.from_pretrained("scorer")(*PAIR, return_tensors="pt")
    with torch.no_grad():
        theirs = float(model(**inputs).logits)
    ours = TunedModel(Path(f"data/models/{start}_same"))
    assert theirs == pytest.approx(ours.predict([Example("", *PAIR, None)]).values[0], abs=1e-4)
    assert 1.0 < ours.kind.centre < 4.5 and abs(theirs - ours.kind.centre) < 3 * ours.kind.scale


@pytest.mark.parametrize(
    ("start", "recipe", "said"),
    [
        ("elmo", {}, "elmo_same is a bilm, which transformers does not have"),
        ("bert", {"pair": "apart"}, "has head pooled, pair apart, and transformers' classifiers read head pooled, pair joined"),
        ("bert", {"head": "mix"}, "has head mix, pair joined"),
        ("bert", {"positions": "rotary"}, "transformers' roformer pools a text differently"),
    ],
)
def test_what_transformers_has_no_classifier_for_is_one_line(project, tokens, start, recipe, said):
    tune(tokens, start, **recipe)
    done = CliRunner().invoke(cli.app, ["export", f"{start}_same", "--classifier"])
    assert done.exit_code and said in str(done.exception) + done.output and not Path("data/export").exists()
    done = CliRunner().invoke(cli.app, ["export", start, "--classifier"])
    assert done.exit_code and ("has no task head" in str(done.exception) + done.output or start == "elmo")
