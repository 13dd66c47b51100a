"""Running text to sentences."""

import re

from components.corpora import Document

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
    """Running text cut into sentences, some of them blank. A line end always cuts: lines are paragraphs, not hard-wrapped."""
    return [sentence for line in text.splitlines() for sentence in SENTENCE_END.split(line)]
