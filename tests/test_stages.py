"""Stages are declared once: dvc.yaml has a block for each declaration, which runs its module, reads its entry and writes where it says."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from components import params
from components.stages import registry
from components.stages.outputs import writer

ROOT = Path(__file__).parents[1]
PIPELINES = ("dvc.yaml", "studies/dvc.yaml")


def blocks() -> dict[tuple[str, str], dict]:
    """(file, stage) -> its block in DVC's files, `foreach` and `do` as one."""
    files = {file: YAML(typ="safe").load(ROOT / file)["stages"] for file in PIPELINES}
    return {(file, name): block.get("do", block) for file, stages in files.items() for name, block in stages.items()}


def declared() -> dict[str, set[str]]:
    """Stage -> the modules that its entries name first, on the shipped params."""
    modules = {}
    for entry in registry.entries(params.load(ROOT / "params.yaml")):
        modules.setdefault(entry.stage, set()).add(entry.modules[0].removesuffix(".__main__"))
    return modules


def test_dvc_has_the_declared_stages_and_no_other():
    names = {name for _, name in blocks()} - {"resolve"}
    inputs = {f"{stage.name}_inputs" for stage in registry.stages().values() if stage.inputs}
    assert names == {*registry.stages(), *inputs}


@pytest.mark.parametrize(("file", "name"), [key for key in blocks() if key[1] != "resolve"])
def test_a_block_runs_its_module_on_its_entry(file, name):
    block, modules = blocks()[file, name], declared()
    module, _, argument = block["cmd"].removeprefix("python -m ").partition(" ")
    if name.endswith("_inputs"):
        module, (stage, _, argument) = f"{module} {name}", argument.partition(" ")
        assert (module, stage) == (f"components.stages.inputs {name}", name)
    elif name in modules:
        assert {module} == modules[name]
    entry = re.sub(r"\$\{[^}]*\}", "*", f"data/resolved/{name}/{argument or 'all'}.json")
    assert entry in {re.sub(r"\$\{[^}]*\}", "*", dep) for dep in block["deps"]}


@pytest.mark.parametrize("stage", registry.stages().values(), ids=lambda stage: stage.name)
def test_a_block_writes_where_its_declaration_says(stage):
    """With the parts of its name in the folder's name, as a message about a missing file reads it."""
    for (_, name), block in blocks().items():
        if name == stage.name:
            listed = [out for key in ("outs", "plots", "metrics") for out in block.get(key, ())]
            written = [next(iter(out)) if isinstance(out, dict) else out for out in listed]
            folder, _, parts = stage.writes.partition("/")
            outputs = [path for path in written if path.startswith(f"data/{folder}")]
            assert outputs, f"{stage.name} writes {written}"
            if "{" in parts:
                pattern = re.sub(r"\{\d\}", r"\\$\\{[^}]*\\}", f"data/{stage.writes}")
                assert any(re.match(pattern, path) for path in outputs), outputs


def test_a_missing_file_names_the_stage_that_writes_it():
    expected = {
        "data/tokenizers/english/model": ["tokenizer@english"], "data/scores/bert/stsb/x.json": ["finetune@bert-stsb"],
        "data/adapted/a/lora/b/x": ["adapt@a-lora-b"], "data/curves/gpt.csv": ["pretrain@gpt"],
        "data/metrics/encode/all.json": ["encode@all"], "data/seeds/bert/snli/1.csv": [],
    }  # fmt: skip
    assert {path: writer(Path(path)) for path in expected} == expected
