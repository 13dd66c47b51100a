"""What users do with DVC itself, on the real dvc.yaml and studies/dvc.yaml with tiny params: which stages run, and which do not.

The lab is built once by `sesame run` and copied for each journey, so that a test pays for its own stages alone.
"""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from ruamel.yaml import YAML

from components.core.errors import SesameError
from components.stages.inputs import digest
from tests.conftest import tiny_params
from tests.pipelines.conftest import BIN, ROOT, Lab, dvc, whole

pytestmark = pytest.mark.long

CHEAP = {"resolve", "report"}
"""The stage that looks at params and code, and the page of everything."""


def tiny_pipeline() -> dict[str, Any]:
    """Tiny params in which each stage that reads several of a group reads some, and not all."""
    raw = tiny_params()
    raw["tasks"]["other"] = raw["tasks"]["same"]
    raw["models"] = {name: raw["models"][name] for name in ("bert", "gpt")}
    raw["finetune"] |= {"models": ["bert", "gpt"], "tasks": ["same"]}
    raw["histories"] = {"both": {"periods": ["one", "two"], "words": ["river"]}}
    raw["derived"] = {
        "bert_tuned": {
            "start": "bert", "on": "tasks",
            "by": {"name": "multitask", "tasks": ["same", "other"], "recipe": raw["finetune"]["recipes"]["bert"]},
        },
        "gpt_short": {"start": "gpt", "on": "models/gpt", "by": {"name": "truncated", "layers": 1}},
    }  # fmt: skip
    raw["generations"] = {"gpt": {"model": "gpt", "inputs": {"kind": "beginnings", "tokens": 4}, "most": 5,
                                  "decoding": {"kind": "greedy", "max_new_tokens": 4}}}  # fmt: skip
    return json.loads(json.dumps(raw))  # or YAML would write what is shared as an anchor, and an edit of one would be one of both


def without_gpt(raw: dict) -> None:
    """As a user removes a model: with all that names it."""
    raw["models"].pop("gpt")
    raw["finetune"]["models"] = ["bert"]
    raw["derived"].pop("gpt_short")
    raw["generations"].clear()


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def built_pipeline(template, forking, server, tmp_path_factory) -> Path:
    """A lab with all of dvc.yaml built by `sesame run`, a study by `sesame study`, committed; made by the first worker that asks."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "journeys" / "lab"
    with FileLock(path.parent.with_suffix(".lock")):
        if not (path.parent / "done").exists():
            shutil.rmtree(path.parent, ignore_errors=True)
            shutil.copytree(template, path)
            made = Lab(path, {"PREFECT_API_URL": server, "MLFLOW_TRACKING_URI": "", "SESAME_TRACKING": "off"}, forking)
            made.env["SESAME_TEST_PYTHON"] = str(forking / "python")
            whole(made, tiny_pipeline())
            made.env["SESAME_TRACKING"] = "off"
            # what a fresh clone has: the file that DVC reads with studies/dvc.yaml
            subprocess.run([sys.executable, "-m", "components.stages.resolve"], cwd=path, check=True, capture_output=True)
            (path / ".gitignore").write_text((path / ".gitignore").read_text() + "/.cache/\n/.config/\n")
            git(path, "add", "-A")
            git(path, "commit", "-qm", "project")
            made.sesame("run")
            made.sesame("study", "rate")
            git(path, "add", "-A")
            git(path, "commit", "-qm", "built")
            (path.parent / "done").touch()
    return path


@pytest.fixture
def journey(built_pipeline, forking, server, tmp_path) -> Lab:
    """A copy of the built lab, with a cache of its own."""
    path = Path(shutil.copytree(built_pipeline, tmp_path / "lab", symlinks=True))
    env = {"PREFECT_API_URL": server, "MLFLOW_TRACKING_URI": "", "SESAME_TRACKING": "off"}
    return Lab(path, env | {"SESAME_TEST_PYTHON": str(forking / "python")}, forking)


def repro(lab: Lab, *args: str) -> tuple[set[str], set[str]]:
    """`dvc repro`: the stages that ran, and those that came out of DVC's cache."""
    said = dvc(lab, "repro", *args)
    name = r"'(?:studies/dvc\.yaml:)?([^']+)'"
    return set(re.findall(rf"^Running stage {name}", said, re.M)), set(re.findall(rf"^Stage {name} is cached", said, re.M))


def edit(lab: Lab, change: Callable[[dict], None], file: str = "params.yaml") -> None:
    """Change a params file as an editor does."""
    path, yaml = lab.path / file, YAML()
    raw = yaml.load(path)
    change(raw)
    with path.open("w") as written:
        yaml.dump(raw, written)


def put(place: str, value: Any) -> Callable[[dict], None]:
    """Sets `a.b.c`."""

    def change(raw: dict) -> None:
        *above, last = place.split(".")
        for key in above:
            raw = raw[key]
        raw[last] = value

    return change


def sesame_ran(lab: Lab, *args: str) -> set[str]:
    """The stages that `sesame run` really ran."""
    return set(re.findall(r"^\[?([^\s\]]+)\]? +done in ", re.sub(r"\x1b\[[\d;]*m", "", lab.sesame("run", *args)), re.M))


def test_after_a_run_there_is_nothing_to_do(journey):
    """DVC agrees with `sesame run`, and no stage of the studies is drawn in."""
    assert "up to date" in dvc(journey, "repro", "--dry") and repro(journey, "--dry") == (set(), set())
    assert "up to date" in dvc(journey, "status", "dvc.yaml")
    assert sesame_ran(journey) == set()


CHANGES = {
    "a recipe": (put("finetune.recipes.bert.learning_rate", 0.01), {"finetune@bert-same"}),
    "a task's labels for people": (put("tasks.same.licence", "another"), set()),
    "a prompt": (put("models.bert.prompts", ["a [MASK] dog"]), {"sample@bert"}),
    "where it runs": (put("models.bert.run.log_every", 3), set()),
    "an alignment": (put("alignments.again.dictionary.train", 20), {"align@again"}),
    "dropout": (
        put("models.gpt.architecture.dropout", 0.2),
        {"pretrain@gpt", "sample@gpt", "finetune@gpt-same", "derive_inputs@gpt_short", "derive@gpt_short", "generate@gpt"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_value_and_back(journey, name):
    """What uses a value runs; taken back, all comes out of the cache, for every stage but the page."""
    change, stages = CHANGES[name]
    edit(journey, change)
    ran, cached = repro(journey)
    assert ran - CHEAP == stages and not cached
    git(journey.path, "checkout", "params.yaml")
    ran, cached = repro(journey)
    assert ran <= CHEAP and cached == stages
    assert "up to date" in dvc(journey, "repro", "--dry")


def test_a_value_and_back_by_sesame_in_a_worktree_and_another_clone(journey, tmp_path):
    """The same by `sesame run`; by DVC in a worktree with the same cache; and elsewhere by `push` and `pull --run-cache`."""
    change, stages = CHANGES["a recipe"]
    dvc(journey, "remote", "add", "-d", "store", str(tmp_path / "store"))
    edit(journey, change)
    assert sesame_ran(journey) - CHEAP == stages
    dvc(journey, "push", "--run-cache", "-q", "dvc.yaml")  # DVC sends the data of what is there now, and records of all runs
    git(journey.path, "checkout", "params.yaml")
    assert sesame_ran(journey) <= CHEAP

    tree = tmp_path / "tree"
    git(journey.path, "worktree", "add", "-q", str(tree))
    local = f"[cache]\n    dir = {journey.path}/.dvc/cache\n"
    (tree / ".dvc/config.local").write_text(local)
    there = Lab(tree, journey.env, journey.forks)
    edit(there, change)
    ran, cached = repro(there)
    assert ran <= CHEAP and stages <= cached, "what another worktree has made"

    dvc(journey, "push", "--run-cache", "-q", "dvc.yaml")
    git(journey.path, "add", "-A")
    git(journey.path, "commit", "-qm", "a remote")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(journey.path), str(clone))
    elsewhere = Lab(clone, journey.env, journey.forks)
    shutil.copytree(journey.path / "raw", clone / "raw", dirs_exist_ok=True)
    dvc(elsewhere, "pull", "--run-cache", "-q", "dvc.yaml")
    edit(elsewhere, change)
    ran, cached = repro(elsewhere, "--pull")
    assert ran <= CHEAP and stages <= cached, "what another machine has made"


def test_a_lock_file_of_another_machine_trains_nothing(journey):
    """As after `git pull`, or `git checkout dvc.lock` to be able to pull: the outputs that it names are not here, but own ones are."""
    file = journey.path / "dvc.lock"
    locked = YAML(typ="safe").load(file.read_text())
    for stage in locked["stages"].values():
        for out in stage["outs"]:
            out["md5"] = md5(out["md5"].encode()).hexdigest() + (".dir" if out["md5"].endswith(".dir") else "")
    YAML(typ="safe").dump(locked, file)
    assert sesame_ran(journey) <= CHEAP
    assert "up to date" in dvc(journey, "repro", "--dry")


def test_a_fresh_clone_is_missing_its_data_and_nothing_else(journey, tmp_path):
    """The check that CI makes of a clone without data."""
    clone = Lab(tmp_path / "clone", journey.env, journey.forks)
    git(tmp_path, "clone", "-q", str(journey.path), str(clone.path))
    assert repro(clone, "--dry", "--allow-missing") == (set(), set())


def test_one_task_more_and_taken_back_trains_nothing(journey):
    """A task that nothing uses is fetched, and what reads a group of tasks is seen to read the same."""
    edit(journey, lambda raw: raw["tasks"].update(third=raw["tasks"]["same"]))
    before = hashes(journey)
    looked_at = {"derive_inputs@bert_tuned", "mix_inputs@tiny"}
    assert repro(journey)[0] - CHEAP == {"task@third"} | looked_at
    studied = repro(journey, "--dry", "studies/dvc.yaml:study@rate")[0]
    assert studied == {"study_inputs@rate"}, "and no tuning of a study"
    assert {name: md5 for name, md5 in hashes(journey).items() if name in before} == before
    git(journey.path, "checkout", "params.yaml")
    ran, cached = repro(journey)
    assert ran <= CHEAP and cached <= looked_at
    assert not (journey.path / "data/tasks/third").exists()


def test_a_renamed_model_leaves_nothing_that_another_clone_would_miss(journey, tmp_path):
    """The page depends on complete folders, and what the model had written under its old name is in none of them."""

    def rename(raw: dict) -> None:
        raw["models"]["gpt_2"] = raw["models"]["gpt"]
        without_gpt(raw)
        raw["finetune"]["models"] = ["bert", "gpt_2"]
        raw["finetune"]["recipes"]["gpt_2"] = raw["finetune"]["recipes"].pop("gpt")

    edit(journey, rename)
    assert repro(journey)[0] - CHEAP == {"pretrain@gpt_2", "sample@gpt_2", "finetune@gpt_2-same"}
    git(journey.path, "commit", "-qam", "renamed")
    read = report_reads(journey)
    clone = Lab(tmp_path / "clone", journey.env, journey.forks)
    git(tmp_path, "clone", "-q", str(journey.path), str(clone.path))
    (clone.path / ".dvc/config.local").write_text(f"[cache]\n    dir = {journey.path}/.dvc/cache\n")
    shutil.copytree(journey.path / "raw", clone.path / "raw", dirs_exist_ok=True)
    dvc(clone, "checkout", "dvc.yaml")
    assert "up to date" in dvc(clone, "status", "dvc.yaml")
    # and a clone that had the old name before it got the new one
    git(clone.path, "checkout", "-q", "HEAD~1")
    dvc(clone, "checkout", "dvc.yaml")
    git(clone.path, "checkout", "-q", "-")
    dvc(clone, "checkout", "dvc.yaml")
    assert (clone.path / "data/metrics/pretrain/gpt.json").exists()
    assert repro(clone)[0] == {"report"} and report_reads(clone) == read
    assert not (clone.path / "data/scores/gpt").exists()


def report_reads(lab: Lab) -> list[dict]:
    """What dvc.lock says of the files that the stage `report` depends on."""
    return YAML(typ="safe").load(lab.path / "dvc.lock")["stages"]["report"]["deps"]


def hashes(lab: Lab) -> dict[str, str]:
    """Of every output but the report's and what tells of time: path -> md5, by dvc.lock."""
    stages = YAML(typ="safe").load(lab.path / "dvc.lock")["stages"].values()
    outs = [out for stage in stages for out in stage.get("outs", ())]
    return {out["path"]: out["md5"] for out in outs if not out["path"].startswith(("data/report", "data/metrics", "data/resolved"))}


@pytest.mark.parametrize(
    ("change", "file", "stages"),
    [
        (put("tasks.same.test.share", 0.3), "params.yaml", {
            "task@same", "mix_inputs@tiny", "mix@tiny", "tokenizer@tiny", "encode@tiny", "pretrain@bert", "pretrain@gpt", "sample@bert",
            "sample@gpt", "derive_inputs@bert_tuned", "derive@bert_tuned", "derive_inputs@gpt_short", "derive@gpt_short",
            "finetune@bert-same", "finetune@gpt-same", "baseline@same", "generate@gpt",
        }),
        (lambda raw: raw["models"].update(small=raw["models"]["gpt"]), "params.yaml", {"pretrain@small", "sample@small"}),
        (put("vectors.one.epochs", 2), "params.yaml", {"vectors@one", "align@again", "history_inputs@both", "history@both"}),
        (without_gpt, "params.yaml", set()),
    ],
    ids=["a task's size", "one model more", "vectors", "one model less"],
)  # fmt: skip
def test_what_uses_a_change_runs_and_nothing_else(journey, change, file, stages):
    edit(journey, change, file)
    assert repro(journey)[0] - CHEAP == stages


def test_the_top_level_seed_trains_anew_and_one_variant_more_runs_alone(journey):
    """`-S seed=2` is another pre-training; a study with one variant more trains that one."""
    more = {"80": {"change": {"objective": {"mlm_probability": 0.8}}}}
    edit(journey, lambda raw: raw["variants"].update(more), "studies/params/rate.yaml")
    journey.sesame("plan", "study@rate")  # writes what DVC makes stages of
    ran, _ = repro(journey, "studies/dvc.yaml:study@rate")
    assert ran - CHEAP == {f"{stage}@rate-80-{seed}" for stage in ("variant", "transfer") for seed in (1, 2)} | {"study@rate"}
    git(journey.path, "checkout", "studies")
    edit(journey, put("seed", 2))
    dvc(journey, "repro", "resolve")
    ran, _ = repro(journey, "--dry")
    assert {"pretrain@bert", "pretrain@gpt", "corpus@base", "vectors@one"} <= ran and "vectors@two" not in stale(journey)


def stale(lab: Lab) -> set[str]:
    """Stages whose settings are other ones than those of their last run."""
    said = json.loads(dvc(lab, "status", "--json", "dvc.yaml"))
    return {name for name, changes in said.items() if f"data/resolved/{name.replace('@', '/')}.json" in json.dumps(changes)}


def test_a_comment_and_a_docstring_run_nothing(journey):
    path = journey.path / "components/finetune/loop.py"
    path.write_text(path.read_text().replace('"""', '"""Said otherwise. ', 1) + "\n# a comment\n")
    params = journey.path / "params.yaml"
    params.write_text(f"# a comment\n{params.read_text()}")
    assert repro(journey)[0] <= {"resolve"}


def test_dvc_compares_params_and_metrics_as_its_users_expect(journey):
    """The user's own keys, those that differ and no others; an experiment of DVC's own, one line of params changed."""
    assert dvc(journey, "params", "diff").strip() == ""
    edit(journey, put("models.bert.optimizer.learning_rate", 0.1))
    [row] = json.loads(dvc(journey, "params", "diff", "--json"))["params.yaml"].items()
    assert row[0] == "models.bert.optimizer.learning_rate" and (row[1]["old"], row[1]["new"]) == (0.003, 0.1)
    changed = json.loads(dvc(journey, "status", "--json", "dvc.yaml"))
    assert set(changed) == {"resolve"}, "what follows is known when that has run"
    journey.write("studies/params.yaml", "vectors: {}\n")
    assert set(json.loads(dvc(journey, "params", "diff", "--json"))) == {"params.yaml", "studies/params.yaml"}
    git(journey.path, "checkout", "params.yaml", "studies/params.yaml")
    before = (journey.path / "params.yaml").read_text()
    dvc(journey, "exp", "run", "-q", "-n", "longer", "-S", "generations.gpt.inputs.tokens=5", "generate@gpt")
    lines = zip(before.splitlines(), (journey.path / "params.yaml").read_text().splitlines(), strict=True)
    assert [new.strip() for old, new in lines if old != new] == ["tokens: 5"]
    assert json.loads((journey.path / "data/metrics/generate/gpt.json").read_text())["settings"]["inputs"]["tokens"] == 5
    git(journey.path, "checkout", ".")
    # DVC applies it, and then names what studies have never made, as `dvc checkout` does
    environment = os.environ | journey.env | {"PATH": f"{BIN}:/usr/bin:/bin"}
    said = subprocess.run([BIN / "dvc", "exp", "apply", "longer"], cwd=journey.path, capture_output=True, text=True, env=environment).stderr
    assert not re.search(r"^data/(?!search|report/(efficiency|seeds|tickets))", said, re.M)
    assert "tokens: 5" in (journey.path / "params.yaml").read_text()
    shown = list(csv.DictReader(dvc(journey, "exp", "show", "--csv", "--only-changed").splitlines()))
    assert any(row["Experiment"] == "longer" for row in shown) and "generations.gpt.inputs.tokens" in shown[0]
    assert json.loads(dvc(journey, "metrics", "diff", "--json")) == {}
    assert (journey.path / "dvc_plots/index.html").exists() or "index.html" in dvc(journey, "plots", "show", "data/curves/bert.csv")


def test_a_queued_experiment_of_dvc_is_recorded_in_the_checkout(journey):
    """DVC runs it in a copy of the checkout, which it deletes."""
    dvc(journey, "exp", "run", "--queue", "-n", "queued", "-S", "generations.gpt.inputs.tokens=6", "generate@gpt")
    environment = os.environ | journey.env | {"PATH": f"{BIN}:/usr/bin:/bin", "SESAME_TRACKING": ""}
    subprocess.run([BIN / "dvc", "exp", "run", "--run-all"], cwd=journey.path, check=True, env=environment)
    ledger = MlflowClient(f"sqlite:///{journey.path}/mlflow.db")
    [run] = ledger.search_runs([ledger.get_experiment_by_name("sesame").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["inputs.tokens"]) == ("generate@gpt", "FINISHED", "6")
    assert "models/gpt" in {dataset.dataset.name for dataset in run.inputs.dataset_inputs}
    assert run.info.artifact_uri.startswith((journey.path / "mlartifacts").as_uri())


def test_sesame_exp_diff_tells_of_the_one_line(journey):
    """README's own ablation, and that what params do not declare is not compared."""
    edit(journey, put("models.bert.objective.next_sentence", False))
    said = " ".join(journey.sesame("exp", "diff", "workspace").split())
    assert "params.yaml models.bert.objective.next_sentence" in said and "the params are the same" not in said
    git(journey.path, "checkout", "params.yaml")
    edit(journey, without_gpt)
    said = journey.sesame("exp", "diff", "workspace")
    # three baselines and two starts of bert are on both sides
    rows = [line.split() for line in said.splitlines() if line.startswith("gpt ")]
    assert any(row[1:2] == ["same"] and "–" in row for row in rows), said
    assert "different outputs" not in said


def test_figures_of_earlier_params_are_not_those_of_a_commit(journey):
    """An edit that is committed before it runs, and an experiment of DVC's that ran one target."""
    edit(journey, put("finetune.recipes.gpt.epochs", 7))
    git(journey.path, "commit", "-qam", "edited")
    said = " ".join(journey.sesame("exp", "diff", "HEAD", "HEAD~1", COLUMNS="200").split())
    assert "params.yaml finetune.recipes.gpt.epochs 7" in said
    assert "finetune@gpt-same has not run with the params of HEAD, so its figures are left out: run it first" in said
    before = int(re.search(r"scores that are the same: (\d+)", journey.sesame("exp", "diff", "HEAD~1", "HEAD~1"))[1])
    assert f"scores that are the same: {before - 2} " in said, "gpt has two starts"
    assert "cost of the other stages" in said
    dvc(journey, "exp", "run", "-q", "-n", "one", "-S", "models.gpt.optimizer.learning_rate=0.02", "generate@gpt")
    said = " ".join(journey.sesame("exp", "diff", "one", "HEAD~1", COLUMNS="200").split())
    assert "derive@gpt_short, finetune@gpt-same, sample@gpt have not run with the params of one" in said, said
    assert "pre-training one HEAD~1" in said


@pytest.mark.parametrize("damage", ["<<<<<<< HEAD\n{}\n=======\n", '{"cost": {"sec', ""])
def test_a_damaged_figure_keeps_no_stage_from_running(journey, damage):
    """A merge conflict, a cut, an empty file: plan and run work, and the stage that wrote it brings it back."""
    for name in ("metrics/pretrain/bert.json", "metrics/task/same.json", "report/figures.json", "report/metrics.json"):
        (journey.path / "data" / name).write_text(damage)
    journey.sesame("plan")
    journey.sesame("run")
    for name in ("metrics/pretrain/bert.json", "metrics/task/same.json", "report/figures.json", "report/metrics.json"):
        json.loads((journey.path / "data" / name).read_text())


def test_a_lock_file_with_a_conflict_says_how_to_mend_it(journey):
    path = journey.path / "dvc.lock"
    path.write_text(f"<<<<<<< HEAD\n{path.read_text()}=======\n>>>>>>> other\n")
    said = journey.sesame("run", code=1)
    assert "dvc.lock" in said and "git checkout --ours dvc.lock" in said and said.count("\n") < 4


def test_one_stage_alone_with_changed_params_loses_nothing(journey):
    """`dvc repro -sf` skips `resolve`: the stage refuses, and `dvc checkout` brings back what DVC had removed."""
    before = (journey.path / "data/metrics/pretrain/bert.json").read_bytes()
    edit(journey, put("models.bert.optimizer.learning_rate", 0.1))
    done = subprocess.run(
        [BIN / "dvc", "repro", "-sf", "pretrain@bert"], cwd=journey.path, capture_output=True, text=True,
        env=os.environ | journey.env | {"PATH": f"{BIN}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode and "`dvc checkout` brings it back" in done.stderr + done.stdout
    dvc(journey, "checkout", "pretrain@bert")
    assert (journey.path / "data/metrics/pretrain/bert.json").read_bytes() == before
    assert (journey.path / "data/models/bert/model.safetensors").exists() and (journey.path / "data/curves/bert.csv").exists()


def test_what_a_stage_reads_of_a_folder_is_by_content(tmp_path, monkeypatch):
    """Other files, other names and other contents are told apart; the order in which a disk lists them is not."""
    monkeypatch.chdir(tmp_path)
    folder = partial(Path, "data/tasks/one")
    folder().mkdir(parents=True)
    with pytest.raises(SesameError, match="data/tasks/two"):
        digest(Path("data/tasks/two"))
    folder("a").write_text("1")
    first = digest(folder())
    folder("b").write_text("2")
    second = digest(folder())
    folder("b").write_text("3")
    assert len({first, second, digest(folder())}) == 3
    folder("b").unlink()
    assert digest(folder()) == first


def test_a_number_is_traced_to_its_sources_and_its_commit(journey):
    """In the clone that ran it, in one without data, and after an edit."""

    def traced(lab: Lab) -> dict[str, list[str]]:
        said = lab.sesame("trace", "finetune@gpt-same", COLUMNS="200").splitlines()
        assert "settings data/resolved/finetune/gpt-same.json" in said
        assert any(line.startswith("code     components/finetune/__main__.py, which imports ") for line in said)
        assert any(line.startswith("wrote    data/scores/gpt/same (") for line in said)
        return {line.split()[0]: line.split()[1:] for line in said[1:] if "@" in line.split()[0]}

    commit = git(journey.path, "log", "-1", "--format=%h", "--", "dvc.lock").strip()
    behind = traced(journey)
    assert list(behind)[0] == "finetune@gpt-same" and behind.keys() >= {"pretrain@gpt", "encode@tiny", "mix@tiny", "corpus@base"}
    assert all(line[:2] == ["current", commit] for line in behind.values()), behind
    assert behind["pretrain@gpt"][3:] == ["encode@tiny"] and behind["corpus@base"][3:] == ["raw/text.txt"]
    bare = Lab(journey.path.parent / "bare", journey.env, journey.forks)
    git(journey.path.parent, "clone", "-q", str(journey.path), "bare")
    shutil.copytree(journey.path / "raw", bare.path / "raw", dirs_exist_ok=True)
    assert traced(bare) == behind
    edit(journey, put("models.gpt.architecture.dropout", 0.2))
    changed = {name for name, line in traced(journey).items() if line[:2] != ["current", commit]}
    assert changed == {"pretrain@gpt"}, "what reads it is as it was recorded"
    assert "finetune is not one stage" in journey.sesame("trace", "finetune", code=1)


def test_what_comes_in_comes_out_or_is_counted(built_pipeline):
    """Documents, segments, rows and examples from the raw files to the predictions: a difference has a named reason."""

    def metrics(stage: str, name: str) -> dict:
        return json.loads((built_pipeline / f"data/metrics/{stage}/{name}.json").read_text())

    raw = (built_pipeline / "raw/text.txt").read_text().strip().split("\n\n")
    corpus, mix, encoded = metrics("corpus", "base"), metrics("mix", "tiny"), metrics("encode", "tiny")
    assert corpus["documents"] + sum(corpus["dropped"].values()) == len(raw)
    assert sum(split["documents"] for split in corpus["splits"].values()) == corpus["documents"]

    rows = (built_pipeline / "raw/pairs.tsv").read_text().strip().split("\n")[1:]
    task = metrics("task", "same")
    assert sum(task["examples"].values()) + task["dropped"] == len(rows)

    assert mix["documents"] + sum(mix["dropped"].values()) == corpus["documents"] + task["examples"]["train"]
    for split, counts in mix["splits"].items():
        assert {key: encoded[split][key] for key in ("documents", "segments")} == {key: counts[key] for key in ("documents", "segments")}
    for model in ("bert", "gpt"):
        assert metrics("pretrain", model)["left_out"] == 0, "every token is in some row of an epoch"
        tuned = metrics("finetune", f"{model}-same")
        predictions = (built_pipeline / f"data/scores/{model}/same/predictions.jsonl").read_text().splitlines()
        starts, seeds, judged = 2, 2, task["examples"]["dev"] + task["examples"]["test"]
        assert len(predictions) == starts * seeds * judged
        assert all(lost == 0 for lost in tuned["lost"].values()), "examples whose text is cut away"
    aligned = metrics("align", "again")
    assert 0 < aligned["coverage"] <= 1


def test_the_tutorial_from_own_text_to_a_finding(journey):
    """docs/tutorial_text.md as it is written, with a smaller budget: its blocks, its file, its commands."""
    page = (ROOT / "docs/tutorial_text.md").read_text()
    [blocks] = re.findall(r"```yaml\n(.*?)```", page, re.S)
    name, study = re.search(r"cat > (\S+) << END\n(.*?)END\n", page, re.S).groups()
    names = ["mary", "peter", "anna", "paul", "the farmer", "my sister", "john", "the old woman", "his teacher", "her friend"]
    said = ["{} sees an old dog near the river .", "the man of {} is here today .", "the men of {} are here today .", "{} was a teacher ."]
    for number in range(4):
        lines = [said[i % 4].format(f"{names[i % 10]} {number}{i}") for i in range(100)]
        journey.write(f"my/{number}.txt", "\n\n".join(lines) + "\n")

    def add(raw: dict) -> None:
        for section, entries in YAML(typ="safe").load(blocks.replace("2048", "300")).items():
            raw.setdefault(section, {}).update(entries)
        raw["models"]["gpt"]["architecture"]["dropout"] = 0.0  # as the shipped model has none, which the tutorial adds

    edit(journey, add)
    smaller = study.replace("{tokens: 500000}", "{steps: 12}").replace("[1, 2, 3]", "[1, 2]")
    assert smaller != study
    journey.write(name, smaller)
    run, plan = "sesame run encode@mine evaluation@mine_pairs", "sesame plan encode@mine evaluation@mine_pairs"
    assert run in page and plan in page and "sesame study dropout" in page
    assert "corpus@mine" in journey.sesame(*plan.split()[1:])
    told = journey.sesame(*run.split()[1:])
    assert re.search(r"train: \d+ documents", told) and re.search(r"[\d,]+ pairs", told)
    told = journey.sesame("study", "dropout")
    ran = set(re.findall(r"^\[(\S+)\] done in", told, re.M))
    assert not {each for each in ran if each.startswith(("task@", "evaluation@", "corpus@", "mix@"))}, "what the study does not read"
    assert "Does dropout help a model that reads each text once? (2 seeds)" in told and "power" in told
    assert re.search(r"^without .*\n^dropout ", told, re.M) and "Against without: " in told
    page = (journey.path / "data/report/studies/dropout.html").read_text()
    assert "Expected and found" in page and "mine_pairs" in page
    # one seed more trains two models, and nothing else
    journey.write(name, smaller.replace("[1, 2]", "[1, 2, 3]"))
    ran = re.findall(r"^\[(variant@dropout-\S+)\] done in", journey.sesame("study", "dropout"), re.M)
    assert sorted(ran) == ["variant@dropout-dropout-3", "variant@dropout-without-3"]
    # text that was edited is named, and read again when asked to
    journey.write("my/0.txt", "one line more .\n\n" + (journey.path / "my/0.txt").read_text())
    others = (
        "the local files of corpus@mine have changed since it ran (edited, added or removed): "
        "`sesame run --recheck` reads them again"
    )
    assert others in journey.sesame(*run.split()[1:]) and others in journey.sesame(*plan.split()[1:])
    assert "[corpus@mine] done" in (again := journey.sesame("run", "--recheck", *run.split()[2:])) and others not in again


def follow(lab: Lab, page: str, replaced: dict[str, str]) -> dict[str, str]:
    """Do what a page of the docs says, block by block: put its YAML into params.yaml and run its commands; command -> output."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for shown, tiny in replaced.items():
        assert shown in text, f"{page} no longer says {shown}"
        text = text.replace(shown, tiny)

    def add(raw: dict, block: str) -> None:
        for section, entries in YAML(typ="safe").load(block).items():
            raw.setdefault(section, {}).update(entries)

    outputs = {}
    for kind, block in re.findall(r"^```(yaml|console)\n(.*?)^```", text, re.M | re.S):
        if kind == "yaml":
            edit(lab, partial(add, block=block))
        else:
            outputs |= {line: lab.sesame(*shlex.split(line)[1:]) for line in block.splitlines()}
    return outputs


def test_the_tutorial_of_an_own_task(journey):
    rows = [f"the {word} dog number {i} sees the river,{label}" for i in range(60) for word, label in (("good", "good"), ("old", "bad"))]
    journey.write("my/reviews.csv", "\n".join(["text,label", *rows]) + "\n")
    outputs = follow(journey, "tutorial_task.md", {"corpus: english": "corpus: tiny", "[elmo, gpt, bert]": "[gpt]"})
    assert re.search(r"train \d+, dev \d+, test \d+", outputs["sesame run task@mine"])
    assert re.search(r"^gpt +mine_probe +accuracy +[\d.]+ ± [\d.]+ +[\d.]+ +[\d.]+ \(bag of words\)", outputs["sesame run evaluate"], re.M)
    tuned = outputs["sesame run finetune baseline report"]
    assert "finetune@bert-mine" in tuned and "finetune@gpt-mine" in tuned and "baseline@mine" in tuned
    for other in ("bert:random", "logistic_regression"):
        assert re.search(r"\[[-+.\d]+, [-+.\d]+\]", outputs[f"sesame compare bert {other} mine"])


def test_the_tutorial_of_a_model_from_elsewhere(journey):
    """With the files of the lab's own BERT, as `transformers` has them."""
    journey.sesame("export", "bert", "--out", "my/bert")
    edit(journey, put("evaluations.pairs", {"kind": "minimal_pairs", "corpus": "tiny"}))
    edit(journey, put("adapt.recipes.linear_probe", tiny_params()["finetune"]["recipes"]["gpt"] | {"method": "linear_probe"}))
    small = {"[gpt, bert, published]": "[bert, published]", "[pairs, pairs_core]": "[pairs]", "tasks: [snli]": "tasks: [same]"}
    outputs = follow(journey, "tutorial_model.md", small | {"--corpus english": "--corpus tiny", "*play*": "*dog*"})
    [filled] = [output for command, output in outputs.items() if "generate" in command]
    assert re.search(r"^the old(?! \[MASK\]) ?\S+ lives near the river \.$", filled, re.M)  # a piece may go on with the word before
    asked = outputs["sesame run evaluate report"]
    score = r" +pairs +accuracy +([\d.]+ ± [\d.]+) "
    assert re.search(rf"^bert{score}", asked, re.M)[1] == re.search(rf"^published{score}", asked, re.M)[1], "the same model"
    assert "adapt@published-linear_probe-same" in outputs["sesame run adapt report"]
    assert (journey.path / "data/attention/published.html").exists() and (journey.path / "my/exported/config.json").exists()
