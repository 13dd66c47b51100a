"""Whatever stands in `params.yaml` or in a file of data: a stage does its work, or says in one line where it can't; never a traceback,
never a minute's silence, never half an output.

`make test` takes a few hundred cases, the same each time.
For longer, with new ones: `SESAME_FUZZ_MINUTES=60 pytest -n 0 tests/test_fuzz.py`.
"""

import gzip
import hashlib
import io
import json
import os
import re
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from ruamel.yaml import YAML

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.stages import stage
from components.tasks import __main__ as task_stage
from components.text.corpora import __main__ as corpus_stage
from tests.conftest import text, tiny_params

MINUTES = float(os.environ.get("SESAME_FUZZ_MINUTES", 0))
DEFAULT = (Path(__file__).parents[1] / "params.yaml").read_bytes()
SECONDS = 60
"""The most that a case may take, by the clock of the process: others may keep it waiting."""

pytestmark = pytest.mark.timeout(0) if MINUTES else []


def explore(holds: Callable, *drawn: st.SearchStrategy, cases: int) -> None:
    """Try a property on `cases` fixed cases, or on ever new ones for this test's quarter of the minutes."""
    common = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    if not MINUTES:
        settings(derandomize=True, max_examples=cases, phases=[Phase.generate, Phase.shrink], **common)(given(*drawn)(holds))()
    end = time.monotonic() + 60 * MINUTES / 4
    while time.monotonic() < end:
        settings(max_examples=200, **common)(given(*drawn)(holds))()


SNIPPETS = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\t", b'"', b"'", b"{", b"[", b"]", b"}", b": ", b"- ", b"#", b"|", b">",
    b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system ", b"!!binary ", b"---\n", b"...\n", b"%YAML 9.9\n", b"? ",
    b"~", b"null", b"true", b"2026-13-45", b"2026-01-01", b".inf", b".nan", b"-1", b"1e400", b"0x" + b"f" * 5000, b"9" * 5000,
    b"\\ud800", b'"\\ud800"', "\u2028\u202e\U0001f600\u0301".encode(), b"NaN", b"[" * 2000, b"a" * 100_000, b"1" * 30,
    b"../", b"\x1a", b"\\N",
]  # fmt: skip


@st.composite
def broken(draw, whole: bytes) -> bytes:
    """A file after one to three accidents."""
    data = whole
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        accident = draw(st.sampled_from(["cut", "insert", "remove", "overwrite", "repeat", "encode"]))
        if accident == "cut":
            data = data[:at]
        elif accident == "insert":
            data = data[:at] + draw(st.sampled_from(SNIPPETS) | st.binary(max_size=8)) + data[at:]
        elif accident == "remove":
            data = data[:at] + data[at + draw(st.integers(1, 40)) :]
        elif accident == "overwrite":
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        elif accident == "repeat":
            data = data[:at] + data[max(0, at - draw(st.integers(1, 200))) :]
        else:
            data = data.decode("utf-8", "replace").encode(draw(st.sampled_from(["utf-16", "utf-32", "latin-1", "utf-8-sig"])), "replace")
    return data


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.datetimes() | st.binary(max_size=5)
    | st.sampled_from([
        2**31, 2**32, 2**63, 2**64, 10**30, 1e300, 1e-300,
        "", " ", "../../x", "a\0b", "nan", "a" * 10_000, "[", "(?P<a>", "é" * 300,
    ])
)  # fmt: skip
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers() | st.none(), SCALARS, max_size=3)


def nodes(raw: object) -> list[tuple[dict | list, object]]:
    """Every place of a nested value, as (what holds it, key)."""
    places, parts = [], [raw]
    while parts:
        part = parts.pop()
        keys = list(part) if isinstance(part, dict) else list(range(len(part))) if isinstance(part, list) else []
        places += [(part, key) for key in keys]
        parts += [part[key] for key in keys]
    return places


@st.composite
def bent(draw, whole: str) -> object:
    """A value, given as JSON, with one to three places of another type, size or name, gone, or doubled."""
    raw = json.loads(whole)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(nodes(raw) or [([raw], 0)]))
        change = draw(st.sampled_from(["value", "value", "value", "gone", "name", "other"]))
        if change == "value":
            holder[key] = draw(VALUES)
        elif change == "gone":
            del holder[key]
        elif change == "name" and isinstance(holder, dict):
            name = draw(st.text(max_size=5) | st.integers() | st.booleans() | st.sampled_from(list(holder)))
            holder[name] = holder.pop(key)
        else:
            there, of = draw(st.sampled_from(nodes(raw) or [([raw], 0)]))
            holder[key] = json.loads(json.dumps(there[of], default=str))
    return raw


def loads_or_says_where(data: bytes) -> None:
    started = time.process_time()
    Path("params.yaml").write_bytes(data)
    try:
        json.dumps(params.load().model_dump(mode="json"), allow_nan=False)  # as the frame of a stage does
    except SesameError as error:
        first, *others = str(error).split("\n  ")
        assert first.startswith("params.yaml") and "\n" not in first, first
        if others and re.fullmatch(r"and \d+ more", others[-1]):  # beyond the thirty that are told
            others.pop()
        assert all(": " in problem and "\n" not in problem for problem in others), others
    assert time.process_time() - started < SECONDS


def test_any_params_file_is_read_or_refused_with_the_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explore(loads_or_says_where, broken(DEFAULT), cases=60)


def test_any_value_in_params_is_taken_or_refused_with_the_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = json.dumps(YAML(typ="safe").load(DEFAULT))

    def holds(value: object) -> None:
        stream = io.BytesIO()
        try:
            YAML(typ="safe").dump(value, stream)
        except Exception:  # what YAML can't write can't stand in the file
            return
        loads_or_says_where(stream.getvalue())

    explore(holds, bent(raw), cases=40)


def table(rows: list[dict], form: str) -> bytes:
    """Rows with the same keys in one of the formats."""
    if form == "parquet":
        stream = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
        return stream.getvalue()
    if form == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    separator = {"csv": ",", "tsv": "\t", "lines": " "}[form]
    header = [] if form == "lines" else [dict(zip(rows[0], rows[0], strict=True))]
    return "".join(separator.join(map(str, row.values())) + "\n" for row in header + rows).encode()


PAIRS = [{"label": ("no", "yes")[i % 2], "a": f"text{i}", "b": f"other{i % 7}"} for i in range(40)]
IDX = {"idx": 1}
STRUCTURED = {
    "copa": [{"premise": "It rained.", "question": "effect", "choice1": "Wet.", "choice2": "Dry.", "label": i % 2, "idx": i}
             for i in range(20)],
    "multirc": [{"idx": i, "passage": {"text": f"A {i}.", "questions": [
        {"idx": 0, "question": "Q?", "answers": [{"idx": j, "text": f"t{j}", "label": j} for j in (0, 1)]},
    ]}} for i in range(20)],
    "record": [{"idx": i, "passage": {"text": f"Ann met Bob {i}.", "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 10}]},
                "qas": [{"idx": i, "query": "@placeholder met.", "answers": [{"text": "Ann", "start": 0, "end": 2}]}]} for i in range(20)],
    "wic": [{"idx": i, "word": f"w{i}", "sentence1": "A bank.", "sentence2": "The bank.",
             "start1": 2, "end1": 6, "start2": 4, "end2": 8, "label": bool(i % 2)} for i in range(20)],
    "wsc": [{"idx": i, "text": f"Ann said {i} she won.",
             "target": {"span1_text": "Ann", "span1_index": 0, "span2_text": "she", "span2_index": 3}, "label": bool(i % 2)}
            for i in range(20)],
    "squad": [{"data": [{"paragraphs": [{"context": f"Ann met Bob {i}.", "qas": [
        {"id": f"{i}", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]},
    ]} for i in range(20)]}]}],
}  # fmt: skip
KINDS = {
    "copa": ("choice", [], ["accuracy"]), "multirc": ("classification", ["false", "true"], ["accuracy"]),
    "record": ("choice", [], ["accuracy"]),
    "wic": ("classification", ["false", "true"], ["accuracy"]), "wsc": ("classification", ["false", "true"], ["accuracy"]),
    "squad": ("extraction", [], ["f1"]), "conll": ("tagging", ["O", "B-X"], ["f1"]),
}  # fmt: skip


@st.composite
def file(draw, whole: bytes) -> tuple[str, bytes, dict]:
    """A broken file: its name, its bytes, and the source that brings it, out of an archive or not."""
    pack = draw(st.sampled_from(["plain", "plain", "gz", "zip", "broken gz", "broken zip", "in zip"]))
    data = whole if pack.startswith("broken") else draw(broken(whole))
    if "gz" in pack:
        data = gzip.compress(data, mtime=0)
    elif "zip" in pack:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))) as archive:
            archive.writestr(zipfile.ZipInfo("in/data"), data)
            archive.writestr(zipfile.ZipInfo("in/other"), "other")
        data = stream.getvalue()
    if pack.startswith("broken"):
        data = draw(broken(data))
    name = "data.gz" if "gz" in pack else "data"
    digest = hashlib.sha256(data).hexdigest()
    source = {"kind": "url", "url": f"http://127.0.0.1:1/{name}", "sha256": digest} | ({"members": ["in/data"]} if "zip" in pack else {})
    return name, data, source


def works_or_says_where(body: Callable, name: str, section: str, packed: tuple[str, bytes, dict], raw: dict) -> None:
    """Run a stage in a project that has fetched the file before."""
    filename, data, source = packed
    kept = storage.STATE / "downloads" / source["sha256"] / filename
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    with open("params.yaml", "w") as written:
        YAML(typ="safe").dump(raw, written)
    sys.argv, kind = ["stage", name], {"corpora": "corpus", "tasks": "task"}[section]
    started, status, said, was = time.process_time(), 0, io.StringIO(), (sys.stderr, sys.stdout)
    sys.stderr, sys.stdout = said, io.StringIO()
    try:
        stage.main(kind, body)
    except SystemExit as exit:
        status = exit.code
    finally:
        sys.stderr, sys.stdout = was
        kept.unlink()
        kept.parent.rmdir()
    message = said.getvalue().strip()
    target = Path("data", section, name)
    assert status in (0, 2) and time.process_time() - started < SECONDS, message
    assert status == 0 or (message.startswith(f"{kind}@{name}: ") and len(message.split("\n")) == 1 and len(message) > 20), message
    assert (target / "card.json").exists() == (status == 0), message
    assert not [path for path in Path("data").rglob(".*")], message
    if status == 0:
        for path in target.glob("*.*"):
            path.read_text(encoding="utf-8")
            path.unlink()
        target.rmdir()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    return tmp_path


CORPUS = {
    "text": text(30).encode(), "jsonl": table(PAIRS, "jsonl"), "csv": table(PAIRS, "csv"), "tsv": table(PAIRS, "tsv"),
    "parquet": table(PAIRS, "parquet"),
}  # fmt: skip


@st.composite
def corpora(draw) -> tuple:
    form = draw(st.sampled_from(list(CORPUS)))
    errors = draw(st.sampled_from(["strict", "replace"]))
    reader = {"format": form, "errors": errors}
    if form == "text":
        reader["document"] = draw(st.sampled_from(["file", "blank_line", "line"]))
    else:
        header = form in ("csv", "tsv") and draw(st.booleans())
        reader |= {
            "column": "a" if header or form in ("jsonl", "parquet") else 1, "header": header,
            "headword": draw(st.sampled_from([None, "b"])), "separator": draw(st.sampled_from([None, " ", ","])),
        }  # fmt: skip
    cleaning = {"unicode": draw(st.sampled_from(["NFC", "NFKC", "ftfy"])), "near_duplicates": draw(st.sampled_from([None, 0.8]))}
    return draw(file(CORPUS[form])), reader, cleaning


def test_any_text_becomes_a_corpus_or_is_refused_with_the_place(folder):
    def holds(drawn: tuple) -> None:
        packed, reader, cleaning = drawn
        raw = tiny_params()
        raw["corpora"]["base"] |= {"parts": [{"source": packed[2], "reader": reader}], "cleaning": cleaning}
        works_or_says_where(corpus_stage.body, "base", "corpora", packed, raw)

    explore(holds, corpora(), cases=80)


@st.composite
def tasks(draw) -> tuple:
    form = draw(st.sampled_from(["jsonl", "csv", "tsv", "parquet", "lines", *KINDS]))
    if form in STRUCTURED:
        rows = draw(bent(json.dumps(STRUCTURED[form]))) if draw(st.booleans()) else STRUCTURED[form]
        lines = [json.dumps(row, default=str) for row in (rows if isinstance(rows, list) else [rows])]
        whole = "\n".join(lines).encode("utf-8", "surrogatepass")
    elif form == "conll":
        whole = b"-DOCSTART- O\n\n" + b"Ann B-X\nwon O\n\n" * 20
    else:
        whole = table(PAIRS, form)
    block: dict = {"licence": "none", "dev": {"share": 0.3}, "test": None}
    if form in KINDS:
        kind, labels, metrics = KINDS[form]
        block |= {"kind": kind, "labels": labels, "metrics": metrics, "reader": form}
    else:
        columns = {"label": "label", "text_a": "a", "text_b": "b"}
        block |= {"kind": "classification", "labels": ["no", "yes"], "metrics": ["accuracy"], "table": {"format": form} | columns}
        if form == "lines":
            block["table"]["pattern"] = r"(?P<label>\w+) (?P<a>\S+) (?P<b>.*)"
        elif form in ("csv", "tsv"):
            block["table"]["header"] = True
    return draw(file(whole)), block


def test_any_file_becomes_a_task_or_is_refused_with_the_place(folder):
    def holds(drawn: tuple) -> None:
        packed, block = drawn
        raw = tiny_params()
        raw["tasks"]["same"] = block | {"train": {"source": packed[2]}}
        works_or_says_where(task_stage.prepare, "same", "tasks", packed, raw)

    explore(holds, tasks(), cases=120)
