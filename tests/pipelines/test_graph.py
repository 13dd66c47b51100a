"""The plan is DVC's graph and nothing else."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components import params
from components.core import storage
from components.core.errors import SesameError
from pipelines import cli
from pipelines.execution import graph, lockfile, repository, staleness, trace
from tests.pipelines.conftest import ROOT
from tests.waiting import until

DIAMOND = """
  side: {cmd: echo > side.out, outs: [side.out]}
  data: {cmd: echo > data.out, outs: [data.out], desc: Fetch}
  train:
    foreach: [a, b]
    do: {cmd: "cat data.out > ${item}.out", deps: [data.out], outs: ["${item}.out"], meta: {resource: cpu, timeout: 5, retries: 1}}
  score: {cmd: cat a.out > score.out, deps: [a.out], outs: [score.out]}
  report: {cmd: cat score.out b.out side.out > report.out, deps: [score.out, b.out, side.out], outs: [report.out]}
"""


def names(*targets: str) -> list[str]:
    return [stage.name for stage in graph.plan(targets)]


def test_order(inside):
    inside.stages(DIAMOND)
    plan = graph.plan()
    assert [stage.name for stage in plan] == ["data", "train@a", "train@b", "score", "side", "report"]  # the longest chain leads
    meta = graph.Meta(retries=1, timeout=5, resource="cpu")
    assert plan[1] == graph.Stage("train@a", ("data",), "", meta, cmd="cat data.out > a.out", outs=("a.out",))
    assert plan[0].desc == "Fetch"
    assert plan[-1].upstream == ("score", "side", "train@b")


def test_what_took_long_comes_first(inside):
    """By the metrics that lie here; a damaged file is another stage's trouble."""
    inside.stages(DIAMOND)
    storage.write_json(Path("data/metrics/train/b.json"), {"cost": {"seconds": 500.0}})
    assert names() == ["data", "train@b", "train@a", "score", "side", "report"]
    for damaged in ("{", "[]", '{"cost": {"seconds": null}}'):
        Path("data/metrics/train/b.json").write_text(damaged)
        assert names() == ["data", "train@a", "train@b", "score", "side", "report"]


def test_targets(inside):
    inside.stages(DIAMOND)
    assert names("score") == ["data", "train@a", "score"]
    assert names("train") == ["data", "train@a", "train@b"]
    assert names("train@b", "side") == ["data", "train@b", "side"]


def test_unknown_target_names_close_ones(inside):
    inside.stages(DIAMOND)
    with pytest.raises(SesameError, match="no stage 'trian@a' in dvc.yaml .*train@a"):
        names("trian@a")
    with pytest.raises(SesameError, match="evaluate: nothing to do, as params.yaml names nothing for it"):
        names("evaluate")


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("  a: {cmd: x, outs: [a], deps: [a2]}\n  b: [1", "dvc.yaml"),
        ("  a: {command: x}", "dvc.yaml"),
        ("  a: {cmd: x, deps: [b], outs: [c]}\n  b: {cmd: x, deps: [c], outs: [b]}", "both a dependency and an output"),
        ("  a: {cmd: x, outs: [c]}\n  b: {cmd: x, outs: [c]}", "output 'c' is specified in"),
        ("  a: {cmd: 'x ${nothing}'}", "nothing"),
        (
            "  a: {foreach: '${tickets}', do: {cmd: x}}",
            "studies/params.yaml has no section tickets, which studies/dvc.yaml reads; add `tickets: {}` where nothing of it is wanted",
        ),
        ("  a: {cmd: x, outs: [c], meta: {timeout: soon}}", "dvc.yaml, stage a: meta.timeout: "),
        ("  a: {cmd: x, outs: [c], meta: {retry: 2}}", "dvc.yaml, stage a: meta.retry: "),
        ("  {}", "no stages"),
    ],
)
def test_a_wrong_graph_is_one_line(inside, stages, message):
    inside.stages(stages)
    with pytest.raises(SesameError, match=message) as error:
        graph.plan()
    assert "\n" not in str(error.value)


def unchanged() -> set[str]:
    return {name for name, state in staleness.states(graph.plan()).items() if state == "unchanged"}


def test_unchanged_reaches_no_further_than_a_change(inside):
    inside.stages(DIAMOND)
    assert unchanged() == set()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], check=True)
    assert unchanged() == set(names())
    (inside.path / "data.out").unlink()
    (inside.path / "data.out").write_text("other")
    assert unchanged() == {"side"} and staleness.stale(["side", "score", "side"]) == ["score"]
    assert set(graph.hashes(graph.plan(["score"])[-1])) == {"a.out", "score.out"}
    assert graph.hashes(graph.Stage("nothing", (), "", graph.Meta())) == {}


def test_a_stage_of_the_users_own_is_traced_without_settings_and_code(inside):
    """Sesame does not declare it, so `resolve` writes nothing of it."""
    (inside.path / "script.py").write_text("one")
    inside.stages(DIAMOND.replace("cat a.out > score.out, deps: [a.out]", "cat a.out > score.out, deps: [a.out, script.py]"))
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q", "score"], check=True)
    assert [(stage.name, stage.state) for stage in trace.behind("score")] == [
        ("score", trace.CURRENT), ("train@a", trace.CURRENT), ("data", trace.CURRENT),
    ]  # fmt: skip
    (inside.path / "script.py").write_text("two")
    assert [stage.state for stage in trace.behind("score")] == [trace.CHANGED, trace.CURRENT, trace.CURRENT]
    done = CliRunner().invoke(cli.app, ["trace", "score"])
    assert done.exit_code == 0 and "wrote    score.out (" in done.output and "settings " not in done.output and "code " not in done.output


def test_a_locked_repository_is_one_line(inside):
    inside.stages(DIAMOND)
    from dvc.repo import Repo, lock_repo

    plan = graph.plan()
    with Repo() as repo, lock_repo(repo), pytest.raises(SesameError, match="DVC is at work in this checkout"):
        staleness.states(plan)


HOLD = """
import time
from pathlib import Path
from threading import Timer
from dvc.repo import Repo, lock_repo
with Repo() as repo, lock_repo(repo):
    Path("held").touch()
    while not Path("enough").exists():
        time.sleep(0.05)
"""


def test_a_run_that_waits_waits_for_dvc_too(inside):
    """As a scheduled one does, where a `dvc` of the user's is at work."""
    inside.stages(DIAMOND)
    holder = subprocess.Popen([sys.executable, "-c", HOLD])
    until(Path("held").exists)
    with pytest.raises(SesameError, match="DVC is at work in this checkout"), repository.at_once():
        pass
    Timer(2, Path("enough").touch).start()
    with repository.at_once(wait=True):
        assert Path("enough").exists() and graph.plan()
    assert holder.wait() == 0


def test_a_checkpoint_is_a_model_like_others(inside):
    """Without one the group is empty; one that is declared is what its fine-tuning waits for."""
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    yaml = YAML()
    raw = yaml.load(Path("params.yaml"))
    raw["checkpoints"], raw["adapt"]["models"] = {}, []
    yaml.dump(raw, Path("params.yaml"))
    assert not any(stage.name.startswith("checkpoint") for stage in graph.plan())
    raw["checkpoints"]["outside"] = {"family": "encoder", "licence": "none", "source": {"kind": "files", "paths": ["x/*"]}}
    raw["finetune"]["models"], raw["finetune"]["recipes"]["outside"] = ["outside"], dict(raw["finetune"]["recipes"]["bert"])
    yaml.dump(raw, Path("params.yaml"))
    params.load()
    task = raw["finetune"]["tasks"][0]
    found = {stage.name: stage for stage in graph.plan([f"finetune@outside-{task}"])}
    assert set(found[f"finetune@outside-{task}"].upstream) == {"checkpoint@outside", f"task@{task}", "resolve"}


def test_away_the_lock_file_alone_says_what_is_stale(inside):
    """Data that is not here, or lies here from before, says nothing; what is not data does."""
    inside.stages("  a: {cmd: cat in in > a.out, deps: [in], outs: [a.out]}\n  b: {cmd: cp a.out b.out, deps: [a.out], outs: [b.out]}\n")
    inside.write("in", "1")
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], check=True)

    def states() -> dict[str, str]:
        return staleness.states(graph.plan(), away=True)

    assert states() == {"a": "unchanged", "b": "unchanged"}
    (inside.path / "a.out").unlink()
    (inside.path / "b.out").unlink()
    (inside.path / "b.out").write_text("of another time")
    assert states() == {"a": "unchanged", "b": "unchanged"}
    shutil.copy("dvc.lock", "before")
    lines = lockfile.plain(Path("dvc.lock"))
    md5 = graph.hashes(graph.plan()[0])["a.out"]
    lockfile.write(Path("dvc.lock"), lines | {"a": lines["a"].replace(md5, "ab" * 16)})  # made anew on another machine
    assert states() == {"a": "unchanged", "b": "to run"}
    shutil.copy("before", "dvc.lock")
    inside.write("in", "2")
    assert states() == {"a": "to run", "b": "may run"}


def test_what_a_stage_reads_of_others(inside):
    """Not all that they have written, and nothing that git keeps."""
    inside.stages(
        "  a: {cmd: x, outs: [d/one, d/two, e/three, {f: {cache: false}}]}\n  b: {cmd: x, deps: [d, e/three, f], outs: [b.out]}\n"
        "  c: {cmd: x, outs: [big]}\n"
    )
    [a, b] = graph.plan(["b"])
    with repository.opened() as repo:
        read = graph.read_from(repo, b, [a])
        assert {str(Path(path).relative_to(inside.path)) for path in read} == {"d/one", "d/two", "e/three"}
        assert graph.read_from(repo, a, []) == []
    assert graph.reads_what_git_keeps([a, b]) == {"b"} and graph.folders([a, b]) == ["a"]


def test_a_command_of_another_checkout_says_so(inside):
    inside.write("pipelines/flow.py", "")
    shown = CliRunner().invoke(cli.app, ["profile"])
    assert (
        not shown.exit_code
        and (f"and runs the code there, not the code in {inside.path}; `make install`") in shown.stderr
    )
    assert shown.stderr.count("\n") == 1
    (inside.path / "pipelines/flow.py").unlink()
    assert not CliRunner().invoke(cli.app, ["profile"]).stderr


def test_a_copy_without_its_repository_says_how_to_have_one(inside):
    """DVC's own words named the folder and no cure."""
    shutil.rmtree(".git")
    said = r"is not a git repository, and DVC needs one: `git clone` .* or `git init` here"
    with pytest.raises(SesameError, match=said), repository.opened():
        pass


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("{} plan >&-", 0, ""),  # was a traceback: `NoneType` has no `isatty`
        ("{} plan 2>&-", 0, "stages"),
        ("{} plan > /dev/full", 1, "sesame: no space is left on the disk ([Errno 28]"),  # were tracebacks
        ("ulimit -f 10; {} plan", 1, "sesame: no space is left on the disk (disk I/O error)"),
    ],
)
def test_streams_that_are_closed_or_full(bare, command, code, said):
    bare.stages(DIAMOND)
    environment = os.environ | bare.env | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = command.format(f"{sys.executable} -m pipelines.cli")
    done = subprocess.run(command, shell=True, cwd=bare.path, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") == (code > 0)


def test_a_folder_that_is_read_only_is_one_line(bare):
    bare.stages(DIAMOND)
    (bare.path / ".sesame").mkdir(exist_ok=True)
    (bare.path / ".sesame").chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "run"], cwd=bare.path, env=os.environ | bare.env | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, preexec_fn=lambda: ctypes.CDLL(None).prctl(24, 1),  # root, too, has to ask (CAP_DAC_OVERRIDE)
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("sesame: "), done.stderr
    assert ".sesame/flow.lock can't be opened (Permission denied); change its rights" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda path: path.joinpath(".sesame").touch(), "can't be used (File exists); a folder is where a file is expected"),
    (lambda path: path.joinpath("dvc.yaml").unlink(), "dvc.yaml: no such file; run from the project's folder, or bring it back"),
])  # fmt: skip
def test_what_stands_in_the_place_of_another_is_one_line(bare, spoil, said):
    bare.stages(DIAMOND)
    shutil.rmtree(bare.path / ".sesame", ignore_errors=True)
    spoil(bare.path)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "run", "data"], cwd=bare.path, env=os.environ | bare.env | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_no_git_is_one_line(inside, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = CliRunner().invoke(cli.app, ["exp", "diff", "other"])
    assert done.exit_code == 1 and "git is not in PATH" in str(done.exception)


@pytest.mark.parametrize("command", [["generate", "gpt", "caf\udce9"], ["exp", "run", "-S", "seed=caf\udce9"]])
def test_an_argument_in_latin_1_is_one_line(lab, monkeypatch, command):
    """As a shell passes on the byte 0xe9, which Python makes half of a surrogate pair of."""
    monkeypatch.chdir(lab.path)
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 1 and "is not UTF-8 (byte 0xe9 at" in done.output and done.output.count("\n") == 1


@pytest.mark.parametrize("name", ["data", "data/models"])
def test_a_folder_of_data_that_is_a_link_is_one_line_with_its_cure(inside, name):
    """DVC itself says that a path is outside of git's repository, once a stage has run."""
    inside.stages(DIAMOND)
    Path("disk").mkdir()
    Path(name).parent.mkdir(exist_ok=True)
    shutil.rmtree(name, ignore_errors=True)
    Path(name).symlink_to(Path("disk").resolve())
    with (
        pytest.raises(
            SesameError,
            match=rf"{name} is a link to .*/disk, and DVC .*: replace the link by the folder \(`rm {name} && mv",
        ),
        repository.at_once(),
    ):
        pass
    Path(name).unlink()
    Path(name).mkdir()
    with repository.at_once():
        assert "data" in names()
