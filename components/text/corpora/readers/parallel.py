"""Lines and their translations."""

from collections.abc import Iterator
from html import unescape

from components import params
from components.text.corpora import Document
from components.text.corpora.cleaning import CONTROL
from components.text.sources.parallel import translations


def read(source: params.Source, reader: params.ParallelReader) -> Iterator[Document]:
    """Yield a document of two segments for each line, an empty one if a side is blank, also as "&nbsp;", or has only characters that
    cleaning removes. Prints how many lines are their own translation, as they are in a file and its copy."""
    lines = copied = 0
    for pair in translations(source.shown, source, reader.errors):
        lines += 1
        copied += len(set(pair)) == 1 and bool(pair[0].strip())
        yield list(pair) if all(CONTROL.sub("", unescape(side)).strip() for side in pair) else []
    if copied:
        print(f"{source.shown}: {copied:,} of {lines:,} lines are the same on both sides")
