"""Overlays of params.yaml: merged with comments kept, checked before they are written; every task of the local ones is prepared."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components import params, tasks
from components.core.errors import SesameError
from components.core.tracking import Run
from components.tasks import __main__ as stage_of_tasks
from components.tasks.benchmarks import CONVENTIONS, SUBMISSIONS
from pipelines import profiles

ROOT = Path(__file__).parents[2]
DATA = ROOT / "../shared/data"

ROWS = {  # counted in the files, shared/data/README.md; None: divided from one file, whose rows are under "all"
    "cola": {"train": 8551, "dev": 1043, "test": 1063}, "sst2": {"train": 67349, "dev": 872, "test": 1821},
    "mrpc": {"train": 3668, "dev": 408, "test": 1725}, "stsb_glue": {"train": 5749, "dev": 1500, "test": 1379},
    "qqp": {"train": 21112, "dev": 2385}, "mnli": {"train": 9888, "dev": 6238, "mismatched": 1000, "ax": 1104},
    "qnli": {"train": 10475, "dev": 5463, "test": 5463}, "rte": {"train": 2490, "dev": 277, "test": 3000},
    "wnli": {"train": 635, "dev": 71, "test": 146},
    "boolq": {"train+dev": 3270, "test": 3245}, "cb": {"train": 250, "dev": 56, "test": 250},
    "copa": {"train": 400, "dev": 100, "test": 500}, "multirc": {"train": 27243, "dev": 4848, "test": 9693}, "record": {"train+dev": 64},
    "wic": {"train": 5428, "dev": 638, "test": 1400}, "wsc": {"train": 554, "dev": 104, "test": 146},
    "xquad_en": {"train+dev+test": 1190}, "wnut17": {"train": 3394, "dev": 1009, "test": 1287},
    "sst5": {"train": 8544, "dev": 1101, "test": 2210},
    "trec": {"train+dev": 5452, "test": 500}, "sick_entailment": {"train": 4500, "dev": 500, "test": 4927},
    "sick_relatedness": {"train": 4500, "dev": 500, "test": 4927}, "qnli_search": {"train+dev": 10475, "test": 5463},
}  # fmt: skip
DIAGNOSTICS = {"axb": 1104, "axg": 356}  # ride on SuperGLUE's RTE


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml"))


@pytest.mark.parametrize("name", ["glue", "superglue", "other", "glue_files", "superglue_files", "other_files"])
def test_each_fits_the_projects_params(file, name):
    before, local = file.read_text().splitlines(), name.endswith("_files")
    changes = profiles.merge(name, "." if local else None)
    checked, after = params.load(file), file.read_text()
    assert set(checked.finetune.tasks) <= set(checked.tasks) and checked.finetune.seeds == [1, 2, 3]
    assert all(f"tasks.{task}: added" in changes for task in checked.finetune.tasks)
    kept = after.splitlines()
    assert [line for line in before if line not in kept and "tasks: [" not in line and "_examples:" not in line] == []
    assert "{data}" not in after and profiles.merge(name, "." if local else None) == [
        (f"params.yaml already contains all of {name}")
    ]
    assert file.read_text() == after


@pytest.mark.parametrize("name", ["pairs_files", "babylm_files", "probes_files", "attention_files", "sentence_probes"])
def test_each_of_the_evaluations_fits_the_projects_params(file, name):
    """Each says which models it asks, since not every model can be asked everything."""
    data = "." if name.endswith("_files") else None
    changes = profiles.merge(name, data)
    checked = params.load(file)
    assert set(checked.evaluate.evaluations) <= set(checked.evaluations) and any("evaluate.models" in change for change in changes)
    assert all(checked.evaluations[own].kind for own in checked.evaluate.evaluations) and "{data}" not in file.read_text()
    assert profiles.merge(name, data) == [f"params.yaml already contains all of {name}"]


@pytest.mark.parametrize(("name", "data"), [("inverse_problems", None), ("integrals", None), ("shapes", None), ("translation_files", ".")])
def test_each_of_the_problems_has_a_model_and_is_asked_of_it(file, name, data):
    before = params.load(file)
    profiles.merge(name, data)
    checked = params.load(file)
    asked = {generation.model for key, generation in checked.generations.items() if key not in before.generations}
    assert asked == checked.models.keys() - before.models.keys()
    assert profiles.merge(name, data) == [f"params.yaml already contains all of {name}"]


@pytest.mark.parametrize(("name", "section"), [("novels_files", "histories"), ("wikipedia_files", "alignments")])
def test_each_of_the_spaces_is_of_text_that_the_profile_brings(file, name, section):
    before = params.load(file)
    profiles.merge(name, ".")
    checked = params.load(file)
    [own] = getattr(checked, section).keys() - getattr(before, section).keys()
    block = getattr(checked, section)[own]
    spaces = set(block.periods if section == "histories" else (block.source, block.target))
    assert spaces == checked.vectors.keys() - before.vectors.keys()
    assert {checked.vectors[space].corpus for space in spaces} == checked.corpora.keys() - before.corpora.keys()
    assert profiles.merge(name, ".") == [f"params.yaml already contains all of {name}"]


COVE = [f"cove_{training}" for training in ("masked", "left_to_right", "denoising", "translation", "gru")]


@pytest.mark.parametrize(
    ("name", "models"),
    [("images_files", ["image_gpt", "image_bert"]), ("patches_files", ["patch_bert", "patch_bert_long"]), ("cove_files", COVE)],
)
def test_models_bring_recipes_of_their_own(file, name, models):
    """The recipes of the default's models stay, which the studies need."""
    before = params.load(file)
    changes = profiles.merge(name, ".")
    checked = params.load(file)
    recipes = before.finetune.recipes | {model: checked.finetune.recipes[model] for model in models}
    assert checked.finetune.recipes == recipes and f"finetune.recipes.{models[0]}: added" in changes
    assert profiles.merge(name, ".") == [f"params.yaml already contains all of {name}"]


def test_entries_are_replaced_whole(file):
    profiles.merge("glue_files", ".")
    changes = profiles.merge("glue")
    assert "tasks.cola: replaced" in changes and "finetune.eval_examples: null (was 1200)" in changes
    cola = params.load(file).tasks["cola"]
    assert cola.train.source.kind == "hub" and cola.test.table is None


def test_the_benchmarks_name_these_tasks(file):
    declared = {}
    for name in ("glue", "superglue"):
        profiles.merge(name)
        declared[name] = params.load(file).tasks
    for name, files in SUBMISSIONS.items():
        for wanted in files:
            task = declared[name][wanted.task]
            assert wanted.split in task.splits
            assert wanted.words is None or task.kind == "choice" or set(wanted.words) == set(task.labels)
    for name, terms in CONVENTIONS.items():
        for task, split, metric in (score for term in terms for score in term):
            judged = declared["superglue" if name == "superglue" else "glue"][task]
            assert metric in judged.metrics and (split == "eval" or split in judged.extra)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("nope", None, r"no profile 'nope' \(there are: attention_files, babylm_files, cove_files, diagnostics_files, glue, "),
        ("glue_files", None, "profile glue_files reads local files: give their folder with --data"),
        ("glue", ".", "profile glue reads no local files; leave --data out"),
        ("glue_files", "nowhere", "--data nowhere: no such folder"),
    ],
)
def test_a_mistake_writes_nothing(file, name, data, said):
    before = file.read_text()
    with pytest.raises(SesameError, match=said):
        profiles.merge(name, data)
    assert file.read_text() == before


def test_a_result_that_is_wrong_is_not_written(file, tmp_path, monkeypatch):
    (tmp_path / "bad.yaml").write_text("# Wrong\nfinetune:\n  tasks: [nowhere]\n")
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    before = file.read_text()
    with pytest.raises(
        SesameError, match=r"profile bad does not fit this params.yaml, nothing was written: params.yaml: finetune.tasks\[0\]: no 'nowhere'"
    ):
        profiles.merge("bad")
    assert file.read_text() == before


def test_the_commands(file):
    def sesame(*args: str) -> tuple[int, str]:
        done = subprocess.run([Path(sys.executable).parent / "sesame", *args], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, output = sesame("profile")
    assert code == 0 and "superglue_files" in output and "GLUE from the hub, whole, with its diagnostics" in output
    before = file.read_text()
    code, output = sesame("profile", "glue_files", "--data", ".")
    assert code == 0 and "tasks.cola: added" in output and "undo with `cp .sesame/params-before-glue_files.yaml params.yaml`" in output
    assert Path(".sesame/params-before-glue_files.yaml").read_text() == before, "git would bring back another file, or none"
    assert "undo" not in sesame("profile", "glue_files", "--data", ".")[1], "nothing was changed"
    after = file.read_text()
    file.write_text(before)
    for command in (["init", "-q"], ["add", "params.yaml"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], check=True)
    assert "undo with `git checkout params.yaml`" in sesame("profile", "glue_files", "--data", ".")[1]
    assert file.read_text() == after
    code, output = sesame("submit", "superglue", "bert")
    assert code == 1 and output.startswith(
        "sesame: superglue can't be submitted, not at hand: BoolQ (no predictions; run finetune@bert-boolq)"
    )
    assert len(output.splitlines()) == 1
    code, output = sesame("submit", "superglue", "nope")
    assert code == 1 and output.startswith("sesame: no model nope in params.yaml (there are: bert, gpt, elmo")


@pytest.mark.long
@pytest.mark.skipif(not DATA.exists(), reason="the shared data are not at hand (../shared/data)")
@pytest.mark.parametrize("name", ["glue_files", "superglue_files", "other_files"])
def test_every_task_of_the_local_files(file, name):
    profiles.merge(name, str(DATA.resolve()))
    checked = params.load(file)
    for task in checked.finetune.tasks:
        sizes = stage_of_tasks.prepare(checked, task, Run(None))["examples"]
        expected = ROWS[task] | (DIAGNOSTICS if task == "rte" and name == "superglue_files" else {})
        for splits, rows in expected.items():
            assert sum(sizes[split] for split in splits.split("+")) == rows, (task, splits)
        assert set(sizes) == {split for splits in expected for split in splits.split("+")}
        card = tasks.card(f"data/tasks/{task}")
        assert all(card[split]["rows"] == rows and min(card[split].get("labels", {"": 1}).values()) >= 0 for split, rows in sizes.items())
    if name == "glue_files":
        assert tasks.card("data/tasks/cola")["train"]["labels"]["acceptable"] == pytest.approx(6023 / 8551)
        assert tasks.card("data/tasks/mrpc")["dev"]["labels"]["equivalent"] == pytest.approx(279 / 408)
        assert tasks.card("data/tasks/wnli")["train"]["labels"]["entailment"] == pytest.approx(312 / 635)
    if name == "superglue_files":
        assert tasks.card("data/tasks/wsc")["train"]["labels"]["true"] == pytest.approx(259 / 554)
        assert tasks.card("data/tasks/rte")["axg"]["labels"]["entailment"] == 0.5
        assert len({row.group for row in tasks.read("data/tasks/multirc", "dev")}) == 953
    if name == "other_files":
        assert [tasks.card("data/tasks/wnut17")[split]["words"] for split in ("train", "dev", "test")] == [62730, 15733, 23394]
        card = tasks.card("data/tasks/qnli_search")["test"]
        assert (card["groups"], card["ranked"]) == (4100, 1362), "questions, and those with a sentence beside the answer"
