"""Rows of tables, whatever their format, each with its place in the file for messages."""

import csv
import json
from collections.abc import Iterator
from typing import Any

from components import params
from components.core.errors import SesameError, one_line
from components.text import sources
from components.text.sources.file import SourceFile
from components.text.sources.text import decimal, lines

Row = dict[str | int, Any]
"""Column name, or number of the field from 0 where there is no header -> text (TSV, CSV) or any value (JSONL, parquet, hub)."""


def rows(source: params.Source, table: params.TableReader | params.TaskTable) -> Iterator[tuple[str, Row]]:
    """`(place, row)` for every row of every file of the source; place is `file, line N`. Empty lines are skipped.

    TSV is unquoted: a tab always separates and a lone `"` is text. CSV is quoted.
    Raises SesameError with the place on a wrong number of fields, malformed JSON or CSV, and invalid UTF-8.
    """
    if sources.brings_rows(source.kind):
        if table.format != "parquet":
            raise SesameError(f"a {source.kind} source ({source.shown}) is read with `format: parquet`, not {table.format!r}")
        yield from sources.open_rows(source)
    else:
        for file in sources.open_files(source):
            yield from FORMATS[table.format](file, table)


def records(source: params.Source) -> Iterator[tuple[str, Row]]:
    """`(place, row)` of a source whose rows have names and a structure: the hub's, parquet files, else JSONL."""
    if sources.brings_rows(source.kind):
        yield from sources.open_rows(source)
    else:
        for file in sources.open_files(source):
            yield from FORMATS["parquet" if file.name.endswith(".parquet") else "jsonl"](file, None)


def value(place: str, row: Row, column: str | int) -> Any:
    """One field of a row. Raises SesameError that names the columns there are."""
    if not isinstance(row, dict):
        raise SesameError(f"{place}: an object with {column!r} expected, {type(row).__name__} found")
    try:
        return row[column]
    except KeyError:
        raise SesameError(f"{place}: no column {column!r} (there are: {', '.join(map(str, row))})") from None


def text(place: str, row: Row, column: str | int) -> str:
    """One field as text, true and false as JSON writes them. Raises SesameError where there is none, for which pandas
    writes NaN."""
    field = value(place, row, column)
    if isinstance(field, bytes):  # of which Python writes b'...'
        raise SesameError(f"{place}: column {column!r} holds bytes, where text is wanted; write it as strings")
    nothing = field is None or field != field  # NaN alone is not itself
    if nothing or isinstance(field, list | dict):
        holds = "nothing" if nothing else f"a {type(field).__name__}"
        raise SesameError(f"{place}: column {column!r} holds {holds}, where text is wanted")
    return str(field).lower() if isinstance(field, bool) else str(field)


def _errors(table: params.TableReader | params.TaskTable | None) -> str:
    return getattr(table, "errors", "strict")  # a task's table is always strict


def _fields(file: SourceFile, table, split: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[str, Row]]:
    """Rows out of split lines: the header taken off, the number of fields checked."""
    names, low, most = None, table.fields, getattr(table, "max_fields", None)  # a corpus' reader has no optional fields
    for number, fields in split:
        low = low or len(fields)
        high = most or low
        if not low <= len(fields) <= high:
            expected = f"{low}" if low == high else f"{low} to {high}"
            raise SesameError(f"{file.name}, line {number}: {expected} fields expected, {len(fields)} found")
        if table.header and names is None:
            names = fields
            if twice := next((name for name in names if name and names.count(name) > 1), None):
                raise SesameError(f"{file.name}, line {number}: two columns of the header are called {twice!r}; rename one")
        else:
            yield f"{file.name}, line {number}", dict(zip(names or range(len(fields)), fields, strict=False))


def _tsv(file: SourceFile, table) -> Iterator[tuple[str, Row]]:
    return _fields(file, table, ((number, line.split("\t")) for number, line in lines(file, _errors(table)) if line))


def _csv(file: SourceFile, table) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(1 << 27)  # the default, 128 KiB, is shorter than some documents
    reader = csv.reader((f"{line}\n" for _, line in lines(file, _errors(table))), strict=True)

    def split() -> Iterator[tuple[int, list[str]]]:
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise SesameError(f"{file.name}, line {reader.line_num}: not valid CSV: {error}") from None

    return _fields(file, table, split())


def parsed(place: str, content: str | bytes) -> Any:
    """JSON. Raises SesameError where it is none, an object has a key twice (Python takes the last), or it is beyond what Python reads
    (deep nesting, whole numbers of thousands of digits)."""
    try:
        return json.loads(content, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""  # a row of JSONL is one line, and its number stands in the place
        raise SesameError(f"{place}: not valid JSON: {error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise SesameError(f"{place}: not readable as JSON: its lists or objects are nested too deep") from None
    except ValueError as error:
        long = "a number has thousands of digits; write it as a text"
        why = long if "int_max_str_digits" in str(error) else one_line(error)
        raise SesameError(f"{place}: not readable as JSON: {why}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has {next(name for name in names if names.count(name) > 1)!r} twice; rename one, or leave it out")
    return made


def _jsonl(file: SourceFile, table) -> Iterator[tuple[str, Row]]:
    for number, line in lines(file, _errors(table)):
        if not line.strip():
            continue
        place = f"{file.name}, line {number}"
        row = parsed(place, line)
        if "\\ud" in line.lower():  # JSON can write half of a surrogate pair, which is no text
            try:
                row = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass").decode("utf-8", _errors(table)))
            except UnicodeDecodeError:
                cure = "set `errors: replace`" if hasattr(table, "errors") else "write the whole pair, or U+FFFD"
                raise SesameError(f"{place}: half of a surrogate pair (\\ud800 to \\udfff), which is no text; {cure}") from None
        if not isinstance(row, dict):
            cure = "; write an object a line (`jq -c '.[]'`)" if isinstance(row, list) else ""
            raise SesameError(f"{place}: a JSON object expected, {type(row).__name__} found{cure}")
        yield place, row


def _parquet(file: SourceFile, table) -> Iterator[tuple[str, Row]]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with file.open() as stream:
            table = parquet.ParquetFile(stream)
            kinds = {"float": "float32", "halffloat": "float16"}
            narrow = {field.name: kinds[str(field.type)] for field in table.schema_arrow if str(field.type) in kinds}
            for batch in table.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    row |= {name: decimal(row[name], kind) for name, kind in narrow.items()}
                    yield f"{file.name}, row {number}", row
    except (pyarrow.ArrowException, ValueError, OSError) as error:  # ValueError: text that is not UTF-8
        raise SesameError(f"{file.name}: not readable as parquet after row {number}: {one_line(error)}") from None


PATIENCE = 2
"""Seconds for a line: a pattern may try an exponential number of ways to fit."""


def _lines(file: SourceFile, table) -> Iterator[tuple[str, Row]]:
    import regex

    pattern = regex.compile(table.pattern)
    for number, line in lines(file, _errors(table)):
        if line.strip():
            try:
                match = pattern.fullmatch(line, timeout=PATIENCE)
            except TimeoutError:
                raise SesameError(
                    f"{file.name}, line {number}: the pattern {table.pattern!r} takes more than {PATIENCE} s: {line[:60]!r}; write it "
                    "without repetitions within repetitions, as `(a+)+`"
                ) from None
            if not match:
                raise SesameError(f"{file.name}, line {number}: does not fit the pattern {table.pattern!r}: {line[:60]!r}")
            yield f"{file.name}, line {number}", match.groupdict()


FORMATS = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "lines": _lines}
"""One more format is one function and one line here."""
