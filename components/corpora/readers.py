"""Sources to documents."""

import re
from collections.abc import Iterator

from components import params, sources
from components.corpora import Document
from components.errors import SesameError
from components.sources import tables
from components.sources.text import lines

SENTENCE_END = re.compile(
    r"""(?:(?<=[.!?…])|(?<=[.!?…]["'”’»)\]]))   # an end mark, perhaps with a closing quote or bracket
        (?<!\b[^\W\d_]\.)                       # not the dot of an initial
        (?<!\b(?:Mr|Ms|Dr|St|No|Jr|Sr|Mt)\.)(?<!\b(?:Mrs|Gen|Col|Hon|Gov|Rev)\.)
        \s+(?![a-zß-öø-ÿ])                      # and what follows is not in lower case
        |(?<=[。！？])""",
    re.VERBOSE,
)
"""Rough on purpose: sentences only set the places where next-sentence prediction may cut."""


def sentences(text: str) -> Document:
    """Running text cut into sentences. A line end always cuts: lines are paragraphs, not hard-wrapped."""
    return [sentence for line in text.splitlines() for sentence in SENTENCE_END.split(line)]


def _text(source: params.Source, reader: params.TextReader) -> Iterator[Document]:
    for file in sources.open_files(source):
        if reader.document == "line":
            yield from (sentences(line) for _, line in lines(file, reader.errors))
        else:
            document: Document = []
            for _, line in lines(file, reader.errors):
                if reader.document == "blank_line" and not line.strip():
                    yield document
                    document = []
                else:
                    document += sentences(line)
            yield document


def _table(source: params.Source, reader: params.TableReader) -> Iterator[Document]:
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


READERS = {"text": _text} | dict.fromkeys(tables.FORMATS, _table)


def documents(part: params.CorpusPart) -> Iterator[Document]:
    """The documents of one part of a corpus as they stand in the source; segments may still be blank.

    Raises SesameError with file and line on what is not text.
    """
    return READERS[part.reader.format](part.source, part.reader)
