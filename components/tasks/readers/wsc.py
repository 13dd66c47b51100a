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
    """The sentence is text_a and a group; in it stand `*the noun*` and `#the pronoun#`.

    Raises SesameError with the place of a noun or pronoun that is not where the file says, or an unknown label.
    """
    for place, row in tables.records(source):
        sentence, target = text(place, row, "text"), row.get("target") or row
        stretches = []
        for n, sign in (("1", "*"), ("2", "#")):
            span, index = text(place, target, f"span{n}_text"), value(place, target, f"span{n}_index")
            stretches.append((*_words_at(place, sentence, span, index), sign))
        marked, places = mark(sentence, stretches)
        label = label_name(place, row, TRUTH) if labelled else None
        yield place, sentence, Example(text(place, row, "idx"), marked, None, label, spans=[("text_a", *span) for span in places])


def _words_at(place: str, sentence: str, span: str, index: int) -> tuple[int, int]:
    """(first character, end) of `span` in the sentence; `index` counts words between white space.

    The published files are not exact: case differs, some spans end in a full stop that the sentence has not, one index is
    off by a word, and three spans put together names that stand apart, where as many words from the index on are taken.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", sentence)]
    pattern = re.compile(r"\s+".join(map(re.escape, span.rstrip(".").split())) + r"(?!\w)", re.IGNORECASE)
    for at in (index, index + 1, index - 1):
        if 0 <= at < len(words) and (match := pattern.match(sentence, words[at][0])) and match.end() > match.start():
            return match.start(), match.end()
    # Not as it is written: the words at the index are taken if one of them, at least, is the span's.
    if index >= 0 and index + len(span.split()) <= len(words):
        first, end = words[index][0], words[index + len(span.split()) - 1][1]
        if _bare(sentence[first:end]) & _bare(span):
            return first, end
    there = f"{sentence[words[index][0] :][:40]!r} is" if 0 <= index < len(words) else f"there are only {len(words)} words"
    raise SesameError(f"{place}: {span!r} is not at word {index} of its text, {there} there")


def _bare(words: str) -> set[str]:
    """The words without case and punctuation at their edges, those of three letters and more."""
    bare = (word.strip(string.punctuation).casefold() for word in words.split())
    return {word for word in bare if len(word) > 2}
