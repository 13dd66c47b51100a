"""Files that are no plain table, in their published layout and in the hub's."""

import json
from pathlib import Path

import datasets
import pytest

from components import params, tasks
from components.core.errors import SesameError
from components.core.tracking import Run
from components.tasks import Example, readers
from components.tasks import __main__ as task_stage
from tests.conftest import tiny_params

TRUTH = ["false", "true"]


def task(reader: str, labels: list[str] | None = None) -> params.Task:
    raw, kind = tiny_params(), params.tasks.READ_AS[reader]
    metrics = {"classification": ["accuracy"], "tagging": ["accuracy"], "choice": ["accuracy"], "extraction": ["f1"]}[kind]
    raw["tasks"]["same"] |= {"kind": kind, "table": None, "reader": reader, "labels": labels or [], "metrics": metrics}
    return params.check(raw).tasks["same"]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Rows as JSONL, or a file's text, through a reader."""
    monkeypatch.chdir(tmp_path)

    def run(
        reader: str, content: list[dict] | str, labelled: bool = True, labels: list[str] | None = None
    ) -> list[tuple[str, str, Example]]:
        text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
        (tmp_path / "f").write_text(text, encoding="utf-8")
        source = params.FilesSource(kind="files", paths=["f"])
        return list(readers.load(reader)(task(reader, labels), source, "train", labelled))

    return run


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Rows as a local parquet set with the hub's features, through a reader."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def run(
        reader: str, rows: list[dict], features: dict | None = None, labelled: bool = True, labels: list[str] | None = None
    ) -> list[Example]:
        folder = tmp_path / reader
        folder.mkdir(exist_ok=True)
        dataset = datasets.Dataset.from_list(rows)
        for column, feature in (features or {}).items():
            dataset = dataset.cast_column(column, feature)
        dataset.to_parquet(str(folder / "train-00000-of-00001.parquet"))
        source = params.HubSource(kind="hub", path=str(folder))
        return [example for _, _, example in readers.load(reader)(task(reader, labels), source, "train", labelled)]

    return run


COPA = {
    "premise": "My body cast a shadow.",
    "choice1": "The sun was rising.",
    "choice2": "The grass was cut.",
    "question": "cause",
    "label": 0,
    "idx": 3,
}


def test_copa(read, hub):
    expected = Example(
        "3",
        "My body cast a shadow. What was the cause of this?",
        None,
        ["0"],
        choices={"0": "The sun was rising.", "1": "The grass was cut."},
    )
    assert read("copa", [COPA]) == [("f, line 1", "My body cast a shadow.", expected)]
    assert hub("copa", [COPA], {"label": datasets.ClassLabel(names=["choice1", "choice2"])}) == [expected]
    [(_, _, effect)] = read("copa", [COPA | {"question": "effect", "label": -1}], labelled=False)
    assert effect.text_a.endswith("What happened as a result?") and effect.label is None
    with pytest.raises(SesameError, match="f, line 1: unknown label '-1'"):
        read("copa", [COPA | {"label": -1}])
    with pytest.raises(SesameError, match="f, line 1: no column 'label'"):
        read("copa", [{key: value for key, value in COPA.items() if key != "label"}])


def test_multirc_nested_and_flat(read, hub):
    answers = [{"text": "Yes", "idx": 5, "label": 1}, {"text": "No", "idx": 6, "label": 0}]
    nested = {"idx": 2, "version": 1.1, "passage": {"text": "P. ", "questions": [{"question": "Q?", "answers": answers, "idx": 4}]}}
    expected = [Example("2-4-5", "P.", "Q? Yes", "true", group="2-4"), Example("2-4-6", "P.", "Q? No", "false", group="2-4")]
    assert [(group, row) for _, group, row in read("multirc", [nested], labels=TRUTH)] == [("2", row) for row in expected]
    flat = [
        {
            "paragraph": "P. ",
            "question": "Q?",
            "answer": answer["text"],
            "label": answer["label"],
            "idx": {"paragraph": 2, "question": 4, "answer": answer["idx"]},
        }
        for answer in answers
    ]
    assert hub("multirc", flat, {"label": datasets.ClassLabel(names=["False", "True"])}, labels=TRUTH) == expected
    for answer in answers:
        del answer["label"]
    assert [row.label for _, _, row in read("multirc", [nested], labelled=False, labels=TRUTH)] == [None, None]
    with pytest.raises(SesameError, match="f, line 1: no column 'label'"):
        read("multirc", [nested], labels=TRUTH)


def test_record_counts_the_last_character_in_and_each_entity_once(read, hub):
    body = "Ann met Bob.\n@highlight\nAnn left Bo"
    spans = [{"start": 0, "end": 2}, {"start": 8, "end": 10}, {"start": 24, "end": 26}, {"start": 33, "end": 34}]
    query = {
        "query": "@placeholder said so.",
        "idx": 9,
        "answers": [{"start": 0, "end": 2, "text": "Ann"}, {"start": 24, "end": 26, "text": "Ann"}],
    }
    row = {"passage": {"text": body, "entities": spans}, "qas": [query], "idx": 1}
    choices = {"Ann": "Ann said so.", "Bob": "Bob said so.", "Bo": "Bo said so."}
    expected = Example("9", "Ann met Bob. Ann left Bo", None, ["Ann"], choices=choices)
    assert [example for _, _, example in read("record", [row])] == [expected]
    flat = {
        "passage": body,
        "query": query["query"],
        "entities": ["Ann", "Bob", "Bo"],
        "answers": ["Ann"],
        "idx": {"passage": 1, "query": 9},
    }
    assert hub("record", [flat]) == [expected]
    assert hub("record", [flat | {"answers": []}], labelled=False)[0].label is None
    with pytest.raises(SesameError, match="f, line 1: the entity at 33 to 35 is outside its passage of 35 characters"):
        read("record", [row | {"passage": {"text": body, "entities": [{"start": 33, "end": 35}]}}])
    with pytest.raises(SesameError, match=r"f, line 1: the answer Eve is not among the entities \(Ann, Bob, Bo\)"):
        read("record", [row | {"qas": [query | {"answers": [{"text": "Eve"}]}]}])
    with pytest.raises(SesameError, match="f, line 1: no @placeholder in the query"):
        read("record", [row | {"qas": [query | {"query": "Who?"}]}])


WIC = {
    "word": "run",
    "sentence1": "I ran.",
    "sentence2": "A run of luck",
    "start1": 2,
    "end1": 5,
    "start2": 2,
    "end2": 5,
    "idx": 0,
    "label": True,
}


def test_wic_marks_the_form_that_stands_there(read, hub):
    expected = Example("0", "I *ran*.", "A *run* of luck", "true", spans=[("text_a", 2, 7), ("text_b", 2, 7)])
    assert read("wic", [WIC], labels=TRUTH) == [("f, line 1", "run", expected)]
    assert hub("wic", [WIC | {"label": 1}], {"label": datasets.ClassLabel(names=["False", "True"])}, labels=TRUTH) == [expected]
    with pytest.raises(SesameError, match="f, line 1: the word at 2 to 9 is outside sentence1 of 6 characters"):
        read("wic", [WIC | {"end1": 9}], labels=TRUTH)


def wsc(text: str, span1: str, index1: int, span2: str, index2: int, label: bool = False) -> dict:
    return {
        "text": text,
        "target": {"span1_text": span1, "span1_index": index1, "span2_text": span2, "span2_index": index2},
        "idx": 0,
        "label": label,
    }


@pytest.mark.parametrize(
    ("row", "marked"),
    [
        (wsc("Mark  told Pete, and\nhe left.", "Pete", 2, "he", 4), "Mark  told *Pete*, and\n#he# left."),
        (wsc("The cat saw the dog. It ran.", "The dog", 3, "It", 5), "The cat saw *the dog*. #It# ran."),  # the case differs
        (wsc("A b c hit it.", "b c.", 1, "it", 4), "A *b c* hit #it#."),  # a full stop that is not there
        (wsc("a \n new line it", "new line", 1, "it", 2), "a \n *new line* #it#"),  # the index is off by one
        (wsc("for their mothers are", "their mothers", 1, "their", 1), "for *#their# mothers* are"),
        (wsc("Lev Kamenev, and Zinoviev urged them", "Kamenev and Zinoviev", 0, "them", 5), "*Lev Kamenev, and* Zinoviev urged #them#"),
        (wsc("item it", "item", 0, "it", 0), "*item* #it#"),  # not the beginning of another word
        (wsc('Al (he) said "It is Al\'s."', "Al", 0, "he", 1), '*Al* (#he#) said "It is Al\'s."'),
        (wsc('"Mary" saw "it".', "Mary", 0, "it", 2), '"*Mary*" saw "#it#".'),
    ],
)
def test_wsc_counts_words_between_white_space(read, row, marked):
    [(_, _, example)] = read("wsc", [row], labels=TRUTH)
    assert example.text_a == marked and example.label == "false"
    shown = [example.text_a[first:end] for _, first, end in example.spans]
    assert shown[0][0] == shown[0][-1] == "*" and shown[1][0] == shown[1][-1] == "#"


def test_wsc_on_the_hub_and_its_mistakes(read, hub):
    flat = {
        "text": "Mark left as he must",
        "span1_index": 0,
        "span2_index": 3,
        "span1_text": "Mark",
        "span2_text": "he",
        "idx": 0,
        "label": 1,
    }
    [example] = hub("wsc", [flat], {"label": datasets.ClassLabel(names=["False", "True"])}, labels=TRUTH)
    assert (example.text_a, example.label) == ("*Mark* left as #he# must", "true")
    assert hub("wsc", [flat | {"label": -1}], labelled=False, labels=TRUTH)[0].label is None
    with pytest.raises(SesameError, match="f, line 1: 'she' is not at word 3 of its text, 'he must' is there"):
        read("wsc", [flat | {"span2_text": "she"}], labels=TRUTH)
    with pytest.raises(SesameError, match="f, line 1: 'he' is not at word 30 of its text, there are only 5 words there"):
        read("wsc", [flat | {"span2_index": 30}], labels=TRUTH)


def squad(*answers: tuple[str, int]) -> str:
    asked = {"id": "q1", "question": " Who? ", "answers": [{"text": text, "answer_start": start} for text, start in answers]}
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": " Ann and Ann, or Bob", "qas": [asked]}]}]})


def test_squad_2_has_questions_without_an_answer(tmp_path, monkeypatch, capsys):
    """They stay in train, where an example without a text is left out, and are counted."""
    monkeypatch.chdir(tmp_path)
    published = json.loads(squad(("Ann", 1)))
    [paragraph] = published["data"][0]["paragraphs"]
    paragraph["qas"].append({"id": "q2", "question": "When?", "answers": [], "is_impossible": True})
    Path("f").write_text(json.dumps(published))
    raw = tiny_params()
    block = {"kind": "extraction", "reader": "squad", "unanswerable": True, "metrics": ["f1"], "licence": "none"}
    splits = {split: {"source": {"kind": "files", "paths": ["f"]}} for split in ("train", "dev")}
    raw["tasks"]["asked"] = block | splits
    task_stage.prepare(params.check(raw), "asked", Run(None))
    assert "train 2 (1 without an answer), dev 2 (1 without an answer)\n" in capsys.readouterr().out
    assert [(example.label, example.spans) for example in tasks.read("data/tasks/asked", "train")] == [
        (["Ann"], [("text_b", 1, 4)]), ([""], None),
    ]  # fmt: skip
    assert json.loads(Path("data/tasks/asked/card.json").read_text())["dev"]["unanswerable"] == 1


def test_squad_keeps_the_places_of_its_answers(read, hub):
    spans = [("text_b", 1, 4), ("text_b", 9, 12), ("text_b", 17, 20)]
    expected = Example("q1", "Who?", " Ann and Ann, or Bob", ["Ann", "Bob"], spans=spans)
    assert read("squad", squad(("Ann", 1), ("Ann", 9), ("Ann", 1), ("Bob", 17))) == [("f: question q1", " Ann and Ann, or Bob", expected)]
    row = {
        "id": "q1",
        "title": "t",
        "context": " Ann and Ann, or Bob",
        "question": "Who?",
        "answers": {"text": ["Ann", "Ann", "Bob"], "answer_start": [1, 9, 17]},
    }
    assert hub("squad", [row]) == [expected]
    [(_, _, unlabelled)] = read("squad", squad(), labelled=False)
    assert unlabelled.label is None and unlabelled.spans is None
    with pytest.raises(SesameError, match="f: question q1: the answer 'Ann' is not at character 2 of its context"):
        read("squad", squad(("Ann", 2)))
    with pytest.raises(SesameError, match="f: question q1: the answer 'Bob' is not at character 90 of its context"):
        read("squad", squad(("Bob", 90)))
    with pytest.raises(SesameError, match="f: question q1: no answer; with `unanswerable: true` the task has questions without one"):
        read("squad", squad())
    with pytest.raises(SesameError, match="f: not valid JSON"):
        read("squad", '{"data": [')
    with pytest.raises(SesameError, match=r"f: no column 'data' \(there are: rows\)"):
        read("squad", '{"rows": []}')


TAGS = ["O", "B-person", "I-person"]


def test_conll(read, hub):
    """WNUT-17 separates sentences by a tab, CoNLL-2003 by an empty line, its columns by spaces."""
    first = Example("train-0", "Ann Lee left", None, ["B-person", "I-person", "O"], words=["Ann", "Lee", "left"])
    second = Example("train-1", '"', None, ["O"], words=['"'])
    assert [row for *_, row in read("conll", 'Ann\tB-person\nLee\tI-person\nleft\tO\n\t\n"\tO', labels=TAGS)] == [first, second]
    columns = '-DOCSTART- -X- -X- O\n\nAnn NNP B-NP B-person\nLee NNP I-NP I-person\nleft VBD B-VP O\n\n\n" " O O\n'
    assert [row for *_, row in read("conll", columns, labels=TAGS)] == [first, second]
    rows = [{"id": "0", "tokens": ["Ann", "Lee", "left"], "ner_tags": [1, 2, 0]}, {"id": "1", "tokens": ['"'], "ner_tags": [0]}]
    names = datasets.List(datasets.ClassLabel(names=["O", "B-person", "I-person"]))
    assert hub("conll", rows, {"ner_tags": names}, labels=["I-person", "B-person", "O"]) == [first, second]  # by name, in any order
    assert [row.label for *_, row in read("conll", "Ann\nLee\n\nleft\n", labelled=False, labels=TAGS)] == [None, None]
    blanks = "10\u00a0000 B-person\nleft  O\n\u3000\nin\u2009Rome O\n"
    found = [(row.words, row.label) for *_, row in read("conll", blanks, labels=TAGS)]
    assert found == [(["10\u00a0000", "left"], ["B-person", "O"]), (["in\u2009Rome"], ["O"])], "at blanks and tabs alone"
    comments = "# id 1\tdomain=en\nEU\t_\n\n# text = 1 is\n#\t_\n1\t_\n# SYM\n"
    found = [row.words for *_, row in read("conll", comments, labelled=False, labels=TAGS)]
    assert found == [["EU"], ["#", "1", "#"]], "comments before a sentence are no words"
    rows = "# newdoc\n#text = Me\n# sent_id = 1\n#MeToo\tPROPN\tNumber=Sing\tO\n\n# O\nnew O\n"
    found = [row.words for *_, row in read("conll", rows, labels=TAGS)]
    assert found == [["#MeToo"], ["#", "new"]], "hashtags and a sign with its tag are words"
    with pytest.raises(SesameError, match=r"f, line 2: unknown label 'B-place' \(allowed: O, B-person, I-person\)"):
        read("conll", "in\tO\nRome\tB-place\n", labels=TAGS)
    with pytest.raises(SesameError, match="f, line 1: a word and its tag expected, 'Ann' found"):
        read("conll", "Ann\n", labels=TAGS)


def test_every_reader_has_a_kind_and_every_kind_a_reader():
    """The one registry line of a reader stands in params; what is there is found by its name."""
    there = {path.stem for path in Path(readers.__file__).parent.glob("*.py")} - {"__init__", "fields"}
    assert there == params.tasks.READ_AS.keys() and all(callable(readers.load(name)) for name in there)


def test_an_example_survives_its_line():
    example = Example("0", "I *ran*.", "ü", ["a"], group="g", choices={"a": "b"}, words=["x"], spans=[("text_a", 2, 7)])
    line = json.loads(example.line())
    assert line["spans"] == [["text_a", 2, 7]] and "ü" in example.line() and Example("0", "a", None, None).line().count(":") == 4
