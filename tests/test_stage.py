"""The frame of a stage: outputs whole or not at all, errors in one line, a full disk, estimated energy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from components import params, stage
from tests.conftest import tiny_params, write_raw


def test_output_is_whole_or_not_there(tmp_path):
    target = tmp_path / "a/out"
    with stage.output(target) as folder:
        folder.mkdir()
        (folder / "x").write_text("1")
        assert not target.exists()
    with pytest.raises(RuntimeError), stage.output(target) as folder:
        folder.mkdir()
        raise RuntimeError
    assert (target / "x").read_text() == "1" and [path.name for path in target.parent.iterdir()] == ["out"]


def test_undefined_is_null_and_nan_is_refused(tmp_path):
    stage.write_json(tmp_path / "m.json", {"pearson": None})
    assert json.loads((tmp_path / "m.json").read_text()) == {"pearson": None}
    with pytest.raises(ValueError):
        stage.write_json(tmp_path / "m.json", {"pearson": float("nan")})
    assert json.loads((tmp_path / "m.json").read_text()) == {"pearson": None}


def test_energy_matches_the_papers_formula():
    """Strubell et al. 2019: BERT-base, 12041.51 W for 79 h at PUE 1.58 is 1503 kWh by their formula (their table: 1507)."""
    energy = params.Energy(watts_per_core=0.000001, watts_per_gib=0.000001, watts_per_gpu=12041.51)
    assert stage.energy_kwh(energy, 79 * 3600, 0, 0, 1) == pytest.approx(1503, abs=0.5)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_raw(tmp_path)
    with open(tmp_path / "params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    (tmp_path / "components").symlink_to(Path(params.__file__).parents[1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=os.environ | {"SESAME_TRACKING": "off"})


def test_a_stage_writes_its_output_metrics_and_cost(folder):
    done = run("components.corpora", "base")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/corpus/base.json").read_text())
    assert metrics["cost"]["seconds"] > 0 and metrics["cost"]["kwh"] > 0 and Path("data/corpora/base/train.txt").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("components.corpora", "other"), "corpus@other: no 'other' under corpora in params.yaml (there are: base)"),
        (("components.tokenizer", "tiny"), "tokenizer@tiny: data/corpora/tiny/train.txt: no such file"),
        (("components.pretrain", "bert"), "pretrain@bert: data/encoded/tiny: no such encoding; run `sesame run encode@tiny` first"),
        (("components.finetune", "bert-none"), "finetune@bert-none: no such pair in finetune of params.yaml"),
    ],
)
def test_errors_are_one_line(folder, command, said):
    done = run(*command)
    assert done.returncode == 2 and done.stderr.strip().startswith(said) and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_what_may_pass_is_told_from_what_can_not(folder, monkeypatch):
    """By the exit status: the flow tries again after 75 only."""
    raw = tiny_params()
    raw["corpora"]["base"]["parts"][0]["source"] = {
        "kind": "pypi", "project": "demo", "version": "1", "filename": "demo.whl", "sha256": "0" * 64, "members": ["*"],
    }  # fmt: skip
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    done = run("components.corpora", "base")
    assert done.returncode == 75 and "can't be read (no connection)" in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_vocabulary_larger_than_the_text(folder):
    raw = tiny_params()
    raw["tokenizers"]["tiny"] |= {"vocab_size": 30000, "corpus": "base"}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    assert run("components.corpora", "base").returncode == 0
    done = run("components.tokenizer", "tiny")
    assert done.returncode == 2 and "30000 is more than the text of base supports; at most" in done.stderr, done.stderr
    assert not Path("data/tokenizers/tiny").exists() and not list(Path("data/tokenizers").glob(".*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_is_one_line_and_leaves_nothing(folder):
    raw = tiny_params()
    (folder / "raw/text.txt").write_text("\n\n".join(f"Number {i} is a sentence of its own." * 20 for i in range(8000)))
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    Path("data/corpora").mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "data/corpora"], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine mounts nothing")
    try:
        done = run("components.corpora", "base")
        left = list(Path("data/corpora").iterdir())
    finally:
        subprocess.run(["umount", "data/corpora"], check=True)
    assert done.returncode == 1 and "the disk is full" in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert left == []
