"""Worktree runs end to end: real git worktrees, DVC, Prefect, MLflow and child processes."""

import hashlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from dvc.config import Config

from components.core.errors import SesameError
from pipelines.worktrees import overrides, worktree
from tests.pipelines.conftest import BIN, ROOT, Lab

pytestmark = pytest.mark.long

STAGES = """
  base: {cmd: cat in > base.out, deps: [in], outs: [base.out]}
  score:
    cmd: python score.py
    deps: [base.out, score.py]
    params: [seed, energy.pue]
    outs: [score.out]
    metrics: [metrics.json: {cache: false}]
"""
STUDIES = """
stages:
  long:
    foreach: [a]
    do: {wdir: .., cmd: cat in > long.out, deps: [in], outs: [long.out]}
"""
SCORE = """
import json, os, sys, time
from pathlib import Path
from ruamel.yaml import YAML
params = YAML(typ="safe").load(Path("params.yaml"))
seed = params["seed"]
if Path(os.environ.get("BEGUN", "no")).exists():
    (Path(os.environ["BEGUN"]) / str(seed)).write_text(str(os.getpid()))
    time.sleep(9999)
if seed == 13:
    sys.exit("score: an unlucky number")
Path("score.out").write_text(Path("base.out").read_text() * 1000 + str(seed))
Path("metrics.json").write_text(json.dumps({"score": seed * params["energy"]["pue"], "in": Path("base.out").read_text()}))
"""


def git(lab: Lab, *args: str) -> str:
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(["git", *args], cwd=lab.path, check=True, capture_output=True, text=True, env=env).stdout


def dvc(lab: Lab, *args: str) -> str:
    done = subprocess.run([BIN / "dvc", *args], cwd=lab.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(lab: Lab, name: str) -> None:
    """Take an experiment over. DVC complains of stages that were never run, when it has done all the rest."""
    done = subprocess.run([BIN / "dvc", "exp", "apply", name], cwd=lab.path, capture_output=True, text=True)
    assert done.returncode == 0 or re.search(r"Checkout failed for following targets:\nlong.out\nIs your", done.stderr), done.stderr


def experiments(lab: Lab) -> dict[str, dict]:
    """Name -> its entry in `dvc exp show --json`."""
    shown = json.loads(dvc(lab, "exp", "show", "--json"))
    return {rev["name"]: rev["data"] for entry in shown for exp in entry["experiments"] or [] for rev in exp["revs"]}


def tree(lab: Lab) -> dict[str, str]:
    """Hash of all that is the user's: every file but the ledger, working state and DVC's cache, and what git says of them."""
    ours = (
        ".sesame", ".dvc/tmp", ".dvc/cache", ".git/objects", ".git/refs/exps", ".git/logs", ".git/worktrees", "mlflow.db", "mlartifacts",
    )  # fmt: skip
    found = {"status": git(lab, "status", "--porcelain"), "stash": git(lab, "stash", "list"), "branches": git(lab, "branch", "-a")}
    for path in lab.path.rglob("*"):
        name = str(path.relative_to(lab.path))
        if path.is_file() and not name.startswith(ours):
            # DVC lays its own stash on the user's and takes it off
            untouched = "" if name.startswith(".git/") else str(path.stat().st_mtime_ns)
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() + untouched
    return found


@pytest.fixture
def ready(lab) -> Lab:
    """A lab with a pipeline that has run once and is committed, and a second one that has not."""
    lab.stages(STAGES).write("studies/dvc.yaml", STUDIES).write("in", "1").write("score.py", SCORE)
    lab.sesame("run")
    git(lab, "add", "-A")
    git(lab, "commit", "-qm", "first")
    return lab


def left(lab: Lab) -> list[str]:
    assert len(git(lab, "worktree", "list").splitlines()) == 1 + len(os.listdir(lab.path / ".sesame/worktrees"))
    return sorted(os.listdir(lab.path / ".sesame/worktrees"))


def works_in(lab: Lab) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        if (process.info["cwd"] or "").startswith(str(lab.path)) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_four_lanes_leave_the_tree_as_it_was(ready, many_stages):
    """Uncommitted changes are carried, and four experiments come out that DVC and MLflow show."""
    lab = ready
    lab.write("score.py", SCORE + "# stashed\n")
    git(lab, "stash")
    lab.write("in", "22").write("notes.txt", "not for a worktree run").write("addé.txt", "a new file that git knows")
    git(lab, "add", "addé.txt")
    before = tree(lab)
    output = lab.sesame("exp", "sweep", "-S", "seed=2,3", "-S", "energy.pue=1.0,2.0", "--jobs", "4", SESAME_TRACKING="")
    print(output)
    assert tree(lab) == before and left(lab) == [] and works_in(lab) == []
    assert (
        "4 worktree runs, 4 at a time" in output
        and ("uncommitted changes that are included: addé.txt, in\n") in output
    )
    assert "not included, as git does not have them: notes.txt; `git add`" in output
    assert len(re.findall(r"^\[\S+\] ready after ", output, re.M)) == 4 and len(re.findall(r" done +[\d.]+ +[\d.]+ *$", output, re.M)) == 4

    found = experiments(lab)
    assert set(found) == {f"seed={seed},energy.pue={pue}" for seed in (2, 3) for pue in ("1.0", "2.0")}
    scores = {name: entry["metrics"]["metrics.json"]["data"] for name, entry in found.items()}
    assert scores["seed=3,energy.pue=2.0"] == {"score": 6.0, "in": "22"}
    assert found["seed=2,energy.pue=1.0"]["params"]["params.yaml"]["data"]["seed"] == 2

    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{lab.path}/mlflow.db")
    runs = mlflow.search_runs(experiment_names=["sesame"], output_format="list")
    tags = {run.info.run_name: run.data.tags for run in runs}
    assert {name: (tags[name]["experiment"], tags[name]["override.seed"]) for name in found} == {name: (name, name[5]) for name in found}
    assert all(run.info.artifact_uri.startswith(f"file://{lab.path}/mlartifacts") for run in runs)

    assert "seed" in dvc(lab, "exp", "diff", "seed=2,energy.pue=1.0", "seed=3,energy.pue=1.0")
    apply(lab, "seed=3,energy.pue=1.0")
    assert json.loads(lab.read("metrics.json"))["score"] == 3.0 and lab.read("score.out") == "22" * 1000 + "3"
    assert lab.read("in") == "22" and lab.read("addé.txt") and lab.read("notes.txt") == "not for a worktree run"
    assert "2 cached, 0 done" in lab.sesame("run")


def test_a_failing_lane_stays_and_costs_no_other(ready, many_stages):
    lab = ready
    lab.write(".sesame/experiments/seed=13.html", "of an earlier experiment of this name")
    output = lab.sesame("exp", "sweep", "-S", "seed=13,4", "--jobs", "2", code=1)
    assert "report   " not in output
    assert re.search(r"^seed=13 +seed=13 +failed ", output, re.M) and re.search(r"^seed=4 +seed=4 +done ", output, re.M)
    assert "seed=13 failed: [score] failed: an unlucky number" in output and "sesame exp clean" in output
    assert set(experiments(lab)) == {"seed=4"} and left(lab) == ["seed=13"]
    log = lab.read(".sesame/worktrees/seed=13/.sesame/run.log")
    assert "an unlucky number" in log and "2 stages: 1 cached, 0 done, 1 failed" in log, "what is unchanged comes from the cache"
    assert (lab.path / ".sesame/worktrees/seed=13/base.out").stat().st_nlink > 1, "and is no second copy"
    assert re.search(r"^seed=13 +failed +seed=13 +[\d.]+ +\[score\] failed: an unlucky number", lab.sesame("exp", "list"), re.M)
    assert ("a worktree run seed=13 exists (failed): run `sesame exp clean seed=13`") in lab.sesame(
        "exp", "run", "-S", "seed=13", code=1
    )
    assert "no worktree run 'seed=4' (there are: seed=13)" in lab.sesame("exp", "clean", "seed=4", code=1)
    assert re.search(r"removed seed=13: [\d.]+ MiB\n[\d.]+ MiB freed", lab.sesame("exp", "clean")) and left(lab) == []
    assert lab.sesame("exp", "clean") == "nothing to remove\n"
    assert "experiment seed=4 exists: `dvc exp remove seed=4` first" in lab.sesame("exp", "run", "-S", "seed=4", code=1)
    assert re.search(r"^mine +seed=4 +done", lab.sesame("exp", "run", "-S", "seed=4", "-n", "mine"), re.M)


def test_local_text_is_read_where_it_lies(ready, many_stages):
    """A `files` source may name text that git does not have; it is no part of the experiment."""
    lab = ready
    (lab.path / "local").mkdir()
    lab.write("local/a.txt", "my text").stages(STAGES.replace("cat in >", "cat in local/a.txt >"))
    setting = "corpora.general_en.parts.0.source={kind: files, paths: [local/*.txt]}"
    output = lab.sesame("exp", "run", "-S", setting, "-n", "mine")
    assert "not included" not in output and list(experiments(lab)) == ["mine"] and left(lab) == []
    [ref] = git(lab, "for-each-ref", "--format=%(refname)", "refs/exps/**/mine").split()
    assert "local" not in git(lab, "ls-tree", "-r", "--name-only", ref) and lab.read("local/a.txt") == "my text"
    apply(lab, "mine")
    assert lab.read("base.out") == "1my text" and lab.read("local/a.txt") == "my text"


def begun(lab: Lab, tmp_path: Path, seeds: list[int], *args: str) -> subprocess.Popen:
    """A `sesame exp` whose stages have begun and would not end."""
    signs = tmp_path / "begun"
    signs.mkdir()
    process = lab.start("exp", *args, BEGUN=str(signs))
    lab.until(lambda: {path.name for path in signs.iterdir() if path.read_text()} == set(map(str, seeds)))
    return process


def test_a_killed_lane_is_listed_and_cleaned(ready, many_flows, tmp_path):
    """Killed without a word: first its flow, then the command itself. No process stays."""
    lab = ready
    process = begun(lab, tmp_path, [5, 6], "sweep", "-S", "seed=5,6", "--jobs", "2")
    assert len(re.findall(r"^seed=[56] +running", lab.sesame("exp", "list"), re.M)) == 2
    assert "worktree run seed=5 is running" in lab.sesame("exp", "clean", "seed=5", code=1)
    assert lab.sesame("exp", "clean") == "nothing to remove\n"
    [flow] = [p for p in works_in(lab) if "pipelines.cli" in p.cmdline() and p.cwd().endswith("seed=5")]
    flow.kill()
    stage = int((tmp_path / "begun/5").read_text())
    lab.until(lambda: not psutil.pid_exists(stage))
    lab.until(lambda: re.search(r"^seed=5 +crashed .*killed by signal 9", lab.sesame("exp", "list"), re.M))
    process.kill()
    process.communicate()
    assert re.search(r"^seed=6 +crashed .*its `sesame exp` process no longer exists", lab.sesame("exp", "list"), re.M)
    assert len(re.findall(r"removed seed=[56]", lab.sesame("exp", "clean"))) == 2
    assert works_in(lab) == [] and left(lab) == [] and experiments(lab) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_lanes(ready, many_flows, tmp_path, number):
    lab = ready
    before = tree(lab)
    process = begun(lab, tmp_path, [7, 8], "sweep", "-S", "seed=7,8,9", "--jobs", "2")
    process.send_signal(number)
    output = lab.ended(process, code=130)
    assert len(re.findall(r"^seed=[789] .* stopped ", output, re.M)) == 3 and "stopping the worktree runs" in output
    assert works_in(lab) == [] and left(lab) == [] and tree(lab) == before and experiments(lab) == {}


def test_what_cannot_be_run_is_said_before_a_lane_starts(ready):
    lab = ready

    def refused(*args: str) -> str:
        output = lab.sesame("exp", *args, code=1)
        assert len(output.splitlines()) == 1, output
        assert not (lab.path / ".sesame/worktrees").exists() or left(lab) == []
        return output.removeprefix("sesame: ").rstrip()

    assert refused("run", "-S", "models.brt.optimizer.learning_rate=1") == (
        "-S models.brt.optimizer.learning_rate: no 'brt' in models (there are: bert, gpt, elmo)"
    )
    (lab.path / "studies").mkdir(exist_ok=True)
    lab.write("studies/params.yaml", "search: {}\n")
    assert refused("run", "-S", "search.budget=1") == (
        "-S search.budget: search is in the files of studies/, and -S sets keys of params.yaml; edit it there"
    )
    assert refused("sweep", "-S", "seed=1,abc").startswith("-S seed=abc: seed: Input should be a valid integer")
    assert refused("run", "-S", "seed=2", "-n", "HEAD") == "HEAD is a branch, a tag or a commit: choose another name"
    lab.stages(STAGES.replace("score.py]", "score.py, helper.py]")).write("helper.py", "")
    assert refused("run", "-S", "seed=2") == "stages need files that git does not have (helper.py): `git add` them"


def variants(*settings: str, **options) -> list[overrides.Variant]:
    return overrides.variants(settings, (ROOT / "params.yaml").read_text(), **options)


def test_names_are_made_from_values():
    def names(*settings: str) -> list[str]:
        return [variant.name for variant in variants(*settings, sweep=True)]

    rates = ["bert.optimizer.learning_rate=0.001", "bert.optimizer.learning_rate=0.01"]
    assert names("models.bert.optimizer.learning_rate=1e-3,0.01") == rates
    assert names("finetune.seeds=[1, 2],[3]") == names("finetune.seeds=[1,2],[3]")
    assert all(overrides.NAME.fullmatch(name) for name in names("finetune.seeds=[1],[2]", "corpora.general_en.licence=free,'~^:.lock'"))
    assert len(variants("seed=2,3", "energy.pue=1,2,3", sweep=True)) == 6


@pytest.mark.parametrize(
    "key, value", [
        ("models.bert.trainer.threads", 2), ("models.gpt.trainer.threads", 2), ("models.elmo.trainer.threads", 2),
        ("tasks.stsb.train.source.project", "x"), ("corpora.general_en.parts.0.max_words", 9),
    ],
)  # fmt: skip
def test_an_anchor_ties_no_other_value(key, value):
    """What shares a block with the one that is set keeps its value, and comments stay."""
    from ruamel.yaml import YAML

    from components.core.mlflow_values import flatten

    [variant] = variants(f"{key}={value}")

    def flat(text: str) -> dict:
        raw = YAML(typ="safe").load(text)
        for block in raw["corpora"].values():
            block["parts"] = dict(enumerate(block["parts"]))
        return flatten(raw)

    old, new = flat((ROOT / "params.yaml").read_text()), flat(variant.text)
    new = {str(k): v for k, v in new.items()}
    assert {k for k in old.keys() | new.keys() if old.get(k) != new.get(k)} == {key} and new[key] == value
    assert variant.text.count("#") == (ROOT / "params.yaml").read_text().count("#")


@pytest.mark.parametrize("settings, said", [
    (["seed"], "write key=value"), (["seed=1", "seed=2"], "set twice"), (["seed=[1"], "not valid YAML"), (["seed.x=1"], "no 'x' in seed"),
    (["models.bert.optimizer.lr=1"], "unknown key"),
    (["models.gpt.prompts.\u00b2=x"], "prompts"),  # a digit by `isdigit`, and no number
])  # fmt: skip
def test_a_wrong_setting_is_one_clear_line(settings, said):
    with pytest.raises(SesameError, match=re.escape(said)) as error:
        variants(*settings)
    assert "\n" not in str(error.value)


def test_what_git_tells_a_hook_leads_no_lane_to_the_users_index(ready):
    """As in a hook of a linked worktree, or below `git rebase --exec`: git's own variables say where to work."""
    ready.write("in", "2")
    git(ready, "add", "in")
    before = git(ready, "diff", "--cached"), git(ready, "status", "--porcelain")
    place = {"GIT_DIR": str(ready.path / ".git"), "GIT_INDEX_FILE": str(ready.path / ".git/index")}
    ready.sesame("exp", "run", "-S", "seed=5", **place)
    assert (git(ready, "diff", "--cached"), git(ready, "status", "--porcelain")) == before
    assert experiments(ready)["seed=5"]["metrics"]["metrics.json"]["data"]["in"] == "2" and not left(ready)


def test_a_checkout_may_stand_under_a_path_of_any_letters(tmp_path, monkeypatch):
    folder = tmp_path / "José #1" / "lab"
    (folder / ".sesame/worktrees/own/.dvc").mkdir(parents=True)
    monkeypatch.chdir(folder)
    as_it_is = Config(folder / ".sesame/worktrees/own/.dvc").load_one("local")
    worktree.share(folder / ".sesame/worktrees/own", as_it_is, str(folder / ".dvc/cache"))
    config = Config(folder / ".sesame/worktrees/own/.dvc").load_one("local")
    assert config["cache"]["dir"] == str(folder / ".dvc/cache")
    assert config["core"]["site_cache_dir"] == str(folder / ".sesame/worktrees/own/.dvc/tmp/site")
