"""Lines and their translations."""

from collections.abc import Iterator
from html import unescape

from components import params
from components.text.corpora import Document
from components.text.corpora.cleaning import CONTROL
from components.text.sources.parallel import translations


def read(source: params.Source, reader: params.ParallelReader) -> Iterator[Document]:
    """Yield a document of two segments for each line, an empty one if a side is blank, also as "&nbsp;", or has only characters that
    cleaning removes."""
    for pair in translations(source.shown, source, reader.errors):
        yield list(pair) if all(CONTROL.sub("", unescape(side)).strip() for side in pair) else []
