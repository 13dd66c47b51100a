"""The lock file: as DVC writes it, whole whatever stops DVC, and no entry lost."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml

from components.core.errors import SesameError
from pipelines import profiles
from pipelines.execution import lockfile
from pipelines.execution.graph import lock_entries

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("committed", ["dvc.lock", "studies/dvc.lock"])
def test_text_of_an_entry_is_what_dvc_writes(committed, tmp_path):
    text = (ROOT / committed).read_text(encoding="utf-8")
    recorded, lines = load_yaml(ROOT / committed)["stages"], lockfile.read(ROOT / committed)
    assert list(lines) == list(recorded)
    for name in list(recorded)[::10]:
        assert lockfile.entry(name, recorded[name]) == lines[name]
    lockfile.write(tmp_path / "dvc.lock", lines)
    assert (tmp_path / "dvc.lock").read_text(encoding="utf-8") == text
    some = list(recorded)[1]
    assert lockfile.entries(ROOT / committed, [some, "no such stage"]) == {some: recorded[some]}


def test_editing_params_leaves_the_form_of_entries():
    before = lockfile.entry("a", {"cmd": "x", "params": {"seed": None}})
    edited = io.StringIO()
    profiles.editor().dump({"seed": None}, edited)
    assert edited.getvalue() == "seed:\n", "as DVC writes it"
    assert lockfile.entry("a", {"cmd": "x", "params": {"seed": None}}) == before


@pytest.mark.parametrize(
    "text",
    [
        "schema: '2.0'\nstages:\n  a:\n    cmd: x\n  # by hand\n  b:\n    cmd: y\n",
        "schema: '2.0'\nstages:\n  a:\n    cmd: x\ndatasets: []\n",
        "stages:\n  a:\n    cmd: x\n",
        "schema: '2.0'\nstages:\n  a: {cmd: x}\n",
    ],
    ids=["a comment", "another section", "another order", "flow style"],
)
def test_file_of_another_form_is_left_to_dvc(text, tmp_path):
    path = tmp_path / "dvc.lock"
    path.write_text(text, encoding="utf-8")
    assert lockfile.read(path) is None
    assert lockfile.entries(path)["a"] == {"cmd": "x"}


@pytest.mark.parametrize("committed", [True, False])
def test_a_file_that_was_cut_off_is_not_taken_for_good(inside, committed):
    """Wherever the cut is, but between two entries; where git has the file, and where the last stages were run since."""
    path = Path("dvc.lock")
    if committed:
        text = lockfile.HEAD + "".join(list(lockfile.plain(ROOT / path).values())[:5])
        path.write_text((ROOT / path).read_text(encoding="utf-8"))
        subprocess.run(["git", "add", "-f", "dvc.lock"], check=True)
        subprocess.run(["git", "commit", "-qm", "lock"], check=True)
        cuts = {*range(0, len(text), 997), *(i + 1 for i, character in enumerate(text) if character == "\n")}
        within = [i for i in sorted(cuts) if len(lockfile.HEAD) < i < len(text) and not lockfile.ENTRY.match(text, i)]
    else:
        text = lockfile.HEAD + lockfile.entry("a", {"cmd": "x", "deps": [{"path": "in", "hash": "md5", "md5": "f" * 32}]})
        within = [i for i in range(len(text) - 1) if text[i - 1] != "\n"] + [text.index("      hash"), text.index("      md5")]
    for i in within[:: 1 + len(within) // 100]:
        path.write_text(text[:i])
        with pytest.raises(SesameError, match=rf"dvc.lock is cut off after {i:,} .*`git checkout HEAD -- dvc.lock`"):
            lockfile.check(path)
    path.write_text("")
    with pytest.raises(SesameError, match="dvc.lock is cut off after 0 "):
        lockfile.check(path)
    for whole in (text, lockfile.HEAD + "# by hand\n" + text.removeprefix(lockfile.HEAD)):
        path.write_text(whole)
        lockfile.check(path)


@pytest.mark.parametrize("name", ["dvc.lock", "studies/dvc.lock"])
def test_commands_say_so_in_a_line(bare, name):
    bare.stages("  a: {cmd: echo 1 > a.out, outs: [a.out]}\n")
    entry = lockfile.entry("a", {"cmd": "x", "outs": [{"path": "in", "hash": "md5", "md5": "f" * 32}]})
    for damaged, said in (
        (lockfile.HEAD + entry[:-3], f"sesame: {name} is cut off after "),
        (
            f"<<<<<<< HEAD\n{lockfile.HEAD}{entry}=======\n>>>>>>> b\n",
            f"sesame: {name} has a merge conflict: in a merge take one side",
        ),
    ):
        bare.write(name, damaged)
        for command in ("plan", "run"):
            output = bare.sesame(command, code=1)
            assert said in output and f"`git checkout HEAD -- {name}`" in output and output.count("\n") == 1


@pytest.mark.parametrize("form", ["as DVC writes it", "by hand"])
def test_flow_records_stages_beside_those_of_other_pipelines(inside, form):
    inside.stages(
        "  a:\n    cmd: echo 1 > a.out\n    outs: [a.out]\n  b:\n    cmd: cat a.out > b.out\n    deps: [a.out]\n    outs: [b.out]\n"
    )
    kept = "  elsewhere:\n    cmd: 'true'\n"
    Path("dvc.lock").write_text(f"schema: '2.0'\n{'# kept by hand' if form == 'by hand' else ''}\nstages:\n{kept}".replace("\n\n", "\n"))
    done = subprocess.run([sys.executable, "-m", "pipelines.execution.lockfile", "repro", "-q"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert lock_entries().keys() == {"elsewhere", "a", "b"}
    plain = Path("dvc.lock").read_text()
    Path("dvc.lock").unlink()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], check=True)
    assert plain.replace("# kept by hand\n", "").replace(kept, "") == Path("dvc.lock").read_text()


def test_dvc_stopped_while_it_writes_loses_nothing(inside):
    """In place, half of the file would be left, which is good YAML."""
    inside.stages("  a:\n    cmd: echo 1 > a.out\n    outs: [a.out]\n")
    many = {f"s{i}": lockfile.entry(f"s{i}", {"cmd": "true", "outs": [{"path": f"{i}.out", "md5": "f" * 32}]}) for i in range(400)}
    lockfile.write(Path("dvc.lock"), many)
    script = "import os, pathlib, pipelines.execution.lockfile as f; pathlib.Path.replace = lambda *_: os._exit(9); f._dvc()"
    stopped = subprocess.run([sys.executable, "-c", script, "repro", "-q"], capture_output=True)
    assert stopped.returncode == 9
    assert lockfile.read(Path("dvc.lock")) == many
    subprocess.run([sys.executable, "-m", "pipelines.execution.lockfile", "repro", "-q"], check=True)
    assert lock_entries().keys() == {*many, "a"}
    assert not Path(".dvc.lock.tmp").exists()


def test_run_cache_is_read_while_another_process_writes_it(inside):
    """DVC alone takes the other one's unfinished file for the newest entry, and removes it as corrupted: that process fails."""
    inside.stages("  a:\n    cmd: echo 1 > a.out\n    deps: [in]\n    outs: [a.out]\n").write("in", "1")
    repro = [sys.executable, "-m", "pipelines.execution.lockfile", "repro"]
    subprocess.run(repro, check=True, capture_output=True)
    (entry,) = (path for path in Path(".dvc/cache/runs").glob("*/*/*") if path.is_file())
    unfinished = entry.with_name(".of_another_process.tmp")
    unfinished.touch()
    for path in ("a.out", "dvc.lock"):
        Path(path).unlink()
    done = subprocess.run(repro, check=True, capture_output=True, text=True)
    assert "Stage 'a' is cached - skipping run" in done.stdout and unfinished.exists() and Path("a.out").read_text() == "1\n"


def test_own_run_is_found_where_the_lock_file_is_of_another_machine(inside):
    """As after `git pull`: its outputs are not here, and DVC alone runs the stage again."""
    inside.stages("  a:\n    cmd: echo run >> runs && echo 1 > a.out\n    deps: [in]\n    outs: [a.out]\n").write("in", "1")
    repro = [sys.executable, "-m", "pipelines.execution.lockfile", "repro"]
    subprocess.run(repro, check=True, capture_output=True)
    own = Path("dvc.lock").read_text()
    [(name, entry)] = lock_entries().items()
    Path("dvc.lock").write_text(own.replace(entry["outs"][0]["md5"], "f" * 32))
    done = subprocess.run(repro, check=True, capture_output=True, text=True)
    assert "Stage 'a' is cached - skipping run" in done.stdout and Path("runs").read_text() == "run\n"
    assert Path("dvc.lock").read_text() == own and Path("a.out").read_text() == "1\n"
    Path("dvc.lock").write_text(own.replace(entry["outs"][0]["md5"], "f" * 32))
    Path("in").write_text("2")
    subprocess.run(repro, check=True, capture_output=True)
    assert Path("runs").read_text() == "run\n" * 2, "no run with these inputs"
