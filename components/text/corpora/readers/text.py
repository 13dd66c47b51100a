"""Running text in files."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from components import params
from components.core.words import EAST_ASIAN, LOWER_CASE
from components.text import sources
from components.text.corpora import Document
from components.text.corpora.sentences import sentences
from components.text.sources.text import lines

WRAPPED = 0.3
"""Share of line ends, within paragraphs, behind which the text goes on with a small letter: text that is broken into lines has most."""
COUNTED = 100_000
"""Line ends of a source that are looked at."""
_SMALL = re.compile(rf"\s*[{LOWER_CASE}]")
_WITHIN_WORDS = re.compile(rf"(?<=[{EAST_ASIAN}])\n(?=[{EAST_ASIAN}])")
"""Line ends that stand for no blank: those between Chinese characters or kana, as in CSS Text 3 (section 4.1.3) and pandoc."""


def read(source: params.Source, reader: params.TextReader) -> Iterator[Document]:
    """Yield a document for each file, each group of lines between blank lines, or each line, split into sentences.

    Prints a line where the text seems to be broken into lines of one width, and `wrapped` is not set.
    """
    ends = goes_on = 0
    for file in sources.open_files(source):
        texts = (line for _, line in lines(file, reader.errors))
        if reader.document == "line":
            yield from map(sentences, texts)
            continue
        documents = []
        for paragraph in _paragraphs(texts):
            if ends < COUNTED:
                ends += max(0, len(paragraph) - 1)
                goes_on += sum(bool(_SMALL.match(line)) for line in paragraph[1:])
            whole = [_joined(paragraph)] if reader.wrapped else paragraph
            document = list(chain.from_iterable(map(sentences, whole)))
            if reader.document == "blank_line":
                yield document
            else:
                documents.append(document)
        if reader.document == "file":
            yield list(chain.from_iterable(documents))
    if not reader.wrapped and goes_on > WRAPPED * ends:
        print(
            f"{source.shown}: after {goes_on / ends:.0%} of line ends the text goes on with a small letter, so it seems to be broken into "
            "lines. Each line counts as a sentence now; `wrapped: true` in its reader joins the lines of a paragraph",
            flush=True,
        )


def _joined(lines: list[str]) -> str:
    """The lines as one, with a blank for each line end but those of a script without blanks."""
    return _WITHIN_WORDS.sub("", "\n".join(lines)).replace("\n", " ")


def _paragraphs(texts: Iterable[str]) -> Iterator[list[str]]:
    """The lines between blank lines; an empty list between two of these."""
    paragraph: list[str] = []
    for line in texts:
        if line.strip():
            paragraph.append(line)
        else:
            yield paragraph
            paragraph = []
    yield paragraph
