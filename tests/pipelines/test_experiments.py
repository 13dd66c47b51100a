"""Two experiments held against each other, and whether DVC's cache can be believed."""

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from ruamel.yaml import YAML
from scipy import stats

from components import params
from components.core import storage, tracking
from components.core.errors import SesameError
from components.stages import registry
from components.stages.outputs import METRICS
from pipelines import studies
from pipelines.execution import mlflow_view
from pipelines.worktrees import experiments, sides
from tests.conftest import tiny_params
from tests.pipelines.conftest import ROOT, Lab, dvc


def summary(values: list[float]) -> dict:
    mean, median, std = float(np.mean(values)), float(np.median(values)), float(np.std(values, ddof=1))
    return {"pearson": {"mean": mean, "median": median, "std": std, "n": len(values), "values": values}}


def committed(lab: Lab, learning_rate: float, scores: list[float], loss: float, md5: str) -> str:
    """A commit with the figures of one model on one task; its hash."""
    params = {"seed": 1, "models": {"gpt": {"optimizer": {"learning_rate": learning_rate}}}}
    with open(lab.path / "params.yaml", "w") as file:
        YAML().dump(params, file)
    cost = {"seconds": 10.0, "tokens": 1000, "flops": 5e9, "kwh": 0.001}
    figures = {"model": "gpt", "task": "stsb", "method": "full", "derived": [], "metric": "pearson", "split": "test",
               "pretrained": {"test": summary(scores)}, "costs": {"pretrained": {}}, "cost": cost}  # fmt: skip
    pretraining = {"loss": loss, "perplexity": 50.0, "bits_per_byte": 1.5, "tokens": 9, "cost": cost}
    storage.write_json(lab.path / METRICS, {"finetune@gpt-stsb": figures, "pretrain@gpt": pretraining})
    stages = {"corpus@base": {"cmd": "fetch", "deps": [{"path": "code", "md5": "1"}], "outs": [{"path": "data/corpora/base", "md5": md5}]}}
    with open(lab.path / "dvc.lock", "w") as file:
        YAML().dump({"schema": "2.0", "stages": stages}, file)
    for command in (["add", "-A"], ["commit", "-qm", "results"]):
        subprocess.run(["git", *command], cwd=lab.path, check=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=lab.path, check=True, capture_output=True, text=True).stdout.strip()


def test_the_difference_is_the_first_less_the_second(inside, capsys):
    ours, theirs = [0.60, 0.64, 0.62], [0.50, 0.52, 0.51]
    better = committed(inside, 0.002, ours, 3.5, "b")
    committed(inside, 0.001, theirs, 3.9, "a")
    experiments.show(better, "HEAD")
    said = " ".join(capsys.readouterr().out.split())
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert "params.yaml models.gpt.optimizer.learning_rate 0.002 0.001" in said
    assert f"gpt stsb full pretrained test pearson 0.620 ± 0.020 (3) 0.510 ± 0.010 (3) +0.110 [+{low:.3f}, +{high:.3f}]" in said
    assert "intervals are over seeds of fine-tuning (Welch's t); of a model with one of `pretrainings`" in said
    assert "gpt loss 3.5 3.9 -0.4" in said and "seconds 20 20 1.00" in said
    assert "same inputs but different outputs: corpus@base; one side" in said
    experiments.show("HEAD", better)
    assert f"-0.110 [-{high:.3f}, -{low:.3f}]" in " ".join(capsys.readouterr().out.split())
    experiments.show(experiments.WORKSPACE, "HEAD")
    said = capsys.readouterr().out
    assert "the params are the same" in said and "scores that are the same: 1" in said
    assert "different outputs" not in said


COST = {"seconds": 1.0, "tokens": 1, "flops": 1.0, "kwh": 1.0}


def side(name: str, written: dict, **figures: dict) -> experiments.Side:
    by_stage = {tuple(key.split("_")): value for key, value in figures.items()}
    return experiments.Side(name, tracking.flatten(written), {}, by_stage)


@pytest.fixture
def shown(monkeypatch, capsys):
    """Compare two sides, and return what is printed, on one line."""

    def show(a: experiments.Side, b: experiments.Side) -> str:
        monkeypatch.setattr(experiments, "read", {"a": a, "b": b}.__getitem__)
        experiments.show("a", "b")
        return " ".join(capsys.readouterr().out.split())

    return show


def test_what_is_written_as_null_or_empty_is_not_the_same_as_nothing(shown):
    """`clip_norm: null` trains without clipping, and without the key gradients are clipped; `mine: {}` is one variant
    more."""
    documents = [f"raw/{number}.txt" for number in range(30)]
    a = side("a", {"clip_norm": None, "variants": {"mine": {}}, "paths": [*documents, "raw/a.txt"]})
    b = side("b", {"variants": {"rotary": {}}, "paths": [*documents, "raw/b.txt"]})
    said = shown(a, b)
    assert "clip_norm null –" in said and "variants.mine {} –" in said and "variants.rotary – {}" in said
    for name in ("a", "b"):
        assert f'raw/29.txt", "raw/{name}.txt"]' in said, "long values from where they differ"


def test_each_metric_is_subtracted_from_itself(shown):
    """Where the two sides judge a task by different metrics, each has a row."""

    def judged(name: str, metric: str, f1: list[float]) -> experiments.Side:
        scores = {"accuracy": summary([0.39, 0.40])["pearson"], "f1": summary(f1)["pearson"]}
        task = {"model": "bert", "task": "same", "method": "full", "derived": [], "metric": metric, "split": "test"}
        return side(name, {}, finetune_bert=task | {"pretrained": {"test": scores}, "costs": {"pretrained": {}}, "cost": COST})

    for ours, theirs in (("accuracy", "f1"), ("f1", "f1")):
        said = shown(judged("a", ours, [0.55, 0.57]), judged("b", theirs, [0.55, 0.57]))
        assert f"scores that are the same: {len({ours, theirs})}" in said
    said = shown(judged("a", "f1", [0.55, 0.57]), judged("b", "accuracy", [0.45, 0.47]))
    assert "f1 0.560 ± 0.014 (2) 0.460 ± 0.014 (2) +0.100" in said


def test_figures_are_of_a_commit_if_its_params_and_its_lock_say_so():
    """A stage ran with other settings, read what was written again since, or reads of one that did. A key of another
    version is none."""
    checked = params.check(tiny_params())
    stages = ("pretrain", "gpt"), ("finetune", "gpt-same"), ("finetune", "bert-same")
    settings = json.loads(json.dumps(registry.settings(checked, ("pretrain", "finetune"))))
    measured = {key: {"settings": settings["@".join(key)]} for key in stages}
    locked = {
        "encode@tiny": {"outs": [{"path": "data/encoded/tiny", "md5": "text"}]},
        "pretrain@gpt": {
            "deps": [{"path": "data/encoded/tiny", "md5": "text"}, {"path": "raw", "md5": "?"}],
            "outs": [{"path": "data/models/gpt", "md5": "m"}],
        },
        "finetune@gpt-same": {"deps": [{"path": "data/models/gpt", "md5": "m"}]},
    }  # fmt: skip

    def stale(change: Callable[[dict, dict], None]) -> set[tuple[str, str]]:
        ours, theirs = copy.deepcopy(locked), copy.deepcopy(measured)
        change(ours, theirs)
        return set(sides._stale(checked, ours, theirs))

    def edited(change: Callable[[dict], None]) -> set[tuple[str, str]]:
        change(raw := tiny_params())
        return set(sides._stale(params.check(raw), locked, measured))

    gpt = {("pretrain", "gpt"), ("finetune", "gpt-same")}
    assert edited(lambda raw: None) == stale(lambda locked, measured: None) == set()
    # settings that are left out at their neutral value, and entries of a map: one side has no such key
    assert edited(lambda raw: raw["models"]["gpt"]["optimizer"].update(name="muon")) == gpt
    assert edited(lambda raw: raw["models"]["gpt"].update(pretrainings=3)) == gpt
    starts = {"starts": {"random": {"learning_rate": 0.03}}}
    assert edited(lambda raw: raw["finetune"]["recipes"]["bert"].update(starts)) == {("finetune", "bert-same")}
    assert stale(lambda locked, measured: measured["pretrain", "gpt"]["settings"].update(batch_size=3)) == gpt
    assert stale(lambda locked, measured: locked["encode@tiny"]["outs"][0].update(md5="other")) == gpt
    tuned = {("finetune", "gpt-same")}
    assert stale(lambda locked, measured: locked["pretrain@gpt"]["outs"][0].update(md5="other")) == tuned
    assert stale(lambda locked, measured: measured["finetune", "bert-same"].pop("settings")) == set(), "an old version"


def test_what_other_stages_show_is_compared_too(shown):
    """Evaluations of models without tuning, alignments, generated text: rows that differ, but for the time that they
    took."""

    def asked(name: str, score: float, seconds: float) -> experiments.Side:
        pairs = {"measure": "accuracy", "score": score, "error": 0.01, "random": {"mean": 0.5}, "items": 1200}
        pairs["cost"] = COST
        derived = {"parameters": 10, "tokens": 20, "loss": 3.0, "perplexity": 20.0, "bits_per_byte": 1.0}
        derived["cost"] = COST | {"seconds": seconds}
        return experiments.Side(name, {}, {}, {("evaluate", "gpt-pairs"): pairs, ("derive", "small"): derived})

    said = shown(asked("a", 0.9, 5), asked("b", 0.8, 9))
    assert "evaluate model evaluation measure score ± error random weights best reference items" in said
    assert "a gpt pairs accuracy 0.900 ± 0.010 0.500 – 1,200 b gpt pairs accuracy 0.800 ± 0.010" in said
    assert "derive model" not in said, "only its seconds differ"
    assert "evaluate" not in shown(asked("a", 0.9, 5), asked("b", 0.9, 9))


def test_scores_on_other_examples_have_no_difference(shown):
    def judged(name: str, value: float, md5: str, examples: int) -> experiments.Side:
        task = {"model": "bert", "task": "same", "method": "full", "derived": [], "metric": "accuracy", "split": "test"}
        scores = {"accuracy": summary([value, value + 0.02])["pearson"]}
        settings = {"eval_examples": {"dev": 10, "test": examples}}
        measured = task | {"pretrained": {"test": scores}, "costs": {"pretrained": {}}, "cost": COST, "settings": settings}
        locked = {"task@same": {"outs": [{"path": "data/tasks/same", "md5": md5}]}}
        return experiments.Side(name, {}, locked, {("finetune", "bert-same"): measured})

    base, refused = judged("a", 0.5, "one", 20), "scores on same don't compare: the two sides ask other examples"
    assert "+0.100" in (said := shown(base, judged("b", 0.4, "one", 20))) and refused not in said
    for other in (judged("b", 0.4, "one", 47), judged("b", 0.4, "two", 20)):
        assert refused in (said := shown(base, other)) and "+0.100" not in said and "0.510" in said


def test_losses_and_bits_are_subtracted_only_where_they_compare(shown):
    """Losses where text, tokenizer, objective and length of rows are the same; bits per byte from left to right also across tokenizers,
    on one text in one letter case."""

    def trained(name: str, loss: float, bits: float, read="one", text="one", lowercase=True, family="decoder") -> experiments.Side:
        settings = {"objective": {"name": "clm"}, "architecture": {"name": family, "max_length": 64}, "encoding": "english"}
        measured = {"loss": loss, "perplexity": 20.0, "bits_per_byte": bits, "settings": settings, "cost": COST}
        deps = [{"path": "data/corpora/english", "md5": text}, {"path": "data/tokenizers/mine", "md5": read}]
        locked = {"pretrain@gpt": {"deps": [{"path": "data/encoded/english", "md5": text + read}]}, "encode@english": {"deps": deps}}
        tokenizer = {"settings": {"lowercase": lowercase}}
        return experiments.Side(name, {}, locked, {("pretrain", "gpt"): measured, ("tokenizer", "mine"): tokenizer})

    base = trained("a", 3.0, 1.5)
    same = shown(base, trained("b", 4.0, 1.6))
    assert "gpt loss 3 4 -1" in same and "gpt bits per byte 1.5 1.6 -0.1" in same and "don't compare" not in same
    other = shown(base, trained("b", 4.0, 1.6, read="two"))
    assert "gpt bits per byte 1.5 1.6 -0.1" in other and "losses and perplexities of gpt don't compare" in other
    assert "gpt loss 3 4 -1" not in other and "bits per byte of gpt don't" not in other
    for change in ({"text": "two"}, {"lowercase": False}, {"family": "encoder"}):
        said = shown(base, trained("b", 4.0, 1.6, read="two", **change))
        assert "gpt bits per byte 1.5 1.6 -" not in said and "bits per byte of gpt don't compare: the two sides have another text" in said
    masked = [trained(side, loss, bits, read=side, family="encoder") for side, loss, bits in (("a", 3.0, 1.5), ("b", 4.0, 1.6))]
    assert "bits per byte of gpt don't compare" in shown(*masked), "those of hidden pieces are of other targets"


def test_an_experiment_is_known_by_its_name(inside):
    commit = committed(inside, 0.002, [0.5, 0.6], 3.5, "a")
    subprocess.run(["git", "update-ref", f"refs/exps/{commit[:2]}/{commit[2:]}/mine", commit], cwd=inside.path, check=True)
    assert experiments.read("mine").params["params.yaml  models.gpt.optimizer.learning_rate"] == 0.002
    with pytest.raises(SesameError, match=r"no experiment or commit 'yours' \(experiments: mine; "):
        experiments.read("yours")


@pytest.mark.parametrize(("a", "b"), [([0.5], [0.4, 0.5]), ([0.5, 0.5], [0.4, 0.4]), ([0.5, None], [0.4, 0.5])])
def test_no_interval_where_there_is_no_spread(a, b):
    assert experiments.interval(a, b) is None


def test_damaged_objects_of_the_cache_are_told_and_built_anew(lab):
    lab.write("make.py", "import pathlib; d = pathlib.Path('many.out'); d.mkdir(); (d / 'x').write_text('x'); (d / 'y').write_text('y')")
    lab.stages("  one: {cmd: echo 1 > one.out, outs: [one.out]}\n  many: {cmd: python make.py, deps: [make.py], outs: [many.out]}")
    dvc(lab, "repro")
    assert "4 objects read, 0 damaged" in lab.sesame("verify")
    good = lab.read("many.out/y")
    [path] = [path for path in lab.path.glob(".dvc/cache/files/md5/*/*") if path.read_text() == good]
    path.chmod(0o644)
    path.write_text("rotten")
    said = lab.sesame("verify", code=1)
    assert f"{path.name}, many.out/y (many)" in said and "4 objects read, 1 damaged" in said and "`sesame verify --remove`" in said
    assert path.exists()
    assert "1 damaged and removed" in lab.sesame("verify", "--remove") and not path.exists()
    dvc(lab, "repro")
    assert path.read_text() == good and "4 objects read, 0 damaged" in lab.sesame("verify")


def test_results_belong_to_the_commit_of_the_code(inside):
    """A run rewrites figures that git has; that makes nothing dirty, and a changed param does."""
    commit = committed(inside, 0.002, [0.5, 0.6], 3.5, "a")
    assert tracking.git_commit() == commit
    inside.write("dvc.lock", "{}").write("data/report/metrics.json", "{}")
    assert tracking.git_commit() == commit
    inside.write("params.yaml", "seed: 2\n")
    assert tracking.git_commit() == f"{commit}-dirty"
    os.chdir("/")
    assert tracking.git_commit() == ""


@pytest.fixture
def ledger(inside, monkeypatch):
    """An MLflow database of its own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{inside.path}/mlflow.db")
    tracking.client.cache_clear()
    yield tracking.client()
    tracking.client.cache_clear()


def test_an_experiment_that_is_there_a_moment_later_is_used(inside, monkeypatch):
    """Another checkout creates it in between, or a slow server gets the request for it twice."""
    from mlflow import MlflowClient

    create = MlflowClient.create_experiment
    monkeypatch.setattr(MlflowClient, "create_experiment", lambda *given, **named: [create(*given, **named) for _ in range(2)])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{inside.path}/mlflow.db")
    tracking.client.cache_clear()
    assert tracking.connected().get_experiment_by_name(tracking.EXPERIMENT)
    tracking.client.cache_clear()


def test_the_ledgers_lists_and_views(inside, ledger, monkeypatch):
    """Runs judged on dev have their score, worktree runs their experiment; a study and a search are seen by what they compare."""
    monkeypatch.setenv("SESAME_TRACKING", "")
    with tracking.start("calm-newt", {"experiment": "lr=0.1"}, {}) as flow:
        monkeypatch.setenv(tracking.PARENT, flow.id)
        for seed, split in (("1", "dev"), ("2", "test")):
            tags = {"model": "bert", "task": "sst2", "method": "lora", "init": "pretrained", "seed": seed, "recipe": "small"}
            with tracking.start("bert-sst2", tags, {}) as run:
                run.log({"dev": {"accuracy": 0.8}} | ({split: {"accuracy": 0.7}} if split == "test" else {}) | {"seconds": 3})
    columns, rows = studies.tunings(10)
    found = {row[columns.index("seed")]: dict(zip(columns, row, strict=True)) for row in rows}
    assert (found["1"]["scores"], found["2"]["scores"]) == ("dev.accuracy 0.800", "test.accuracy 0.700")
    assert {(row["experiment"], row["recipe"]) for row in found.values()} == {("lr=0.1", "small")}

    shutil.copytree(ROOT / "studies", inside.path / "studies")
    for targets, metric in ((["study@first"], "metrics.`stsb`"), (["budget"], "metrics.`final_score`"), ([], "metrics.`score`")):
        mlflow_view.save(targets, flow.id)
        tags = ledger.get_experiment_by_name(tracking.EXPERIMENT).tags
        ours = [key for key in tags if key.startswith(mlflow_view.TAG) and key.endswith(mlflow_view.kind(targets))]
        [state] = [json.loads(tags[key]) for key in ours]
        assert (state["orderByKey"], state["orderByAsc"]) == (metric, False)
        assert flow.id in state["searchFilter"]
        ledger.search_runs(["1"], state["searchFilter"])  # raises where MLflow does not take it
    for number in range(mlflow_view.MOST + 3):
        ledger.set_experiment_tag("1", f"{mlflow_view.TAG}20200101-{number:012}-run", "{}")
    mlflow_view.save([], flow.id)
    tags = ledger.get_experiment_by_name(tracking.EXPERIMENT).tags
    assert sum(key.startswith(mlflow_view.TAG) for key in tags) == mlflow_view.MOST
