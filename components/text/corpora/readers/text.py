"""Running text in files."""

from collections.abc import Iterator

from components import params
from components.text import sources
from components.text.corpora import Document
from components.text.corpora.sentences import sentences
from components.text.sources.text import lines


def read(source: params.Source, reader: params.TextReader) -> Iterator[Document]:
    """Yield a document for each file, each group of lines between blank lines, or each line, split into sentences."""
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
