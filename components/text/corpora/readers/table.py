"""A column of tables."""

from collections.abc import Iterator

from components import params
from components.core.errors import SesameError
from components.text.corpora import Document
from components.text.corpora.sentences import sentences
from components.text.sources import tables


def read(source: params.Source, reader: params.TableReader) -> Iterator[Document]:
    """Yield a document for each row, split into sentences or by its separator, with the headword before each segment if there is one."""
    for place, row in tables.rows(source, reader):
        text = _field(place, row, reader.column)
        segments = text.split(reader.separator) if reader.separator else sentences(text)
        if reader.headword is not None:
            word = _field(place, row, reader.headword)
            segments = [f"{word}: {segment}" for segment in segments if segment.strip()]
        yield segments


def _field(place: str, row: tables.Row, column: str | int) -> str:
    text = tables.value(place, row, column)
    if text is not None and not isinstance(text, str):
        raise SesameError(f"{place}: column {column!r} holds {type(text).__name__}, not text")
    return text or ""
