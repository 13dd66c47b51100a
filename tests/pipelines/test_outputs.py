"""No command removes what it did not write."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.embeddings.space import Space, save
from pipelines import cli
from pipelines.cli import results
from pipelines.cli.command import one_line_errors
from tests.conftest import run_stage, save_random, tiny_params
from tests.pipelines.conftest import whole

COMMANDS = {
    "generate": ["generate", "gpt", "a man"], "export": ["export", "gpt"], "vectors": ["vectors", "words"],
    "submit": ["submit", "glue", "gpt"], "attention": ["attention", "gpt", "a man"],
}  # fmt: skip
"""Every command that writes where somebody says. `submit` puts a file of its own name into a folder."""


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file() and "components" not in path.parts}


def test_these_are_all_commands_that_write_where_somebody_says():
    group = typer.main.get_command(cli.app)
    assert {name for name, command in group.commands.items() if any(option.name == "out" for option in command.params)} == set(COMMANDS)


@pytest.mark.parametrize("place", ["data", "raw", "raw/text.txt", "link"])
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_removed_at_a_named_place(project, tokens, name, place):
    save_random(params.check(tiny_params()), "gpt", tokens)
    save(Space(["a", "b"], np.ones(2, int), np.eye(2, dtype=np.float32)), Path("data/vectors/words"))
    YAML().dump(tiny_params(), Path("params.yaml"))
    Path("link").symlink_to("raw")
    before = files()
    done = CliRunner().invoke(cli.app, [*COMMANDS[name], "--out", place])
    assert done.exit_code and files() == before and Path("link").is_symlink()
    if name != "submit":
        assert f"{place} is" in str(done.exception) + done.output


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kept.txt").write_text("kept")
    with pytest.raises(SesameError, match="there is a folder; name a file"), storage.output(tmp_path / "there") as file:
        file.write_text("new")
    assert (tmp_path / "there/kept.txt").read_text() == "kept" and [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "../models/gpt", "a"], ["export", "gpt/"], ["export", "/etc"], ["vectors", "../x"],
        ["attention", "../x", "a"],
    ],
)  # fmt: skip
def test_a_name_is_no_path(project, command):
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 2 and "is not a name" in done.output


@pytest.mark.parametrize(
    "command",
    [
        ["price", "gpt", "--tokens", "inf"], ["price", "gpt", "--times", "1e300"], ["batch", "bert", "1", "--rows", "-5"],
        ["run", "--jobs", "9" * 20], ["runs", "--last", "9" * 20], ["generate", "bert", "a", "--rounds", "9" * 20],
        ["neighbours", "bert", "a *b*", "--top", "9" * 20], ["neighbours", "bert", "a *b*", "--segments", "9" * 20],
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_refused(project, command):
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 2 and "Invalid value" in done.output


@pytest.mark.parametrize(
    "command", [["generate", "bert", "a", "--out", "y" * 300], ["generate", "bert", "--file", "y" * 300]]
)
def test_a_name_that_is_too_long_is_one_line(project, command):
    YAML().dump(tiny_params(), Path("params.yaml"))
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 1 and "is too long for a file name; give a shorter one" in done.output and done.output.count("\n") == 1


@pytest.mark.parametrize(("option", "there"), [("corpus", "base, tiny"), ("vectors", "one, two")])
def test_neighbours_of_nothing_are_one_line(project, option, there):
    YAML().dump(tiny_params(), Path("params.yaml"))
    done = CliRunner().invoke(cli.app, ["neighbours", "bert", "a *b*", f"--{option}", "nope"])
    assert done.exit_code == 1 and f"--{option}: no 'nope' in params.yaml (there are: {there})" in done.output


def test_a_model_is_not_compared_with_itself(project):
    YAML().dump(tiny_params(), Path("params.yaml"))
    done = CliRunner().invoke(cli.app, ["compare", "gpt", "gpt:pretrained", "same"])
    assert done.exit_code == 1 and "A and B are both gpt:pretrained; give two different models or baselines" in done.output


def test_predictions_of_other_rows_are_not_compared(project):
    """A row is known by its number: a model was judged by the answers to other texts once the rows of a task had moved."""
    YAML().dump(tiny_params(), Path("params.yaml"))
    assert run_stage("components.finetune.baseline", "same").returncode == 0
    rows = Path("data/tasks/same/dev.jsonl")
    moved = [json.loads(line) for line in rows.read_text().splitlines()]
    texts = [{key: row[key] for key in row if key != "id"} for row in moved][::-1]
    results._same_rows("baseline@same", (Path("data/baselines/same"), "majority"), "same", "dev")
    rows.write_text("".join(json.dumps({"id": row["id"]} | text) + "\n" for row, text in zip(moved, texts, strict=True)))
    done = CliRunner().invoke(cli.app, ["compare", "majority", "logistic_regression", "same"])
    assert done.exit_code == 1 and "baseline@same predicted other rows of same dev than there are now" in done.output


def test_predictions_of_other_params_are_said_to_be(inside, capsys):
    """They were submitted as valid after an edit of the recipe."""
    raw = tiny_params(studies={})
    raw["tasks"] = {"wnli": raw["tasks"]["same"]}
    raw["finetune"]["tasks"], raw["mixes"]["tiny"]["tasks"] = ["wnli"], ["wnli"]
    whole(inside, raw)
    for folder in ("data/tasks/wnli", "data/scores/gpt/wnli"):
        Path(folder).mkdir(parents=True)
    rows = range(146)
    Path("data/tasks/wnli/test.jsonl").write_text("".join(f'{{"id": "{i}", "text_a": "a", "text_b": "b", "label": null}}\n' for i in rows))
    predicted = '"init": "pretrained", "seed": 1, "split": "test", "prediction": "entailment", "label": null'
    Path("data/scores/gpt/wnli/predictions.jsonl").write_text("".join(f'{{{predicted}, "id": "{i}"}}\n' for i in rows))
    done = CliRunner().invoke(cli.app, ["submit", "glue", "gpt", "--partial"])
    assert done.exit_code == 0, done.output
    stale = "finetune@gpt-wnli has not run with the current params and code, so predictions are of an earlier model or recipe: run it first"
    assert stale in capsys.readouterr().out + done.output


def test_ctrl_c_in_the_midst_of_an_import_is_no_traceback():
    """Python 3.11 makes a RuntimeError of what `__set_name__` raises, and torch has such classes."""

    class Field:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    def imports():
        type("Made", (), {"field": Field()})

    with pytest.raises(SystemExit) as ended:
        one_line_errors(imports)()
    assert ended.value.code == 130
    with pytest.raises(RuntimeError, match="of another kind"):
        one_line_errors(lambda: (_ for _ in ()).throw(RuntimeError("of another kind")))()


def test_an_empty_name_of_a_study_is_not_all_runs(project):
    YAML().dump(tiny_params(), Path("params.yaml"))
    done = CliRunner().invoke(cli.app, ["runs", "--study", ""])
    assert done.exit_code == 1 and "no study ''" in str(done.exception) + done.output


def test_studies_params_are_not_taken_for_the_whole(tmp_path, monkeypatch):
    (tmp_path / "studies").mkdir()
    YAML().dump(tiny_params(), tmp_path / "params.yaml")
    YAML().dump({"tokenizers": {}}, tmp_path / "studies/params.yaml")
    monkeypatch.chdir(tmp_path / "studies")
    with pytest.raises(SesameError, match="params.yaml is that of the studies; run from the folder above"):
        params.load()
