"""Words with their vectors, in memory and in a folder of data/vectors: `vectors.npy` is float32 (words, vector_size), `vocabulary.txt` has
`word<TAB>count` for each row, most frequent first."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core import storage
from components.core.words import LETTERS, UNSPACED
from components.stages.outputs import reading

WORD = re.compile(LETTERS)
"""A run of letters with their marks. Digits, punctuation and the apostrophe separate words."""
CAPITALS = 0.01
"""The share of words with a capital from which a vocabulary is taken to be cased: one in small letters may have a few, as
`UNK`."""


def written(text: str, lowercase: bool) -> str:
    """A word of a list, or a sentence, in the form of the vocabularies: in NFC, like the cleaned corpora,
    with single blanks for white space."""
    text = unicodedata.normalize("NFC", text)
    return " ".join((text.lower() if lowercase else text).split())


def has_capitals(words: Sequence[str]) -> bool:
    """Whether a vocabulary is cased."""
    return sum(word != word.lower() for word in words) > CAPITALS * len(words)


def say_unspaced(counts: Mapping[str, int]) -> None:
    """Print a line where more than a tenth of a text's words (word -> occurrences) are of scripts without blanks: they are clauses."""
    words = sum(counts.values())
    clauses = sum(count for word, count in counts.items() if re.match(UNSPACED, word))
    if clauses > words / 10:
        print(
            f"{clauses / words:.0%} of the words are of scripts without blanks between words, "
            "where a word is all between two blanks or signs: put blanks between the words of the text first",
            flush=True,
        )


@dataclass(frozen=True)
class Space:
    """Words with their counts and vectors, most frequent first."""

    words: list[str]
    counts: np.ndarray
    """Occurrences in the training text, (words,); 0 where unknown."""
    vectors: np.ndarray
    """(words, vector_size) float32."""


def load(path: str | Path, limit: int | None = None) -> Space:
    """The (`limit` most frequent) vectors of a `data/vectors/<name>` folder. Raises SesameError when a file is missing or broken."""
    path = Path(path)
    with reading(path / "vocabulary.txt"):
        lines = (path / "vocabulary.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        words, counts = zip(*(line.split("\t") for line in lines), strict=True)
        counts = np.array(counts, dtype=np.int64)
    with reading(path / "vectors.npy"):
        vectors = np.load(path / "vectors.npy")
        if len(vectors) != len(words):
            raise ValueError(f"{len(vectors)} vectors, {len(words)} words in vocabulary.txt")
    return Space(list(words[:limit]), counts[:limit], vectors[:limit])


def save(space: Space, path: Path) -> None:
    """Write a space in the format of `load`."""
    with storage.output(path) as folder:
        folder.mkdir()
        np.save(folder / "vectors.npy", space.vectors)
        lines = (f"{word}\t{count}\n" for word, count in zip(space.words, space.counts, strict=True))
        (folder / "vocabulary.txt").write_text("".join(lines), encoding="utf-8")
