"""Zips for the leaderboards, of full size: names, headers, rows, label words; and what is refused."""

import json
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components.core.errors import SesameError
from components.tasks import submission
from components.tasks.benchmarks import SUBMISSIONS, Submission
from pipelines import cli
from tests.conftest import tiny_params

PREDICTED = {"stsb_glue": 5.25, "record": "the Söder Street", "rte": "not_entailment", "mnli": "neutral"}


def ids(file: Submission) -> list[str]:
    """As the stage names them: the file's own numbers, or `<split>-<row>`. MultiRC: 1 question a passage, then 6 answers each."""
    if file.name == "MultiRC":
        return [f"{i // 12}-{i // 6}-{i}" for i in range(file.rows)]
    if file.name == "ReCoRD":
        return [str(2 * i + 1) for i in range(file.rows)]
    return [f"{file.split}-{i}" if file.task in ("sst2", "mrpc") else str(i) for i in range(file.rows)]


def built(folder: Path, benchmark: str) -> Path:
    """data/tasks and data/scores/bert with every test set in full, predicted by two seeds and from two starts."""
    rows: dict[str, list[str]] = defaultdict(list)
    for file in SUBMISSIONS[benchmark]:
        examples = folder / "data/tasks" / file.task
        examples.mkdir(parents=True, exist_ok=True)
        (examples / f"{file.split}.jsonl").write_text(
            "".join(f'{{"id": "{i}", "text_a": "a", "text_b": null, "label": null}}\n' for i in ids(file))
        )
        said = PREDICTED.get(file.task) or list(file.words)[1]
        other = 1.0 if file.task == "stsb_glue" else "?"
        for init, seed, prediction in (("random", 1, other), ("pretrained", 1, said), ("pretrained", 2, said)):
            if seed == 1 or file.rows < 20_000:
                rest = f'"seed": {seed}, "split": "{file.split}", "prediction": {json.dumps(prediction)}, "label": null}}\n'
                if init == "pretrained" or file.rows < 20_000:
                    rows[file.task] += [f'{{"init": "{init}", "id": "{i}", {rest}' for i in reversed(ids(file))]
    for task, lines in rows.items():
        scores = folder / "data/scores/bert" / task
        scores.mkdir(parents=True)
        (scores / "predictions.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("glue"), "glue")


@pytest.fixture(scope="module")
def superglue(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("superglue"), "superglue")


def contents(path: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}


@pytest.mark.long
def test_glue(glue, monkeypatch):
    monkeypatch.chdir(glue)
    written = submission.write("glue", "bert")
    assert (written.path, written.absent) == (Path("data/submissions/glue-bert-seed1.zip"), [])
    files = contents(written.path)
    assert list(files) == [f"{file.name}.tsv" for file in SUBMISSIONS["glue"]]
    assert (
        {name: len(lines) - 1 for name, lines in files.items()}
        == written.files
        == {f"{file.name}.tsv": file.rows for file in SUBMISSIONS["glue"]}
    )
    assert {lines[0] for lines in files.values()} == {"index\tprediction"}
    assert {name: lines[2] for name, lines in files.items()} == {
        "CoLA.tsv": "1\t1", "SST-2.tsv": "1\t1", "MRPC.tsv": "1\t1", "STS-B.tsv": "1\t5.000", "QQP.tsv": "1\t1",
        "MNLI-m.tsv": "1\tneutral", "MNLI-mm.tsv": "1\tneutral", "QNLI.tsv": "1\tnot_entailment", "RTE.tsv": "1\tnot_entailment",
        "WNLI.tsv": "1\t1", "AX.tsv": "1\tneutral",
    }  # fmt: skip


def test_superglue(superglue, monkeypatch):
    monkeypatch.chdir(superglue)
    written = submission.write("superglue", "bert", seed=2, folder="here")
    assert (written.path, written.absent) == (Path("here/superglue-bert-seed2.zip"), [])
    files = {name: [json.loads(line) for line in lines] for name, lines in contents(written.path).items()}
    assert {name: rows[1] for name, rows in files.items() if name != "MultiRC.jsonl"} == {
        "BoolQ.jsonl": {"idx": 1, "label": "true"}, "CB.jsonl": {"idx": 1, "label": "neutral"}, "COPA.jsonl": {"idx": 1, "label": 1},
        "ReCoRD.jsonl": {"idx": 3, "label": "the Söder Street"}, "RTE.jsonl": {"idx": 1, "label": "not_entailment"},
        "WiC.jsonl": {"idx": 1, "label": "true"}, "WSC.jsonl": {"idx": 1, "label": "True"},
        "AX-b.jsonl": {"idx": 1, "label": "not_entailment"}, "AX-g.jsonl": {"idx": 1, "label": "not_entailment"},
    }  # fmt: skip
    first = files["MultiRC.jsonl"][0]
    assert first["idx"] == 0 and [question["idx"] for question in first["passage"]["questions"]] == [0, 1]
    assert first["passage"]["questions"][1]["answers"][0] == {"idx": 6, "label": 1}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A benchmark of two test sets, three examples each, and a function that writes the predictions of one."""
    files = (
        Submission("CB", "cb", 3, {"entailment": "entailment", "neutral": "neutral"}),
        Submission("WiC", "wic", 3, {"false": "false", "true": "true"}),
    )
    monkeypatch.setitem(SUBMISSIONS, "superglue", files)
    monkeypatch.chdir(tmp_path)

    def predict(task: str, *predictions: str, examples: int = 3, seed: int = 1) -> None:
        Path("data/tasks", task).mkdir(parents=True, exist_ok=True)
        rows = "".join(json.dumps({"id": str(i), "text_a": "a", "text_b": "b", "label": None}) + "\n" for i in range(examples))
        Path("data/tasks", task, "test.jsonl").write_text(rows)
        Path("data/scores/bert", task).mkdir(parents=True, exist_ok=True)
        about = {"init": "pretrained", "seed": seed, "split": "test", "label": None}
        rows = "".join(json.dumps(about | {"id": str(i), "prediction": said}) + "\n" for i, said in enumerate(predictions))
        Path("data/scores/bert", task, "predictions.jsonl").write_text(rows)

    return predict


def refused(said: str, **options) -> None:
    with pytest.raises(SesameError, match=said) as caught:
        submission.write("superglue", "bert", **options)
    assert len(str(caught.value).splitlines()) == 1 and not list(Path("data").glob("submissions/*"))


def test_what_is_not_at_hand_is_named_and_nothing_written(small):
    small("cb", "neutral", "neutral", "entailment")
    refused(r"superglue can't be submitted, not at hand: WiC \(no predictions; run finetune@bert-wic\); --partial")
    small("wic", "true", "true")
    refused(r"WiC \(2 of 3 examples of wic test are predicted; set finetune.eval_examples to null and run finetune again\)")
    small("wic", "true", "true", examples=2)
    refused(r"WiC \(data/tasks/wic/test.jsonl has 2 examples, the official test set 3\)")
    Path("data/tasks/wic/test.jsonl").rename("data/tasks/wic/dev.jsonl")
    refused(r"WiC \(task wic has no split test \(there are: dev\)\)")


def test_partial_writes_the_rest_and_says_so(small):
    small("cb", "neutral", "neutral", "entailment")
    written = submission.write("superglue", "bert", partial=True)
    assert written.path.name == "superglue-bert-seed1-partial.zip" and list(contents(written.path)) == ["CB.jsonl"]
    assert len(written.absent) == 1 and written.absent[0].startswith("WiC (no predictions")
    small("wic", "true", "true", "false")
    assert submission.write("superglue", "bert", partial=True).path.name == "superglue-bert-seed1.zip"


def test_nothing_at_all_is_refused_even_in_part(small):
    refused("not at hand: CB .*; WiC ", partial=True)


def test_a_label_the_leaderboard_has_no_word_for(small):
    small("cb", "neutral", "perhaps", "entailment")
    small("wic", "true", "true", "true")
    refused(r"tasks.cb predicts 'perhaps', which CB has no word for \(its labels: entailment, neutral\)")


def test_what_a_model_wrote_and_is_no_answer_is_counted(small):
    small("cb", "neutral", "perhaps so", "odd")
    small("wic", "true", "true", "true")
    Path("data/tasks/cb/card.json").write_text(json.dumps({"train": {"labels": {"entailment": 0.5, "neutral": 0.4, "odd": 0.1}}}))
    Path("data/metrics/finetune").mkdir(parents=True)
    Path("data/metrics/finetune/bert-cb.json").write_text(json.dumps({"outside": {"pretrained": {"dev": [0.5]}}}))
    refused("tasks.cb predicts 'odd', which CB has no word for")
    small("cb", "neutral", "perhaps so", "entailment")
    written = submission.write("superglue", "bert")
    assert written.replaced == {"CB": 1} and [row["label"] for row in map(json.loads, contents(written.path)["CB.jsonl"])] == [
        "neutral", "entailment", "entailment",
    ]  # fmt: skip
    YAML().dump(tiny_params(), Path("params.yaml"))
    done = CliRunner().invoke(cli.app, ["submit", "superglue", "bert"])
    assert done.exit_code == 0 and "CB: 1 answers of the model are not a label" in done.output, done.output
    assert "predictions of cb, wic are of other params: `finetune` does not tune bert on them now" in done.output


def test_seeds(small):
    small("cb", "neutral", "neutral", "entailment", seed=1)
    small("wic", "true", "true", "false", seed=2)
    refused(r"the first seed differs between tasks \(1, 2\); choose one with --seed")
    refused("no predictions of pre-trained weights with seed 2", seed=2)


def cb(change: Callable[[str], str]) -> Callable[[dict[str, str]], None]:
    """Changes the text of one file in the zip."""
    return lambda zipped: zipped.update({"CB.jsonl": change(zipped["CB.jsonl"])})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda zipped: zipped.pop("CB.jsonl"), "files missing or too many: CB.jsonl"),
        (lambda zipped: zipped.update({"AX.jsonl": ""}), "files missing or too many: AX.jsonl"),
        (cb(lambda text: text.rsplit("\n", 2)[0] + "\n"), "CB.jsonl: 2 predictions, the leaderboard expects 3"),
        (
            cb(lambda text: text.replace("neutral", "perhaps", 1)),
            r"CB.jsonl, line 1: 'perhaps' is no label of this file \(allowed: entailment, neutral\)",
        ),
        (cb(lambda text: text.replace('"idx": 1', '"idx": 0')), "CB.jsonl: an index occurs twice, is missing or out of order"),
        (cb(lambda text: text.replace('"idx"', '"index"', 1)), "CB.jsonl, line 1: not the fields it must have"),
        (cb(lambda text: "0\tneutral\n" * 3), "CB.jsonl, line 1: "),
    ],
)
def test_a_wrong_zip(small, change, said):
    small("cb", "neutral", "neutral", "entailment")
    small("wic", "true", "true", "false")
    path = submission.write("superglue", "bert").path
    zipped = {name: "\n".join(lines) + "\n" for name, lines in contents(path).items()}
    change(zipped)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in zipped.items():
            archive.writestr(name, text)
    with pytest.raises(SesameError, match=said):
        submission.validate(path, "superglue", list(SUBMISSIONS["superglue"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\t1.000\n1\t2.000\n", "STS-B.tsv, line 1: the header must be"),
        ("index\tprediction\n0\t1.0\n1\t2.000\n", "STS-B.tsv, line 2: '1.0' is no score from 0.000 to 5.000"),
        ("index\tprediction\n0\t1.000\n1\t5.001\n", "STS-B.tsv, line 3: '5.001' is no score"),
        ("index\tprediction\n0\t1.000\t3\n1\t5.000\n", "STS-B.tsv, line 2: "),
        ("index\tprediction\n1\t1.000\n0\t5.000\n", "STS-B.tsv: an index occurs twice, is missing or out of order"),
    ],
)
def test_a_wrong_tsv(tmp_path, text, said):
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("STS-B.tsv", text)
    with pytest.raises(SesameError, match=said):
        submission.validate(tmp_path / "z.zip", "glue", [Submission("STS-B", "stsb_glue", 2, None)])


def test_an_empty_answer_of_record_is_an_entity_in_the_leaderboards_file(small, monkeypatch):
    """And counted: the file was refused as a whole for it."""
    monkeypatch.setitem(SUBMISSIONS, "superglue", (Submission("ReCoRD", "record", 3, None),))
    small("record", "Rome", "", "the river")
    rows = [{"id": str(i), "text_a": "a", "text_b": None, "label": None, "choices": {"Ostia": "b", "Rome": "c"}} for i in range(3)]
    Path("data/tasks/record/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("data/tasks/record/card.json").write_text(json.dumps({"train": {}}))
    Path("data/metrics/finetune").mkdir(parents=True)
    Path("data/metrics/finetune/bert-record.json").write_text(json.dumps({"outside": {"pretrained": {"dev": [0.5]}}}))
    written = submission.write("superglue", "bert")
    assert written.replaced == {"ReCoRD": 2}
    assert [json.loads(line)["label"] for line in contents(written.path)["ReCoRD.jsonl"]] == ["Rome", "Ostia", "Ostia"]
