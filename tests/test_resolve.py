"""What each stage depends on: settings with defaults, and the code that it runs; and that a resumed work is keyed by the same."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import ruff
from ruamel.yaml import YAML

from components import params
from components.core.config import Added, Block, RunOnly
from components.core.errors import SesameError
from components.labs.search.journal import Journal
from components.pretrain.training import checkpoint_folder
from components.stages import closure, registry, resolve
from tests.conftest import register, tiny_params

ROOT = Path(params.__file__).parents[2]
Resolved = dict[tuple[str, str], dict]
"""(stage, name) -> its entry."""


@pytest.fixture
def own_code(project, monkeypatch) -> Path:
    """The tiny project with a copy of the code that may be changed, and is what is looked at."""
    (project / "components").unlink()
    shutil.copytree(ROOT / "components", project / "components", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(closure, "ROOT", project)
    yield project
    closure.forget()


def looked_at() -> Resolved:
    """The entries by the settings of this process and the code of the current folder."""
    closure.forget()
    return {(own.stage, own.name): {"code": own.code, "settings": own.settings} for own in registry.entries(params.check(searched()))}


def write(raw: dict) -> None:
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)


def searched() -> dict:
    raw = tiny_params()
    raw["search"] |= {"models": ["bert"], "tasks": ["same"]}
    recipes = {"lora": raw["finetune"]["recipes"]["gpt"] | {"method": "lora"}}
    raw["adapt"] |= {"models": ["gpt"], "methods": ["lora"], "tasks": ["same"], "recipes": recipes}
    return raw


def resolved() -> Resolved:
    """As a process of its own resolves params and code of the current folder."""
    done = subprocess.run([sys.executable, "-m", "components.stages.resolve"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {(path.parent.name, path.stem): json.loads(path.read_text()) for path in resolve.FOLDER.glob("*/*.json")}


def other(before: Resolved, after: Resolved, part: str = "code") -> set[str]:
    """The stages whose code (or settings) are other ones now."""
    return {f"{stage}@{name}" for (stage, name), own in after.items() if before.get((stage, name), {}).get(part) != own[part]}


def append(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_a_method_without_its_file_is_one_line(own_code):
    register(Path("components/params/recipes.py"), "METHODS")
    raw = searched()
    raw["finetune"]["recipes"]["bert"]["method"] = "dummy"
    write(raw)
    told = subprocess.run([sys.executable, "-m", "components.stages.resolve"], capture_output=True, text=True)
    assert told.returncode == 2 and "components.finetune.methods.dummy: no such module" in told.stderr and told.stderr.count("\n") == 1


def test_one_more_of_each_kind_makes_nothing_stale(own_code):
    """A family, an objective, an optimizer, a schedule, an evaluation, a way to adapt, a reader, a source, a page: files of their own and a
    line in a registry."""
    write(searched())
    before = resolved()
    for kind, model in (("models", "encoder"), ("objectives", "clm"), ("optimizers", "muon"), ("evaluations", "minimal_pairs")):
        shutil.copytree(f"components/{kind}/{model}", f"components/{kind}/dummy")
        block = Path(f"components/{kind}/dummy/config.py")
        block.write_text(block.read_text().replace(f'Literal["{model}"]', 'Literal["dummy"]'))
    for folder, like in (
        ("finetune/methods", "mix"), ("tasks/readers", "copa"), ("text/sources", "url"), ("text/corpora/readers", "text"),
        ("embeddings/trainers", "ppmi_svd"), ("optimizers/schedules", "cosine"),
    ):  # fmt: skip
        shutil.copy(f"components/{folder}/{like}.py", f"components/{folder}/dummy.py")
    shutil.copytree("components/report", "components/page")
    models, tasks = Path("components/params/models.py"), Path("components/params/tasks.py")
    register(models, "ARCHITECTURES", "OBJECTIVES", "OPTIMIZERS")
    register(Path("components/optimizers/config.py"), "SCHEDULES")
    register(Path("components/params/evaluations.py"), "EVALUATIONS")
    register(Path("components/params/recipes.py"), "METHODS")
    tasks.write_text(tasks.read_text().replace("READ_AS = {", 'READ_AS = {"dummy": "choice", '))
    assert resolved() == before
    raw = searched()
    raw["models"]["new"] = raw["models"]["bert"] | {"architecture": raw["models"]["bert"]["architecture"] | {"name": "dummy"}}
    write(raw)
    changed = other(before, resolved()) | other(before, resolved(), "settings")
    assert changed == {"pretrain@new", "sample@new", "report@all"}, "and they are there to be named"


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("components/models/decoder/model.py", {"pretrain@gpt", "sample@gpt", "finetune@gpt-same", "adapt@gpt-lora-same"}),
        ("components/objectives/bilm/objective.py", {"pretrain@elmo", "sample@elmo"}),
        ("components/finetune/methods/features.py", {"finetune@elmo-same"}),
        ("components/finetune/methods/lora.py", {"adapt@gpt-lora-same"}),
        ("components/labs/search/draws.py", {"search@bert-same-pretrained"}),
        ("components/studies/published.yaml", {"study@rate"}),
        ("components/report/page.html.j2", {"report@all"}),
        ("components/text/sources/files.py", {"corpus@base", "task@same"}),
        ("components/embeddings/trainers/skip_gram.py", {"vectors@one", "vectors@two"}),
        ("components/core/tracking.py", set()),
        ("components/core/mlflow_values.py", set()),
        ("components/text/sources/pypi.py", set()),
    ],
)
def test_a_change_of_code_makes_stale_what_runs_it(own_code, file, stale):
    before = looked_at()
    append(file, "\nCHANGED = 1\n")
    assert other(before, looked_at()) == stale


@pytest.mark.parametrize("file", ["components/finetune/kinds.py", "components/comparison/verdicts.py"])
def test_what_judges_or_tunes_asks_no_evaluation_of_a_study_again(own_code, file):
    raw = searched()
    raw["evaluations"] = {"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}}
    raw["studies"]["asked"] = {
        "question": "Which?", "model": "bert", "base": "one", "evaluations": ["pairs"], "seeds": [1], "budget": {"tokens": 3000},
        "plot": {"x": "tokens", "y": ["pairs"]}, "variants": {"one": {}},
    }  # fmt: skip
    checked = params.check(raw)

    def codes() -> dict[str, str]:
        closure.forget()
        return {entry.name: entry.code for entry in registry.entries(checked) if entry.stage == "transfer"}

    before = codes()
    append(file, "\nCHANGED = 1\n")
    stale = {name for name, code in codes().items() if code != before[name]}
    tuned = {name for name in before if name.startswith("rate-")}
    assert "asked-one-1" in before and stale == (tuned if "finetune" in file else set())


def test_comments_docstrings_and_line_breaks_change_nothing(own_code):
    before = looked_at()
    path = Path("components/pretrain/module.py")
    said_anew = path.read_text().replace('    """Clip and step', '    """Said\n    otherwise: clip and step')
    path.write_text("# said anew\n" + said_anew.replace("\n\n\n", "\n\n\n\n"))
    append("components/optimizers/__init__.py", '\n\n# and here\n"""A text that nothing reads."""\n')
    assert looked_at() == before
    style = ["--isolated", "--line-length", "60", "--config", "format.quote-style = 'single'"]
    done = subprocess.run([ruff.find_ruff_bin(), "format", *style, "components"], capture_output=True, text=True, check=True)
    assert int(re.search(r"(\d+) files reformatted", done.stdout)[1]) > 300 and looked_at() == before
    append("components/optimizers/__init__.py", "\nCHANGED = 1\n")
    assert looked_at() != before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('TEXT = """a\n\nb"""\n', 'TEXT = """a\nb"""\n'),
        ('TEXT = f"""{1} \n#"""\n', 'TEXT = f"""{1}\n#"""\n'),
        ('class Odd(ValueError): "Said."\n', 'class Odd(KeyError): "Said."\n'),
        ('def answer(): "The answer: \u00e9."; return 1\n', 'def answer(): "The answer: \u00e9."; return 2\n'),
        ("\f\nrate = 1\nsize = 1  # it\n", "\f\nrate = 2\nsize = 1  # it\n"),  # Emacs' pages
        ('marks = "\u2028"\nrate = 1\nsize = 1  # it\n', 'marks = "\u2028"\nrate = 2\nsize = 1  # it\n'),
    ],
)  # fmt: skip
def test_what_stands_in_a_text_or_beside_a_docstring_or_behind_a_form_feed_counts(own_code, before, after):
    """What looks like a blank line, a docstring or a comment and is none: left out, it keeps old results as good."""
    path = Path("components/optimizers/__init__.py")
    code = path.read_text()
    path.write_text(code + before)
    first = looked_at()
    path.write_text(code + after)
    assert looked_at() != first
    path.write_text(code + before.replace("Said", "Told").replace("answer:", "number:").replace("# it", "# that"))
    assert looked_at() == first


def test_a_default_is_a_setting_like_one_that_is_written(own_code):
    """A changed default is a change of what uses it, whether a file says so or not; where it is written it is not."""
    raw = searched()
    raw["models"]["gpt"]["architecture"]["dropout"] = 0.1
    write(raw)
    before = resolved()
    block = Path("components/models/common/config.py")
    block.write_text(block.read_text().replace("dropout: Dropout = 0.1", "dropout: Dropout = 0.2"))
    changed = other(before, resolved(), "settings")
    variants = {f"variant@rate-{variant}-{seed}" for variant in (15, 40) for seed in (1, 2)}
    assert changed == {"pretrain@bert", "report@all", "study@rate", *variants} and not other(before, resolved())


class Inner(Block):
    name: Literal["inner"] = "inner"
    devices: Annotated[int, RunOnly()] = 1
    share: Annotated[float, Added(neutral=0.0)] = 0.0
    rate: float = 0.5


class Outer(Block):
    parts: dict[str, Inner] = {}
    pairs: list[tuple[Inner, int]] = []


def test_where_it_runs_and_a_new_setting_that_is_neutral_are_not_watched():
    plain = Outer(parts={"a": Inner()}, pairs=[(Inner(), 2)])
    assert plain.settings() == {"parts": {"a": {"name": "inner", "rate": 0.5}}, "pairs": [[{"name": "inner", "rate": 0.5}, 2]]}
    assert Outer(parts={"a": Inner(devices=4)}).settings() == Outer(parts={"a": Inner()}).settings()
    assert Outer(parts={"a": Inner(share=0.2)}).settings()["parts"]["a"]["share"] == 0.2
    for key, value in (("devices", 2), ("log_every", 3), ("checkpoint_seconds", 9.0)):
        raw = tiny_params()
        raw["models"]["bert"]["run"][key] = value
        assert list(resolve.contents(params.check(raw)).values()) == list(resolve.contents(params.check(tiny_params())).values())


def test_an_encoding_or_a_mix_that_no_study_reads_leaves_its_page():
    """They were settings of every study's page, so that whoever followed the tutorials made all pages stale."""

    def entries(raw: dict) -> Resolved:
        return {(each.stage, each.name): {"settings": each.settings} for each in registry.entries(params.check(raw))}

    raw = tiny_params()
    before = entries(raw)
    raw["mixes"] = raw.get("mixes", {}) | {"unread": {"corpus": "base", "tasks": ["same"]}}
    raw["encodings"]["unread"] = {"corpus": "unread", "tokenizer": "tiny"}
    changed = other(before, entries(raw), "settings")
    assert {"encode@unread", "mix@unread"} <= changed and not any(stage.startswith("study@") for stage in changed)
    read = {"corpus": "unread", "tokenizer": "tiny"}
    raw["encodings"]["tiny"] = read
    assert "study@rate" in other(before, entries(raw), "settings"), "it is of the text that the variants read"


RUN_ALL = """
import json, runpy, sys
import components.stages.stage

components.stages.registry.stages()  # which every stage looks at

print("LOADED frame all", *(own for own in sys.modules if own.partition(".")[0] == "components"), flush=True)
for module, name in json.load(open("stages.json")):
    for mine in [own for own in sys.modules if own.partition(".")[0] == "components"]:
        del sys.modules[mine]  # libraries stay, so that a stage takes a second and not ten
    sys.argv = [module] if name == "all" else [module, name]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    print("LOADED", module, name, *(own for own in sys.modules if own.partition(".")[0] == "components"), flush=True)
"""


@pytest.mark.long
def test_the_closure_is_what_python_imports(project, start):
    """Every stage, run for real: it imports all that it is watched by, and nothing else of ours."""
    raw = searched()
    raw["finetune"]["models"] = ["gpt", "elmo"]
    training = {key: value for key, value in raw["models"]["gpt"].items() if key not in ("encoding", "architecture", "prompts")}
    raw["derived"] = {
        "gpt_same": {"start": "gpt", "on": "tasks/same", "by": {"name": "tuned", "recipe": raw["finetune"]["recipes"]["gpt"]}},
        "gpt_more": {"start": "gpt", "on": "encoded/tiny", "by": {"name": "pretrained", **training}},
        "gpt_short": {"start": "gpt", "on": "models/gpt", "by": {"name": "truncated", "layers": 1}},
        "gpt_zero": {"start": "gpt", "on": "models/gpt", "by": {"name": "sparsified", "sparsity": 0.5}},
        "gpt_taught": {"start": "gpt", "on": "encoded/tiny", "by": {"name": "distilled", "change": {"num_layers": 1}, **training}},
        "gpt_narrow": {
            "start": "gpt",
            "on": "encoded/tiny",
            "by": {"name": "pruned", "feed_forward": 0.5, "objective": training["objective"]},
        },
    }
    raw["efficiency"] = {
        "tasks": ["same"], "base": "whole", "recipe": raw["finetune"]["recipes"]["gpt"], "points": {
            "whole": {"model": "gpt"}, "taught": {"model": "gpt_short", "teacher": "whole"},
            "early": {"model": "gpt", "recipe": {"method": "early_exit"}},
        },
    }  # fmt: skip
    raw["seed_grid"] = {"models": ["gpt"], "tasks": ["same"], "initialisations": [1, 2], "orders": [1, 2]}
    raw["tickets"] = {"models": ["gpt"], "tasks": ["same"], "seeds": [1, 2], "rounds": 1}
    raw["corpora"]["parts"] = raw["corpora"]["base"] | {"shards": 2}
    raw["encodings"]["parts"] = {"corpus": "parts", "tokenizer": "tiny"}
    raw["text"] = {"workers": 1}
    write(raw)
    # no checkpoint here; the pages are held against their templates above; one seed is like another
    skipped = {"checkpoint", "report", "study", "budget", "seed_grid", "tickets_page", "efficiency"}
    wanted = [own for own in registry.entries(params.load()) if own.stage not in skipped and not own.stage.endswith("_inputs")]
    stages = [own for own in wanted if not own.name.endswith("-2") and "-40-" not in own.name]
    Path("stages.json").write_text(json.dumps([(own.modules[0], own.name) for own in stages]))
    done = start("-c", RUN_ALL)
    said, _ = done.communicate()
    assert done.returncode == 0, said[-4000:]
    loaded = {}
    for line in said.splitlines():
        if line.startswith("LOADED "):
            module, name, *modules = line.split()[1:]
            loaded[module, name] = {own for own in (module, *modules) if not closure.framed(own)}
    frame = loaded.pop(("frame", "all"))  # reading the params opens the packages that their blocks stand in
    assert len(loaded) == len(stages) > 15
    watched = {(own.modules[0], own.name): set(closure.modules(own.modules)) for own in stages}
    differ = {key: (loaded[key] - watched[key] - frame, watched[key] - loaded[key]) for key in loaded}
    differ = {key: sets for key, sets in differ.items() if any(sets)}
    assert not differ, f"imported and not watched, watched and not imported: {differ}"


def test_what_only_studies_use_is_made_with_them():
    """Models and what is made of them in the studies' file: stages of studies, and no part of the main pipeline and its report."""
    raw = tiny_params()
    model = {"small": {**raw["models"]["gpt"]}}
    derived = {"smaller": {"start": "small", "on": "models/small", "by": {"name": "truncated", "layers": 1}}}
    points = {"whole": {"model": "small"}, "less": {"model": "smaller", "teacher": "whole"}}
    recipe = raw["finetune"]["recipes"]["gpt"]
    studies = {
        "studies": raw.pop("studies"), "models": model, "derived": derived,
        "efficiency": {"tasks": ["same"], "base": "whole", "recipe": recipe, "points": points},
    }  # fmt: skip
    both = params.check(raw, studies=studies)
    assert "small" not in both.main("models") and "bert" in both.main("models") and "small" in both.models
    made = resolve.contents(both)
    alone = resolve.contents(params.check(raw, studies={"studies": studies["studies"]}))
    more = {str(path.relative_to(resolve.FOLDER)).removesuffix(".json") for path in made.keys() - alone.keys()}
    assert more == {
        "pretrain/small", "derive/smaller", "derive_inputs/smaller", "point/whole-same", "taught/less-same", "efficiency/all",
    }  # fmt: skip
    assert all(made[path] == text for path, text in alone.items() if path != resolve.TRAININGS)
    stages = json.loads(made[resolve.TRAININGS])
    assert stages["study_models"] == {"small": {"encoding": "tiny"}}
    assert stages["study_derived"] == {"smaller": {"start": "small", "on": "models/small"}}
    assert list(stages["points"]) == ["whole-same"] and stages["taught"]["less-same"]["teacher"] == "whole"
    raw["finetune"]["models"] = ["small"]
    raw["finetune"]["recipes"]["small"] = recipe
    with pytest.raises(SesameError, match=r"finetune.models\[0\]: no 'small' in models or checkpoints or derived"):
        params.check(raw, studies=studies)


def test_a_killed_training_is_continued_by_the_same_work_only(project):
    def place(keep=(), **change) -> Path:
        return checkpoint_folder(params.check(tiny_params()).models["gpt"].model_copy(update=change), "gpt", keep)

    run = params.Running(devices=1, checkpoint_seconds=5.0)
    assert place() == place(prompts=["another"]) == place(run=run), "what it shows and where it runs is no part of it"
    meta = Path("data/encoded/tiny/meta.json")
    first = place()
    meta.write_bytes(meta.read_bytes() + b"\n")
    assert len({first, place(), place(keep=[100]), place(seed=7), place(batch_size=4)}) == 5


@pytest.mark.parametrize("file", ["optimizers/adamw/optimizer.py", "optimizers/schedules/linear.py", "text/tokenizer/trained.py"])
def test_a_killed_training_is_not_continued_by_other_code_that_is_found_by_name(own_code, file):
    """Half of its steps would be of another schedule, and the stage none the wiser."""
    meta = Path("data/encoded/tiny/meta.json")
    meta.parent.mkdir(parents=True, exist_ok=True)
    meta.write_text("{}")
    block = params.check(tiny_params()).models["gpt"]
    closure.forget()
    before = checkpoint_folder(block, "gpt")
    append(f"components/{file}", "\nCHANGED = 1\n")
    closure.forget()
    assert checkpoint_folder(block, "gpt") != before


def test_a_journal_is_of_one_search(project):
    def place(**change) -> Path:
        raw = tiny_params()
        raw["search"] |= {"models": ["bert"], "tasks": ["same"]} | change
        return Journal(params.check(raw), "bert-same-pretrained").folder

    weights, examples = Path("data/models/bert/model.safetensors"), Path("data/tasks/same/dev.jsonl")
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    assert place(budget={"trials": 9}) == place() != place(seed=7)
    for file in (weights, examples):
        before, content = place(), file.read_bytes()
        file.write_bytes(content + b"\n")
        assert place() != before
        file.write_bytes(content)
        assert place() == before
