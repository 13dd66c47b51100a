"""Models and scores from Python, in the project's folder, and out of MLflow in a process that has never heard of it."""

import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import TypeAdapter
from torch.nn.functional import cross_entropy

from components import notebook, params
from components.core import frames, tracking
from components.core.errors import SesameError
from components.core.mlflow_values import accepted, apart, flatten, shortened
from components.models import store
from components.studies.milestones import GROUPS
from components.text.tokenizer import MASK
from tests.conftest import away, save_random, tiny_params

ROOT = Path(__file__).parents[1]
TEXT = "the dog sees the river in the morning"


@pytest.fixture
def models(project, tokens) -> Path:
    """One of each way to read that Sesame has a head for."""
    raw = tiny_params()
    for name, backward in (("ahead", False), ("back", True)):
        architecture = {"name": "recurrent", "num_layers": 1, "hidden_size": 8, "max_length": 32, "backward": backward}
        objective = {"name": "bptt", "window": 8, "backward": backward}
        raw["models"][name] = raw["models"]["gpt"] | {"architecture": architecture, "objective": objective}
    checked = params.check(raw)
    for name in raw["models"]:
        save_random(checked, name, tokens)
    return project


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo", "ahead", "back"])
def test_hidden_states_and_log_probability(models, name, tokens):
    """Against the model called token by token."""
    loaded = notebook.load(name)
    ids, model = loaded.ids(TEXT), loaded.model
    states = loaded.hidden_states(TEXT)
    assert states.shape == (model.num_layers + 1, len(ids), model.width) and loaded.vector(TEXT).shape == (model.width,)
    assert torch.allclose(states[-1].mean(0), loaded.vector(TEXT), atol=1e-6)

    def read(own: list[int]) -> torch.Tensor:
        return model.top(torch.tensor([own]), torch.tensor([len(own)]))[0]

    def loss(hidden: torch.Tensor, i: int) -> float:
        return float(cross_entropy(model.logits(hidden)[None], torch.tensor([ids[i]])))

    with torch.no_grad():
        places, right = range(1, len(ids) - 1), []
        if name == "bert":
            hidden = [[MASK if other == i else own for other, own in enumerate(ids)] for i in places]
            right.append(-sum(loss(read(own)[i], i) for i, own in zip(places, hidden, strict=True)))
        if name in ("gpt", "ahead"):
            right.append(-sum(loss(read(ids[:i])[-1], i) for i in places))
        if name == "back":
            right.append(-sum(loss(read(ids[i + 1 :])[0], i) for i in places))
        if name == "elmo":
            width = model.width // 2
            right.append(-sum(loss(read(ids[:i])[-1, :width], i) for i in places))
            right.append(-sum(loss(read(ids[i + 1 :])[0, width:], i) for i in places))
    assert loaded.log_probability(TEXT) == pytest.approx(sum(right) / len(right), rel=1e-4)


def test_a_text_that_is_too_long_loses_no_other(models):
    from components.notebook.served import Served

    served = Served()
    (models / "code.sha256").write_text(notebook.code_digest())
    served.load_context(SimpleNamespace(artifacts={"model": str(models / "data/models/gpt"), "code": str(models / "code.sha256")}))
    rows = served.predict(None, pd.DataFrame({"text": [TEXT, TEXT * 20]}))
    assert rows["log_probability"].notna().tolist() == [True, False]
    assert [np.isfinite(vector).all() for vector in rows["vector"]] == [True, False] and len(set(map(len, rows["vector"]))) == 1


def test_what_goes_wrong_is_a_line(models, tokens):
    with pytest.raises(SesameError, match="data/models/nobody: no model there"):
        notebook.load("nobody")
    for nothing in (None, 5, ["the"]):
        with pytest.raises(SesameError, match="a text is expected, and .* is (NoneType|int|list)"):
            notebook.load("gpt").log_probability(nothing)
    with pytest.raises(SesameError, match="the name of a model of data/models is expected, not ''"):
        notebook.load("")
    with pytest.raises(SesameError, match="the text has .* tokens, and gpt reads 32: cut it"):
        notebook.load("gpt").hidden_states(TEXT * 20)
    with pytest.raises(SesameError, match=r"data/report: no table 'scores' \(there are: none: `sesame run report`"):
        notebook.scores()
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
    from_another = TypeAdapter(params.Architecture).validate_python({"name": "encoder_decoder", **sizes})
    store.save(Path("data/models/t5"), store.build(from_another, tokens).state_dict(), from_another, tokens)
    with pytest.raises(SesameError, match="t5 has no log-probability of a text: it reads source_then_target"):
        notebook.load("t5").log_probability(TEXT)
    architecture = params.check(tiny_params()).models["bert"].architecture
    state = store.build(architecture, tokens).state_dict()
    store.save(Path("data/models/half"), state, architecture, tokens, ["head_transform", "head_bias"])
    with pytest.raises(SesameError, match="half has no trained head"):
        notebook.load("half").log_probability(TEXT)


def test_a_model_may_be_called_null(tmp_path):
    """What pandas takes for nothing, unless told otherwise."""
    (tmp_path / "data/report").mkdir(parents=True)
    (tmp_path / "data/report/scores.csv").write_text("model,mean\nnull,0.5\nnan,\n")
    table = notebook.scores(project=tmp_path)
    assert table["model"].tolist() == ["null", "nan"] and table["mean"].isna().tolist() == [False, True]


def test_the_five_lines_of_the_docs(models, tmp_path_factory, monkeypatch):
    """As they stand in docs/python.md; from another folder, too."""
    Path("data/report").mkdir(parents=True)
    pd.DataFrame({"model": ["gpt"], "mean": [0.5]}).to_csv("data/report/scores.csv", index=False)
    lines, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
    assert len([line for line in lines.splitlines() if line]) == 5
    said = {}
    exec(lines, said)
    assert said["states"].shape[0] == 3 and said["likely"] < 0 and list(said["table"]["mean"]) == [0.5]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert notebook.load("gpt", models).log_probability("a man is playing a guitar .") == said["likely"]
    assert list(notebook.scores("scores", models)["mean"]) == [0.5]


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert", "elmo"])
def test_a_logged_model_is_loaded_where_no_checkout_is(models, name, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{models}/mlflow.db")
    monkeypatch.setenv(tracking.OFF, "")
    tracking.client.cache_clear()
    with tracking.start("a", {}, {}) as run:
        run.model(Path("data/models", name), name)
    assert run.id
    right = notebook.load(name).log_probability("the dog")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was logged with other code")
        mlflow.pyfunc.load_model(f"runs:/{run.id}/{name}")
    for digest in models.rglob("code.sha256"):
        digest.write_text("of a later version")
    with pytest.warns(match=f"{name} was logged with other code than this process has imported, which answers now"):
        mlflow.pyfunc.load_model(f"runs:/{run.id}/{name}")
    assert away(f"runs:/{run.id}/{name}", models, tmp_path_factory.mktemp("away")) == pytest.approx(right, abs=1e-4)
    tracking.client.cache_clear()


@pytest.mark.long
def test_a_moved_checkout_finds_its_files_again(models, tmp_path_factory, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv(tracking.OFF, "")
    tracking.client.cache_clear()
    with tracking.start("a", {}, {}) as run:
        run.artifact(Path("raw/text.txt"))
        run.model(Path("data/models/gpt"), "gpt")
    before = tracking.client().list_artifacts(run.id)
    right, moved = notebook.load("gpt").log_probability("the dog"), tmp_path_factory.mktemp("moved") / "lab"
    monkeypatch.chdir(moved.parent)
    models.rename(moved)
    monkeypatch.chdir(moved)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # which MLflow has set
    tracking.client.cache_clear()
    assert [file.path for file in tracking.client().list_artifacts(run.id)] == [file.path for file in before] != []
    assert away(f"runs:/{run.id}/gpt", moved, tmp_path_factory.mktemp("away")) == pytest.approx(right, abs=1e-4)
    tracking.client.cache_clear()


def test_two_long_parameters_stay_two():
    """MLflow takes 6,000 characters."""
    one, other = (str([f"data/part-{i}.txt" for i in (*range(400), last)]) for last in (1, 2))
    assert shortened(one) != shortened(other) and max(map(len, map(shortened, (one, other)))) <= 6000
    assert shortened("short") == "short"


def test_names_that_become_equal_stay_two():
    """MLflow takes no brackets, and kept the figure of the last of them alone."""
    assert apart(map(accepted, ["a (b)", "a [b]", "a_b", "a (b)"])) == ["a _b_", "a _b__", "a_b", "a _b___"]
    assert flatten({"a.b": 1, "a": {"b": 2}}) == {"a.b": 1, "a.b_": 2}


def test_a_run_is_recorded_whatever_its_groups_are_called(tmp_path, monkeypatch):
    """One name that MLflow refuses, as a URL or a sentence, loses all metrics of a run and its end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(tracking.OFF, "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    tracking.client.cache_clear()
    names = ["https://a.org/x", "a/./b", "../a", "/a/", "", ".", "word " * 60, "word " * 61, "(a)", "ü", "x"]
    with tracking.start("a", {}, {"label_names": dict.fromkeys(names, "yes")}) as run:
        run.log({"groups": {name: {"score": number} for number, name in enumerate(names)}})
        run.log({name: number for number, name in enumerate(names)}, step=3)
    recorded = tracking.client().get_run(run.id)
    final = [value for key, value in recorded.data.metrics.items() if not key.startswith("curves/")]
    assert sorted(final) == list(range(len(names))) and len(recorded.data.metrics) == 2 * len(names)
    assert len(recorded.data.params) == len(names) and recorded.info.status == "FINISHED"
    tracking.client.cache_clear()


@pytest.mark.parametrize("column", ["variant", "stratum", *GROUPS])
def test_names_that_look_like_numbers_stay_two(tmp_path, column):
    """Paradigms 1.1 and 1.10 were one in a study's table, and weighted as one."""
    (tmp_path / "items.csv").write_text(f"{column},score\n1.1,1\n1.10,0\n015,1\nNA,1\n")
    assert frames.read_csv(tmp_path / "items.csv")[column].tolist() == ["1.1", "1.10", "015", "NA"]
