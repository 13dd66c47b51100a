"""Rows of every format, and the place of what is wrong."""

import json
from importlib import import_module
from typing import get_args

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from components.core.errors import SesameError
from components.params import FilesSource, HubModelSource, HubSource, Source, TableReader, TaskTable
from components.text import sources
from components.text.sources import tables


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Write bytes to a file and read them as a table."""
    monkeypatch.chdir(tmp_path)

    def read(data: bytes, format: str, **options):
        (tmp_path / "data").write_bytes(data)
        return list(tables.rows(FilesSource(kind="files", paths=["data"]), TableReader(format=format, column=0, **options)))

    return read


def test_tsv_is_unquoted(rows):
    assert rows(b'1\tsay "no\r\n2\t"\n', "tsv") == [("data, line 1", {0: "1", 1: 'say "no'}), ("data, line 2", {0: "2", 1: '"'})]


def test_csv_is_quoted_and_keeps_its_line_numbers(rows):
    table = rows(b'a,b\n"x, y","two\nlines"\n1,2\n', "csv", header=True)
    assert table == [("data, line 3", {"a": "x, y", "b": "two\nlines"}), ("data, line 4", {"a": "1", "b": "2"})]
    with pytest.raises(SesameError, match="data, line 2: not valid CSV"):
        rows(b'a,b\n"x,y\n', "csv")


def test_byte_order_mark_is_removed(rows):
    assert rows(b"\xef\xbb\xbfa\tb\n1\t2\n", "tsv", header=True) == [("data, line 2", {"a": "1", "b": "2"})]


def test_lines_that_end_in_cr_alone(rows):
    """As on Macs before 2001: the file would be one line."""
    with pytest.raises(SesameError, match="^data: one line, with CR in it, and lines end in LF or CRLF: convert"):
        rows(b"a\tb\rc\td\r", "tsv")
    assert rows(b"a\tb\rc\n", "tsv") == [("data, line 1", {0: "a", 1: "b\rc"})]
    assert rows(b"a\tb\r", "tsv") == [("data, line 1", {0: "a", 1: "b"})]


def test_wrong_number_of_fields(rows):
    with pytest.raises(SesameError, match="^data, line 3: 2 fields expected, 3 found$"):
        rows(b"a\tb\nc\td\ne\tf\tg\n", "tsv")
    with pytest.raises(SesameError, match="^data, line 1: 3 fields expected, 2 found$"):
        rows(b"a,b\n", "csv", fields=3)


def test_optional_further_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, table = FilesSource(kind="files", paths=["data"]), TaskTable(format="tsv", fields=2, max_fields=3, text_a=0, label=1)
    (tmp_path / "data").write_text("a\tb\nc\td\te\n")
    assert len(list(tables.rows(source, table))) == 2
    (tmp_path / "data").write_text("a\tb\nc\td\te\tf\n")
    with pytest.raises(SesameError, match="line 2: 2 to 3 fields expected, 4 found"):
        list(tables.rows(source, table))


def test_invalid_utf8(rows):
    with pytest.raises(SesameError, match="data, line 2: invalid UTF-8 .byte 0xe9 at 1"):
        rows(b"a\nb\xe9\n", "tsv")
    assert rows(b"a\nb\xe9\n", "tsv", errors="replace")[1][1] == {0: "b\ufffd"}


def test_jsonl(rows):
    assert rows(b'{"a": 1}\n\n{"a": null}\n', "jsonl") == [("data, line 1", {"a": 1}), ("data, line 3", {"a": None})]
    with pytest.raises(SesameError, match="data, line 2: not valid JSON"):
        rows(b'{"a": 1}\n{"a": \n', "jsonl")
    with pytest.raises(SesameError, match="data, line 1: a JSON object expected, list found"):
        rows(b"[1]\n", "jsonl")


def test_a_missing_column_names_those_there(rows):
    [(place, row)] = rows(json.dumps({"text": "a", "label": 1}).encode(), "jsonl")
    with pytest.raises(SesameError, match=r"data, line 1: no column 'txt' \(there are: text, label\)"):
        tables.value(place, row, "txt")


def test_parquet(tmp_path, rows):
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "n": [1, 2]}), tmp_path / "p")
    assert rows((tmp_path / "p").read_bytes(), "parquet") == [
        ("data, row 1", {"text": "a", "n": 1}),
        ("data, row 2", {"text": "b", "n": 2}),
    ]
    with pytest.raises(SesameError, match="not readable as parquet"):
        rows(b"PAR1 no", "parquet")


def test_hub_reads_a_local_folder_of_parquet(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "set").mkdir()
    parquet.write_table(pyarrow.table({"text": ["a", "b", "c"]}), tmp_path / "set" / "train-00000.parquet")
    source = HubSource(kind="hub", path=str(tmp_path / "set"), max_documents=2)
    assert [row for _, row in tables.rows(source, TableReader(format="parquet", column="text"))] == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(SesameError, match="can't be read"):
        list(tables.rows(HubSource(kind="hub", path=str(tmp_path / "nothing")), TableReader(format="parquet", column="text")))
    with pytest.raises(SesameError, match="has rows and no files"):
        sources.open_files(source)


@pytest.mark.parametrize("source", ["files", "hub"])
def test_numbers_of_32_bits_are_as_they_are_written(tmp_path, monkeypatch, source):
    """0.6 became 0.6000000238418579 (as in polars' issue 15176), which is above a threshold of 0.6."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "set").mkdir()
    file = tmp_path / "set" / "train-00000.parquet"
    written = {f"float{bits}": [0.6, 3.8, 1e-7, None] for bits in (32, 64)}
    parquet.write_table(pyarrow.table(written, schema=pyarrow.schema([(name, name) for name in written])), file)
    block = (
        FilesSource(kind="files", paths=[str(file)]) if source == "files"
        else HubSource(kind="hub", path=str(tmp_path / "set"))
    )  # fmt: skip
    rows = [row for _, row in tables.rows(block, TableReader(format="parquet", column="float32"))]
    assert rows == [dict.fromkeys(written, number) for number in written["float64"]]


def test_hub_gives_class_labels_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "set").mkdir()
    labels = datasets.ClassLabel(names=["entailment", "neutral"])
    rows = datasets.Dataset.from_dict({"label": [0, 1, -1], "tags": [[1], [0, 1], []]}).cast_column("label", labels)
    rows.cast_column("tags", datasets.List(labels)).to_parquet(str(tmp_path / "set" / "train-00000.parquet"))
    named = [
        row for _, row in tables.rows(HubSource(kind="hub", path=str(tmp_path / "set")), TableReader(format="parquet", column="label"))
    ]
    assert [row["label"] for row in named] == ["entailment", "neutral", -1]  # -1 stands for no label
    assert [row["tags"] for row in named] == [["neutral"], ["entailment", "neutral"], []]


def test_every_kind_that_can_be_declared_is_a_file():
    """Found by its name, with `open_rows` or `open_files`; of those today the hub's data sets and images bring rows."""
    blocks = (*get_args(get_args(Source)[0]), HubModelSource)
    kinds = {kind for block in blocks for kind in get_args(block.model_fields["kind"].annotation)}
    assert {kind for kind in kinds if sources.brings_rows(kind)} == {"hub", "images"}
    assert all(callable(import_module(f"components.text.sources.{kind}").open_files) for kind in kinds - {"hub", "images"})


def test_a_field_that_holds_no_text():
    assert tables.text("f, line 1", {"a": True}, "a") == "true" and tables.text("f, line 1", {"a": 3}, "a") == "3"
    with pytest.raises(SesameError, match="f, line 1: column 'a' holds nothing, where text is wanted"):
        tables.text("f, line 1", {"a": None}, "a")
    with pytest.raises(SesameError, match="f, line 1: column 'a' holds nothing, where text is wanted"):
        tables.text("f, line 1", json.loads('{"a": NaN}'), "a")
    with pytest.raises(SesameError, match="f, line 1: column 'a' holds a list, where text is wanted"):
        tables.text("f, line 1", {"a": []}, "a")


def test_bytes_are_no_text(rows):
    """Impala writes strings so (apache/druid's pull request 3381); a text was the letters b'caf\\xc3\\xa9'."""
    made = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"a": pyarrow.array(["café".encode()], pyarrow.binary())}), made)
    [(place, row)] = rows(made.getvalue().to_pybytes(), "parquet")
    with pytest.raises(SesameError, match="data, row 1: column 'a' holds bytes, where text is wanted; write it as strings"):
        tables.text(place, row, "a")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "not readable as JSON: an object has 'a' twice; rename one, or leave it out"),
        ('{"a": {"b": 1, "b": 2}}', "an object has 'b' twice"),
        ('{"a": ' + "[" * 100_000, "data, line 2: not readable as JSON: its lists or objects are nested too deep"),
        ('{"a": ' + "9" * 5000 + "}", "data, line 2: not readable as JSON: a number has thousands of digits; write it"),
        ('{"a": "half \\ud800"}', "data, line 2: half of a surrogate pair"),
    ],
)
def test_json_that_is_no_row_is_one_line(rows, line, said):
    with pytest.raises(SesameError, match=said):
        rows(f'{{"a": 1}}\n{line}'.encode(), "jsonl")


def test_parquet_with_text_that_is_no_utf8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    column = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\x80")])
    parquet.write_table(pyarrow.table({"a": column}), "data")
    with pytest.raises(SesameError, match="data: not readable as parquet after row 0: 'utf-8' codec"):
        list(tables.rows(FilesSource(kind="files", paths=["data"]), TableReader(format="parquet", column="a")))


def test_half_a_surrogate_pair_by_choice_and_a_whole_one(rows):
    [(_, half), (_, whole)] = rows(rb'{"a": "half \ud800"}' + b"\n" + rb'{"a": "\ud83d\ude00"}', "jsonl", errors="replace")
    assert half["a"].startswith("half \ufffd") and whole["a"] == "\U0001f600"
