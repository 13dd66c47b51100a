"""The held-out text of a corpus, without what its training text has, too: a model may know that by heart."""

from collections.abc import Sequence
from pathlib import Path

from components.text import corpora
from components.text.corpora.mix import key_of


def documents(corpus: Path, splits: Sequence[str]) -> tuple[list[list[str]], int]:
    """The segments of each document of some splits, and the number of segments left out: those that the training text
    has but for case, punctuation, white space and forms of letters."""
    trained = {hash(key_of(segment)) for document in corpora.read(corpus, "train") for segment in document}
    kept, left_out = [], 0
    for split in splits:
        for document in corpora.read(corpus, split):
            new = [segment for segment in document if hash(key_of(segment)) not in trained]
            left_out += len(document) - len(new)
            kept.append(new)
    return kept, left_out
