"""The stage: labels by name, splits that keep groups together, tables in their published layout, mistakes with file and line."""

import json
from collections import Counter
from pathlib import Path

import datasets
import pytest
from ruamel.yaml import YAML

from components import params, tasks
from components.core.errors import SesameError
from components.core.tracking import Run
from components.tasks import __main__ as stage_of_tasks
from pipelines import profiles
from tests.conftest import tiny_params

PAIRS = {"format": "tsv", "header": True, "text_a": "a", "text_b": "b", "label": "label"}


def files(*names: str) -> dict:
    return {"kind": "files", "paths": [f"raw/{name}" for name in names]}


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Write raw files, prepare `tasks.same` with changes, return its splits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()

    def run(raw_files: dict[str, str], **changes) -> dict[str, list[tasks.Example]]:
        for name, text in raw_files.items():
            (tmp_path / "raw" / name).write_bytes(text.encode())
        raw = tiny_params()
        raw["tasks"]["same"] |= changes
        checked = params.check(raw)
        stage_of_tasks.prepare(checked, "same", Run(None))
        return {split: tasks.read("data/tasks/same", split) for split in checked.tasks["same"].splits}

    return run


def same(rows: int, line: str = "x{i}\ty\t{label}\n") -> str:
    return "a\tb\tlabel\n" + "".join(line.format(i=i, third=i // 3, label=("no", "yes")[i % 2]) for i in range(rows))


def test_splits_are_stable_and_disjoint(project):
    splits = {split: tasks.read("data/tasks/same", split) for split in ("train", "dev", "test")}
    pairs = {split: {(row.text_a, row.text_b) for row in rows} for split, rows in splits.items()}
    assert not pairs["train"] & pairs["dev"] and not pairs["train"] & pairs["test"] and not pairs["dev"] & pairs["test"]
    assert sum(map(len, splits.values())) == 150
    assert {row.label for row in splits["train"]} == {"no", "yes"}


def test_examples_that_are_in_train_too_are_counted(prepare, capsys):
    """To the letter, and but for case and punctuation; in the card and once on the console."""
    train = "a\tb\tlabel\n" + "".join(f"A man, {i}.\tsings\t{('no', 'yes')[i % 2]}\n" for i in range(20))
    dev = train.replace("A man, 3.", "a MAN 3").replace("A man, 4.", "a dog 4")
    test = "a\tb\tlabel\n" + "".join(f"new {i}\tsings\tyes\n" for i in range(3)) + "sings\tA man, 3.\tyes\nSings\ta man 4\tno\n"
    both = {"dev": {"source": files("dev.tsv")}, "test": {"source": files("test.tsv")}}
    prepare({"train.tsv": train, "dev.tsv": dev, "test.tsv": test}, train={"source": files("train.tsv")}, **both)
    card = json.loads(Path("data/tasks/same/card.json").read_text())
    assert card["dev"]["in_train"] == {"exact": 18, "normalised": 19, "other_order": 0}
    assert card["test"]["in_train"] == {"exact": 0, "normalised": 0, "other_order": 2} and "in_train" not in card["train"]
    out = capsys.readouterr().out
    assert out.count("dev: 19 of 20 examples are also in train, 18 of them identical") == 1
    assert out.count("test: 2 of 5 pairs are in train in the other order") == 1 and "dev: 0 of" not in out


def test_repeated_examples_are_counted(prepare, capsys):
    """Five examples have the texts of an earlier one, two of them the other label."""
    train = same(20) + "x0\ty\tno\n" + "x1\ty\tyes\n" * 2 + "x2\ty\tyes\nx3\ty\tno\n"
    both = {split: {"source": files(f"{split}.tsv")} for split in ("train", "dev", "test")}
    new = same(8, "new {i}\ty\t{label}\n")
    prepare({"train.tsv": train, "dev.tsv": new, "test.tsv": new}, **both)
    out = capsys.readouterr().out
    assert out.count("train: 5 of 25 examples repeat the texts of another one, 2 of them with another label") == 1
    assert "dev: 0" not in out


def test_premises_on_both_sides_of_a_split_are_counted(prepare, capsys):
    """Rows of one premise are divided, unless a `group` keeps them together."""
    lines = "a\tb\tlabel\n" + "".join(f"premise {i // 3}\thypothesis {i}\t{('no', 'yes')[i % 2]}\n" for i in range(90))
    shares = {"train": {"source": files("train.tsv")}, "dev": {"share": 0.2}, "test": {"share": 0.2}}
    splits = prepare({"train.tsv": lines}, **shares)
    known = {row.text_a for row in splits["train"]}
    shared, size = sum(row.text_a in known for row in splits["dev"]), len(splits["dev"])
    out = capsys.readouterr().out
    assert shared > 5 and f"dev: {shared} of {size} pairs have a first text that is in train in another pair" in out
    splits = prepare({"train.tsv": lines}, **shares, table={**PAIRS, "group": "a"})
    assert not {row.text_a for row in splits["train"]} & {row.text_a for row in splits["dev"]}
    assert "first text" not in capsys.readouterr().out


def test_a_pair_and_its_other_order_stay_on_one_side(prepare):
    rows = [f"one {i}\tother {i}\tyes\nother {i}\tone {i}\tno\n" for i in range(60)]
    splits = prepare({"train.tsv": "a\tb\tlabel\n" + "".join(rows)}, train={"source": files("train.tsv")},
                     dev={"share": 0.2}, test={"share": 0.2})  # fmt: skip
    sides = [{frozenset((row.text_a, row.text_b)) for row in there} for there in splits.values()]
    assert sum(map(len, sides)) == 60 == len(set.union(*sides))


def test_two_columns_of_one_name_are_refused(prepare):
    with pytest.raises(SesameError, match=r"train\.csv, line 1: two columns of the header are called 'b'; rename one"):
        prepare({"train.csv": "a,b,b,label\nx,y,z,no\n"}, train={"source": files("train.csv")}, table=PAIRS | {"format": "csv"})


def test_groups_stay_on_one_side(prepare):
    splits = prepare({"pairs.tsv": same(300, "premise {third}\thypothesis {i}\t{label}\n")}, table={**PAIRS, "group": "a"})
    sides = [{row.text_a for row in rows} for rows in splits.values()]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    assert all(row.group is None for rows in splits.values() for row in rows)  # no metric judges these groups
    for rows in splits.values():  # but an interval takes those of one premise together
        premises = Counter(row.text_a for row in rows)
        assert all((row.cluster is None) == (premises[row.text_a] == 1) for row in rows)
        assert len({(row.text_a, row.cluster) for row in rows}) == len(premises) == len({row.cluster or row.text_a for row in rows})


def test_rows_without_a_group_are_not_one_group(prepare):
    lines = "a\tb\tlabel\tquery\n" + "x\ty\tno\t1\nx\tz\tyes\t \n" * 20
    with pytest.raises(SesameError, match=r"pairs\.tsv, line 3: column 'query' is empty, where a group is wanted"):
        prepare({"pairs.tsv": lines}, table={**PAIRS, "group": "query"})


def test_groups_of_rows_are_kept_for_the_metric_that_judges_them(prepare):
    extra = {"source": files("pairs.tsv"), "table": {**PAIRS, "group_rows": 2}, "metrics": ["accuracy", "gender_parity"]}
    splits = prepare({"pairs.tsv": same(60)}, extra={"axg": extra})
    assert [row.group for row in splits["axg"][:4]] == ["axg-0", "axg-0", "axg-1", "axg-1"]


SEARCH = {"kind": "regression", "labels": [], "range": [0, 1], "metrics": ["mrr"]}
RELEVANT = {**PAIRS, "group": "a", "label_names": {"no": "0", "yes": "1"}}


def test_candidates_of_a_search_keep_their_query_and_their_relevance(prepare):
    """The labels in the file are words; the card says how many queries have candidates that can be ranked."""
    lines = "".join(f"query {i}\tright {i}\tyes\n" + f"query {i}\twrong {i}\tno\n" * (i % 2) for i in range(80))
    splits = prepare({"pairs.tsv": "a\tb\tlabel\n" + lines}, **SEARCH, table=RELEVANT)
    rows = [row for split in splits.values() for row in split]
    assert all(row.group == row.text_a and row.label == float(row.text_b.startswith("right")) for row in rows)
    card = json.loads(Path("data/tasks/same/card.json").read_text())
    assert sum(card[split]["groups"] for split in splits) == 80 and sum(card[split]["ranked"] for split in splits) == 40


def test_thresholds_and_dropped_labels(prepare):
    lines = "a\tb\tlabel\n" + "".join(f"x{i}\ty\t{value}\n" for i, value in enumerate([-1.5, 0, 0.5, 3] * 20)) + "z\ty\t-\n"
    splits = prepare({"pairs.tsv": lines}, table={**PAIRS, "thresholds": [0.0], "drop_labels": ["-"]})
    labels = [row.label for rows in splits.values() for row in rows]
    assert labels.count("yes") == 40 == labels.count("no")
    assert tasks.card("data/tasks/same")["dropped"] == {"train: label -": 1}


CHOICE = {"kind": "choice", "labels": [], "metrics": ["accuracy"], "dev": {"share": 0.2}, "test": {"share": 0.2}}
SWAG = {"format": "csv", "header": True, "text_a": "startphrase", "label": "label", "choices": ["ending0", "ending1", "ending2"]}


def test_choices_in_columns(prepare, capsys):
    """As SWAG has them; a row may have fewer than the table has columns."""
    rows = "".join(f"Someone opens door {i}. He,walks in.,,leaves.,{2 * (i % 2)}\n" for i in range(40))
    table = {"train.csv": "startphrase,ending0,ending1,ending2,label\n" + rows}
    splits = prepare(table, **CHOICE, table=SWAG, train={"source": files("train.csv")})
    some = splits["train"][:2]
    assert all(row.choices == {"0": "walks in.", "2": "leaves."} and row.text_b is None for row in some)
    assert {row.label[0] for row in splits["train"]} == {"0", "2"} and sum(map(len, splits.values())) == 40
    assert tasks.card("data/tasks/same")["train"]["choices_mean"] == 2


@pytest.mark.parametrize(
    ("field", "label", "names"),
    [(["a bird", "a tool"], 1, ["0", "1"]), ({"text": ["a bird", "a tool"], "label": ["A", "B"]}, "B", ["A", "B"])],
)
def test_choices_in_one_column(prepare, field, label, names):
    """A list, or the hub's object of ARC and CommonsenseQA."""
    lines = "".join(json.dumps({"question": f"What is {i}?", "choices": field, "answer": label}) + "\n" for i in range(40))
    table = {"format": "jsonl", "text_a": "question", "label": "answer", "choices": ["choices"]}
    splits = prepare({"train.jsonl": lines}, **CHOICE, table=table, train={"source": files("train.jsonl")})
    assert splits["train"][0].choices == dict(zip(names, ["a bird", "a tool"], strict=True))
    assert splits["train"][0].label == [names[1]]


def test_choices_of_the_hub(prepare, tmp_path, monkeypatch):
    """Rows as the hub has them: SWAG's label is a class, CommonsenseQA's choices are lists of an object. The profile's tables read them."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    declared = YAML(typ="safe").load(Path(profiles.__file__).with_name("other.yaml"))["tasks"]
    swag = [{"startphrase": f"Someone opens {i}.", **{f"ending{n}": f"ends {n}" for n in range(4)}, "label": i % 4} for i in range(40)]
    places = {"label": ["A", "B"], "text": ["here", "there"]}
    quiz = [{"id": f"{i}", "question": f"Where is {i}?", "choices": places, "answerKey": "AB"[i % 2]} for i in range(40)]
    for name, rows, names in (("swag", swag, "0123"), ("commonsense_qa", quiz, "AB")):
        dataset = datasets.Dataset.from_list(rows)
        dataset = dataset.cast_column("label", datasets.ClassLabel(names=["0", "1", "2", "3"])) if name == "swag" else dataset
        (tmp_path / name).mkdir()
        dataset.to_parquet(str(tmp_path / name / "train-00000-of-00001.parquet"))
        source = {"source": {"kind": "hub", "path": str(tmp_path / name)}}
        splits = prepare({}, **CHOICE, table=declared[name]["table"], train=source)
        assert {row.label[0] for row in splits["train"]} == {*names} == {*splits["train"][0].choices}


def test_names_of_right_choices_in_the_file_may_differ(prepare):
    rows = "".join(f"Door {i},in,on,out,{'AC'[i % 2]}\n" for i in range(40))
    splits = prepare({"train.csv": "startphrase,ending0,ending1,ending2,label\n" + rows}, **CHOICE,
                     table=SWAG | {"label_names": {"A": "0", "B": "1", "C": "2"}}, train={"source": files("train.csv")})  # fmt: skip
    assert {row.label[0] for row in splits["train"]} == {"0", "2"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"choices": ["one", " "]}, r"line 1: 1 choices with a text; an example needs two"),
        ({"choices": ["one", "one "]}, r"line 1: two choices are the same text; leave one out"),
        ({"choices": "one"}, r"line 1: column 'choices' holds no choices, which are a list of texts"),
        ({"choices": {"text": ["one", "two"], "label": ["A", "A"]}}, r"line 1: column 'choices' has 2 choices and 1 different names"),
        ({"choices": ["one", "two"], "answer": 2}, r"line 1: unknown label '2' \(allowed: 0, 1\)"),
        ({"choices": ["one", "two"], "answer": -1}, r"unknown label '-1' .*is `labelled: false` missing"),
    ],
)
def test_choices_that_are_none_are_one_line(prepare, row, said):
    table = {"format": "jsonl", "text_a": "question", "label": "answer", "choices": ["choices"]}
    with pytest.raises(SesameError, match=said):
        prepare({"train.jsonl": json.dumps({"question": "What?", "answer": 0} | row) + "\n"}, **CHOICE, table=table,
                train={"source": files("train.jsonl")})  # fmt: skip


def test_choices_are_drawn_one_by_one_whatever_metric_judges_them(prepare):
    """Only classification has metrics that judge rows of one text together."""
    rows = "".join(f"Which is right?,one {i},two {i},three {i},0\n" for i in range(40))
    table = {"train.csv": "startphrase,ending0,ending1,ending2,label\n" + rows}
    own = {"dev": {"source": files("train.csv")}, "test": {"source": files("train.csv")}}
    splits = prepare(table, **(CHOICE | own | {"metrics": ["accuracy", "exact_match"]}), table=SWAG, train={"source": files("train.csv")})
    assert all(row.group is None for row in splits["train"]) and len(tasks.subset(splits["train"], 10, 1)) == 10


def test_python_numbers_with_underscores_are_no_scores(prepare):
    score = {"kind": "regression", "labels": [], "metrics": ["pearson"], "train": {"source": files("train.tsv")}}
    with pytest.raises(SesameError, match=r"train\.tsv, line 2: the label is '1_5', not a number"):
        prepare({"train.tsv": "a\tb\tlabel\nx\ty\t1_5\n"}, **score)


def test_cola_has_no_header_but_its_test_set_has(prepare):
    train = "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tWhat did and?\n"
    table = {"format": "tsv", "fields": 4, "text_a": 3, "label": 1, "label_names": {"0": "unacceptable", "1": "acceptable"}}
    test_table = {"format": "tsv", "header": True, "id": "index", "text_a": "sentence"}
    splits = prepare(
        {"train.tsv": train, "test.tsv": 'index\tsentence\n0\tSay "no.\n1\tYes.\n'},
        labels=["unacceptable", "acceptable"],
        metrics=["matthews_correlation"],
        table=table,
        train={"source": files("train.tsv")},
        dev={"source": files("train.tsv")},
        test={"source": files("test.tsv"), "labelled": False, "table": test_table},
    )
    assert [(row.id, row.text_a, row.label) for row in splits["train"]] == [
        ("train-0", "Our friends won't buy it.", "acceptable"), ("train-1", "What did and?", "unacceptable")
    ]  # fmt: skip
    assert [(row.id, row.text_a, row.label) for row in splits["test"]] == [("0", 'Say "no.', None), ("1", "Yes.", None)]
    card = tasks.card("data/tasks/same")
    assert card["train"]["labels"] == {"unacceptable": 0.5, "acceptable": 0.5}
    assert (card["test"]["rows"], card["test"]["labelled"]) == (2, False)


def test_quotes_and_spaces_at_the_end_of_a_tsv(prepare):
    """SST-2 ends its sentences with a space, MRPC's lone quotes are text."""
    text = 'sentence\tlabel\nhide new secretions \t0\nhe said " the "foodservice \t1\n'
    split = {"source": files("t.tsv")}
    table = {"format": "tsv", "header": True, "text_a": "sentence", "label": "label", "label_names": {"0": "no", "1": "yes"}}
    splits = prepare({"t.tsv": text}, table=table, train=split, dev=split, test=split)
    assert [(row.text_a, row.label) for row in splits["dev"]] == [("hide new secretions", "no"), ('he said " the "foodservice', "yes")]


def test_lines_are_taken_apart_by_a_pattern(prepare):
    split = {"source": files("trec.txt")}
    table = {"format": "lines", "pattern": r"(?P<label>[A-Z]+):\S+ (?P<text>.*)", "text_a": "text", "label": "label"}
    splits = prepare(
        {"trec.txt": "NUM:dist How far : is it ?\nHUM:ind Who ?\n"}, labels=["HUM", "NUM"], table=table, train=split, dev=split, test=split
    )
    assert [(row.text_a, row.label) for row in splits["train"]] == [("How far : is it ?", "NUM"), ("Who ?", "HUM")]
    with pytest.raises(SesameError, match="trec.txt, line 2: does not fit the pattern"):
        prepare({"trec.txt": "NUM:dist How far\nWho ?\n"}, labels=["HUM", "NUM"], table=table, train=split, dev=split, test=split)


def test_jsonl_with_true_and_false(prepare):
    rows = [{"passage": "p", "question": f"q{i}", "idx": i, "label": i % 2 == 0} for i in range(4)]
    split = {"source": files("boolq.jsonl")}
    table = {"format": "jsonl", "id": "idx", "text_a": "passage", "text_b": "question", "label": "label"}
    text = "".join(json.dumps(row) + "\n" for row in rows)
    splits = prepare({"boolq.jsonl": text}, labels=["false", "true"], table=table, train=split, dev=split, test=None)
    assert [(row.id, row.label) for row in splits["train"]] == [("0", "true"), ("1", "false"), ("2", "true"), ("3", "false")]
    assert list(splits) == ["train", "dev"]


def test_quoted_csv_declared_by_a_user(prepare):
    split = {"source": files("mine.csv")}
    table = {"format": "csv", "header": True, "id": "number", "text_a": "text", "label": "mood", "label_names": {":(": "no"}}
    splits = prepare(
        {"mine.csv": 'number,text,mood\r\n7,"well, ""so""",:(\r\n9,fine,yes\r\n'}, table=table, train=split, dev=split, test=split
    )
    assert [(row.id, row.text_a, row.label) for row in splits["test"]] == [("7", 'well, "so"', "no"), ("9", "fine", "yes")]


@pytest.mark.parametrize(
    ("lines", "changes", "said"),
    [
        ("x\ty\tno\nx\ty\tmaybe\n", {}, r"pairs.tsv, line 3: unknown label 'maybe' \(allowed: no, yes\)"),
        ("x\ty\t-1\n", {}, "line 2: unknown label '-1' .*-1 stands for no label: is `labelled: false` missing"),
        ("x\ty\tno\nx\tno\n", {}, "pairs.tsv, line 3: 3 fields expected, 2 found"),
        ("x\ty\tno\n", {"table": {**PAIRS, "label": "gold"}}, r"pairs.tsv, line 2: no column 'gold' \(there are: a, b, label\)"),
        (
            "7\ty\tno\n8\ty\tno\n7\tz\tno\n",
            {"table": {**PAIRS, "id": "a"}},
            "pairs.tsv, line 4: the id '7' is taken by raw/pairs.tsv, line 2",
        ),
        ("x\ty\tbig\n", {"kind": "regression", "labels": [], "metrics": ["pearson"]}, "line 2: the label is 'big', not a number"),
        ("x\ty\tnan\n", {"kind": "regression", "labels": [], "metrics": ["pearson"]}, "line 2: the label is 'nan', not a number"),
        (
            "x\ty\t6\n",
            {"kind": "regression", "labels": [], "metrics": ["pearson"], "range": [0, 5]},
            "line 2: the label 6 is outside the task's range",
        ),
        ("x\ty\tno\n", {"dev": {"source": files("absent.tsv")}}, "nothing at 'raw/absent.tsv'"),
        ("x\ty\tno\n", {}, "tasks.same.(train|dev|test): no examples"),
    ],
)
def test_a_mistake_in_the_data_is_one_line_and_leaves_nothing(prepare, tmp_path, lines, changes, said):
    with pytest.raises(SesameError, match=said) as caught:
        prepare({"pairs.tsv": "a\tb\tlabel\n" + lines}, **changes)
    assert len(str(caught.value).splitlines()) == 1 and not list((tmp_path / "data").glob("**/*"))


SPLIT = {"source": files("pairs.tsv")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dev": None}, "tasks.same.dev: Input should be"),
        ({"train": {**SPLIT, "labelled": False}}, "tasks.same: train and dev need labels"),
        (
            {"table": {key: value for key, value in PAIRS.items() if key != "label"}},
            "tasks.same: train is labelled, but its table names no label column",
        ),
        ({"labels": ["a", "b", "c"], "metrics": ["f1"]}, "tasks.same: metric f1 needs two labels"),
        ({"metrics": ["gender_parity"]}, "tasks.same: metric gender_parity of train needs a group in its table"),
        (
            {**SEARCH, "metrics": ["pearson"], "table": {**PAIRS, "thresholds": [1.0]}},
            "tasks.same: thresholds of train make labels out of numbers, and a regression has none; leave them out",
        ),
        ({**SEARCH, "table": {**RELEVANT, "group": None}}, "tasks.same: metric mrr of train needs a group in its table"),
        ({**SEARCH, "table": RELEVANT, "range": [-1, 1]}, "tasks.same: metric mrr of train ranks by labels of 0 or more; give"),
        (
            {**SEARCH, "table": RELEVANT, "range": [1, 4]},
            "tasks.same: metric mrr of train takes 0 for irrelevant, and range begins at 1; take ndcg",
        ),
        ({"table": {**PAIRS, "group": "a", "group_rows": 2}}, "tasks.same.table: give either group or group_rows"),
        ({"table": {**PAIRS, "group": PAIRS["label"]}}, f"tasks.same.table: group and label are both column {PAIRS['label']!r}"),
        ({"table": {**PAIRS, "label_names": {"1": "maybe"}}}, "tasks.same: label_names of train give maybe, not among labels"),
        (
            {"table": {"format": "lines", "text_a": "t", "label": "l"}},
            "tasks.same.table: format lines needs a pattern, whose named groups are the columns",
        ),
        ({"table": {**PAIRS, "pattern": "(?P<t>.*)"}}, "tasks.same.table: pattern has no effect: it is for format: lines, not tsv; leave"),
        (
            {"table": {"format": "lines", "pattern": "(?P<t>.*", "text_a": "t", "label": "t"}},
            "tasks.same.table: pattern is not a valid regular expression",
        ),
        (
            {"table": {"format": "lines", "pattern": "(?P<t>.*)", "text_a": "t", "label": "l"}},
            "tasks.same.table: label: the pattern has no group named 'l' .it has: t",
        ),
        ({"kind": "extraction", "labels": []}, "tasks.same: kind extraction has a reader .squad., and no table"),
        ({"kind": "choice", "labels": []}, "tasks.same: choices of train: kind choice needs the columns of its choices"),
        ({"table": {**PAIRS, "choices": ["c"]}}, "tasks.same: choices of train: kind classification has no choices"),
        (
            {"kind": "choice", "labels": [], "table": {"format": "csv", "text_a": 0, "label": 3, "choices": [1, 2, 3]}},
            "tasks.same.table: label and choices are both column 3",
        ),
        (
            {"table": {"format": "lines", "pattern": "(?P<t>.*)(?P<l>.)", "text_a": "t", "label": "l", "choices": ["c"]}},
            "tasks.same.table: choices: the pattern has no group named 'c'",
        ),
        (
            {"kind": "choice", "labels": [], "table": {**PAIRS, "choices": ["c", "d"]}},
            "tasks.same: text_b of train: the second texts of a choice task are its choices",
        ),
        ({"table": None, "reader": "squad"}, "tasks.same: reader squad reads a task of kind extraction"),
        ({"table": None, "reader": "wic"}, 'tasks.same: the labels of reader wic are ."false", "true".'),
        (
            {"kind": "tagging", "table": None, "reader": "conll", "labels": ["NOUN", "O"], "metrics": ["f1"]},
            "tasks.same: metric f1 of a tagging task counts entities",
        ),
        ({"extra": {"dev": SPLIT}}, "tasks.same: extra: dev is a key next to extra"),
        ({"dev": {"share": 0.1, "labelled": False}}, "tasks.same.dev: a split that is a share of train has train's labels"),
    ],
)
def test_a_mistake_in_the_declaration_is_one_line(changes, said):
    raw = tiny_params()
    raw["tasks"]["same"] |= changes
    with pytest.raises(SesameError, match=said) as caught:
        params.check(raw)
    assert len(str(caught.value).splitlines()) == 1


def test_a_split_that_is_not_there(project):
    with pytest.raises(SesameError, match=r"task same has no split ax \(there are: dev, test, train\)"):
        tasks.read("data/tasks/same", "ax")
    with pytest.raises(SesameError, match="sesame run task@other"):
        tasks.read("data/tasks/other", "dev")


def test_subsets_are_nested_and_seeded():
    rows = [tasks.Example(str(i), "a", None, "x") for i in range(100)]
    small, large = tasks.subset(rows, 10, 1), tasks.subset(rows, 50, 1)
    assert len(small) == 10 and small == large[:10] and tasks.subset(rows, 10, 2) != small and tasks.subset(rows, None, 1) == rows


def test_subsets_are_of_whole_groups():
    rows = [tasks.Example(str(i), "a", None, "x", group=str(i // 3)) for i in range(90)]
    small, large = tasks.subset(rows, 10, 1), tasks.subset(rows, 50, 1)
    assert len(small) == 9 and len(large) == 48 and small == large[:9]
    assert {len([row for row in large if row.group == group]) for group in {row.group for row in large}} == {3}
    assert len(tasks.subset(rows, 1, 1)) == 3


def test_rows_with_an_empty_text_teach_nothing_but_are_judged(prepare):
    splits = prepare(
        {"pairs.tsv": same(60) + "\ty\tno\nx\t \tyes\n", "dev.tsv": "a\tb\tlabel\nx\t\tno\nx\ty\tyes\n"},
        dev={"source": files("dev.tsv")},
        test=None,
    )
    card = tasks.card("data/tasks/same")
    assert len(splits["train"]) == 60 and card["dropped"] == {"train: empty text": 2} and "empty" not in card["train"]
    assert len(splits["dev"]) == 2 and card["dev"]["empty"] == 1


def test_scores_that_can_judge_no_model_are_refused(prepare):
    scores = {"kind": "regression", "labels": [], "metrics": ["pearson"], "label_names": {"no": "1", "yes": "1"}}
    table = {**PAIRS, "label_names": scores.pop("label_names")}
    with pytest.raises(SesameError, match="tasks.same.train: all .* examples have the score 1; scores must differ"):
        prepare({"pairs.tsv": same(60)}, **scores, table=table)
    with pytest.raises(SesameError, match="tasks.same.train: no group has candidates of different relevance, so there is nothing"):
        prepare({"pairs.tsv": same(60)}, **SEARCH, table=RELEVANT)


def test_one_label_only_and_no_rows_name_the_place(prepare):
    with pytest.raises(SesameError, match="tasks.same.train: all .* examples are 'no'; to classify"):
        prepare({"pairs.tsv": same(60, "x{i}\ty\tno\n")})
    with pytest.raises(SesameError, match="tasks.same.train: no examples in raw/pairs.tsv; give it"):
        prepare({"pairs.tsv": same(0)})


def test_rows_that_no_share_divides_and_a_label_that_never_occurs_are_refused(prepare):
    shares = {"train": {"source": files("pairs.tsv")}, "dev": {"share": 0.2}, "test": {"share": 0.2}}
    grouped = "g\ta\tb\tlabel\n" + "".join(f"x\ta {i}\tb\t{('no', 'yes')[i % 2]}\n" for i in range(40))
    with pytest.raises(SesameError, match="all rows of raw.pairs.tsv are one group .*; give dev and test a source"):
        prepare({"pairs.tsv": grouped}, table=PAIRS | {"group": "g"}, **shares)
    with pytest.raises(SesameError, match="tasks.same.labels: no example of any split is 'perhaps'; leave it out, or mend its name"):
        prepare({"pairs.tsv": same(90)}, labels=["no", "yes", "perhaps"], **shares)


def test_a_pattern_without_end_and_half_a_surrogate_are_said_with_their_line(prepare):
    """A pattern with repetitions within repetitions would try a line of forty letters for years."""
    source, lines = {"train": {"source": files("rows.txt")}}, "".join(f"{'a' * 40}!\n" for _ in range(3))
    table = {"format": "lines", "pattern": r"(?P<a>(a|aa)+)$(?P<label>x)", "text_a": "a", "label": "label"}
    with pytest.raises(SesameError, match=r"raw/rows.txt, line 1: the pattern .* takes more than \d+ s: 'aaa"):
        prepare({"rows.txt": lines}, table=table, **source)
    row = r'{"a": "x \ud800", "b": "y", "label": "yes"}' + "\n"
    with pytest.raises(SesameError, match="line 1: half of a surrogate pair .*; write the whole pair, or U.FFFD$"):
        prepare({"rows.txt": row * 3}, table={"format": "jsonl", "text_a": "a", "text_b": "b", "label": "label"}, **source)
