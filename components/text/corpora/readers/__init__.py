"""Readers: sources -> documents.

To add a reader, add a module `<name>.py` with `read(source, reader) -> Iterator[Document]`, and its settings `<Name>Reader`, a
ReaderBlock, in `components/params/text.py`, a member of `Reader` there.
"""

from collections.abc import Iterator
from importlib import import_module

from components import params
from components.text.corpora import Document


def documents(part: params.CorpusPart) -> Iterator[Document]:
    """Yield the documents of a part of a corpus, unchanged; segments may be blank. Raise SesameError with file and line if not text."""
    return import_module(f"components.text.corpora.readers.{part.reader.module}").read(part.source, part.reader)
