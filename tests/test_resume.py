"""What a killed pre-training or search left is taken up by the very same work only: its params, its data, its code."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from components import params
from components.pretrain.training import checkpoint_folder
from components.search.journal import Journal
from tests.conftest import tiny_params

ROOT = Path(params.__file__).parents[2]


@pytest.fixture
def own_code(project) -> Path:
    """The tiny project with a copy of the code that may be changed."""
    (project / "components").unlink()
    shutil.copytree(ROOT / "components", project / "components", ignore=shutil.ignore_patterns("__pycache__"))
    return project


def stage_of(file: str, name: str) -> dict:
    found = YAML(typ="safe").load(ROOT / file)["stages"][name]
    return found.get("do", found)


def changed(files: list[Path], place: Callable[[], Path]) -> list[Path]:
    """Those of the files with which `place` changes."""
    found = []
    for file in files:
        before, content = place(), file.read_bytes()
        file.write_bytes(content + b"\n")
        if place() != before:
            found.append(file)
        file.write_bytes(content)
        assert place() == before
    return found


def code_of(stage: dict) -> list[Path]:
    """The modules that DVC holds a stage's result to depend on."""
    files = [Path(dep) for dep in stage["deps"] if dep.startswith("components/")]
    return sorted(file for dep in files for file in ([dep] if dep.is_file() else dep.glob("*.py")))


def test_a_checkpoint_is_of_one_work(own_code):
    def place(keep=(), **change) -> Path:
        return checkpoint_folder(params.check(tiny_params()).models["gpt"].model_copy(update=change), "gpt", keep)

    code = code_of(stage_of("dvc.yaml", "pretrain"))
    assert len(code) > 20 and changed(code, place) == code, "code that the weights depend on is not in the key"
    elsewhere = [Path("components/report/plots.py"), Path("components/finetune/loop.py")]
    assert not changed(elsewhere, place), "a change elsewhere would lose the work"
    meta = Path("data/encoded/tiny/meta.json")
    assert changed([meta], place) == [meta]
    assert len({place(), place(keep=[100]), place(seed=7), place(batch_size=4)}) == 4


def test_a_journal_is_of_one_search(own_code):
    def place(**change) -> Path:
        raw = tiny_params()
        raw["search"] |= {"models": ["bert"], "tasks": ["same"]} | change
        return Journal(params.check(raw), "bert", "same").folder

    Path("data/models/bert").mkdir(parents=True)
    Path("data/models/bert/model.safetensors").write_bytes(b"weights")
    code = code_of(stage_of("studies/dvc.yaml", "search"))
    assert len(code) > 20 and changed(code, place) == code, "code that a trial depends on is not in the key"
    assert not changed([Path("components/report/plots.py"), Path("components/search/page.py")], place), "a change elsewhere would lose the trials"
    data = [Path("data/models/bert/model.safetensors"), Path("data/tasks/same/dev.jsonl")]
    assert changed(data, place) == data
    assert place(budget={"trials": 9}) == place() != place(seed=7)
