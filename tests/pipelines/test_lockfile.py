"""The lock file: as DVC writes it, whole whatever stops DVC, and no entry lost."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml

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
    many = {f"s{i}": lockfile.entry(f"s{i}", {"cmd": "true", "outs": [{"path": f"{i}.out", "md5": "0" * 32}]}) for i in range(400)}
    lockfile.write(Path("dvc.lock"), many)
    script = "import os, pathlib, pipelines.execution.lockfile as f; pathlib.Path.replace = lambda *_: os._exit(9); f._dvc()"
    stopped = subprocess.run([sys.executable, "-c", script, "repro", "-q"], capture_output=True)
    assert stopped.returncode == 9
    assert lockfile.read(Path("dvc.lock")) == many
    subprocess.run([sys.executable, "-m", "pipelines.execution.lockfile", "repro", "-q"], check=True)
    assert lock_entries().keys() == {*many, "a"}
    assert not Path(".dvc.lock.tmp").exists()
