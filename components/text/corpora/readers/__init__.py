"""Sources to documents.

One more way to read is one file here, `<name>.py`, with `read(source, reader) -> Iterator[Document]`, and its block
`<Name>Reader` in `components/params/text.py`, a member of `Reader` there.
"""

from collections.abc import Iterator
from importlib import import_module

from components import params
from components.text.corpora import Document


def documents(part: params.CorpusPart) -> Iterator[Document]:
    """The documents of one part of a corpus as they stand in the source; segments may still be blank.

    Raises SesameError with file and line on what is not text.
    """
    name = type(part.reader).__name__.removesuffix("Reader").lower()  # a reader has several formats, but one block
    return import_module(f"components.text.corpora.readers.{name}").read(part.source, part.reader)
