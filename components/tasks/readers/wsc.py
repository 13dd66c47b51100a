"""WSC (Levesque et al. 2012): does the pronoun stand for the noun."""

import re
import string

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import TRUTH, Examples, label_name, mark
from components.text.sources import tables
from components.text.sources.tables import text, value


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the sentence with `*the noun*` and `#the pronoun#` as text_a; the plain sentence is the group.

    Raise SesameError with the place of a noun or pronoun that is not at its position, or an unknown label.
    """
    for place, row in tables.records(source):
        sentence, target = text(place, row, "text"), row.get("target") or row
        spans = []
        for n, sign in (("1", "*"), ("2", "#")):
            words, index = text(place, target, f"span{n}_text"), value(place, target, f"span{n}_index")
            spans.append((*_words_at(place, sentence, words, index), sign))
        marked, marked_spans = mark(sentence, spans)
        label = label_name(place, row, TRUTH) if labelled else None
        yield place, sentence, Example(text(place, row, "idx"), marked, None, label, spans=[("text_a", *span) for span in marked_spans])


def _words_at(place: str, sentence: str, span: str, index: int) -> tuple[int, int]:
    """Return (first character, end) of `span` in the sentence; `index` counts words between white space.

    The published files are inexact: case differs, some spans have a full stop that the sentence lacks, one index is off by
    one, and three spans join separate names; there the same number of words from the index on is taken.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", sentence)]
    spaced = r"\s+".join(map(re.escape, span.rstrip(".").split()))
    pattern = re.compile(rf"[^\w\s]*?({spaced})(?!\w)", re.IGNORECASE)  # a bracket or a quotation mark may stand before it
    for at in (index, index + 1, index - 1):
        if 0 <= at < len(words) and (match := pattern.match(sentence, words[at][0])) and match[1]:
            return match.span(1)
    # no exact match: take the words at the index if at least one of them is in the span
    if index >= 0 and index + len(span.split()) <= len(words):
        first, end = words[index][0], words[index + len(span.split()) - 1][1]
        if _bare(sentence[first:end]) & _bare(span):
            return first, end
    content = (
        f"{sentence[words[index][0] :][:40]!r} is" if 0 <= index < len(words) else f"there are only {len(words)} words"
    )  # fmt: skip
    raise SesameError(f"{place}: {span!r} is not at word {index} of its text, {content} there")


def _bare(words: str) -> set[str]:
    """Return the words of three letters and more, in lower case and without punctuation at their edges."""
    bare = (word.strip(string.punctuation).casefold() for word in words.split())
    return {word for word in bare if len(word) > 2}
