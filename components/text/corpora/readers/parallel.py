"""A line and its translation."""

from collections.abc import Iterator

from components import params
from components.text.corpora import Document
from components.text.sources.parallel import translations


def read(source: params.Source, reader: params.ParallelReader) -> Iterator[Document]:
    """A document of two segments for each line; of none where one side is blank."""
    for pair in translations(source.shown, source, reader.errors):
        yield list(pair) if all(side.strip() for side in pair) else []
