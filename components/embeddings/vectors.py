"""Stage `vectors`: `python -m components.embeddings.vectors NAME` trains data/vectors/NAME."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from components import params
from components.core.errors import SesameError
from components.core.words import LETTERS
from components.embeddings import intrinsic, trainers
from components.embeddings.space import WORD, Space, save, say_unspaced
from components.stages import stage
from components.text import corpora

Sentence = list[Any]
"""The words of a segment."""
OR_NUMERAL = re.compile(f"{LETTERS}|[0-9]+")
"""A word where numerals count as words."""


def sentences_of(settings: params.Vectors) -> list[list[str]]:
    """The lower-cased words of each segment of a corpus' training split, or of a half of it; at most `max_words`, drawn."""
    word = OR_NUMERAL if settings.numerals else WORD
    sentences = taken(settings, lambda segment: word.findall(segment.lower()))
    say_unspaced(Counter(word for sentence in sentences for word in sentence))
    return sentences


def taken(settings: params.Vectors | params.ContextualVectors, words_of: Callable[[str], Sentence]) -> list[Sentence]:
    """The segments of a corpus' training split, or of a half of it, as lists of words; at most `max_words`, drawn."""
    folder = Path("data/corpora", settings.corpus)
    documents = [[words_of(segment) for segment in document] for document in corpora.read(folder, "train")]
    if settings.half:
        if len(documents) < 2:
            raise SesameError(f"{folder} has a single document, which cannot be halved")
        documents = halves(documents, settings.half.split)[settings.half.side == "second"]
    return [sentence for document in drawn(documents, settings.max_words) for sentence in document]


def halves(documents: list[list[Sentence]], split: int) -> tuple[list, list]:
    """Two halves with equal numbers of words: documents in an order drawn with `split` go to the smaller half; the larger one is cut."""
    sizes = [sum(map(len, document)) for document in documents]
    indices: tuple[list[int], list[int]] = ([], [])
    words = [0, 0]
    for i in np.random.default_rng(split).permutation(len(documents)).tolist():
        smaller = int(words[1] < words[0])
        indices[smaller].append(i)
        words[smaller] += sizes[i]
    sides = [[documents[i] for i in sorted(side)] for side in indices]
    larger = int(words[1] > words[0])
    sides[larger] = drawn(sides[larger], words[1 - larger])
    return sides[0], sides[1]


def drawn(documents: list[list[Sentence]], words: int | None) -> list[list[Sentence]]:
    """Documents with at most so many words in total, in their order, of which the last one drawn is cut; None: all.

    They are drawn with a fixed seed: the first ones of a text may all be of one year, or of one writer.
    """
    if words is None:
        return documents
    sizes = np.array([sum(map(len, document)) for document in documents], np.int64)
    order = np.random.default_rng(0).permutation(len(documents))
    room = np.empty_like(sizes)
    room[order] = np.clip(words - (np.cumsum(sizes[order]) - sizes[order]), 0, sizes[order])
    return [cut(document, most) for document, most in zip(documents, room.tolist(), strict=True) if most]


def cut(sentences: list[Sentence], words: int) -> list[Sentence]:
    """The first sentences with at most so many words in total."""
    total = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: int(np.searchsorted(total, words, side="right"))]


def train_vectors(params: params.Params, name: str, run) -> dict:
    """Train and save vectors; returns the counts. Raises SesameError where the corpus is missing or too short."""
    settings = params.vectors[name]
    sentences = sentences_of(settings)
    corpus_words = sum(map(len, sentences))
    started = time.perf_counter()
    space = Space(*trainers.load(settings.kind)(sentences, settings))
    seconds = time.perf_counter() - started
    save(space, Path("data/vectors", name))
    print(f"{settings.kind}: {len(space.words)} vectors out of {corpus_words} words in {seconds:.1f} s", flush=True)
    figures = {}
    if settings.tests:
        figures = {"intrinsic": intrinsic.evaluate(space, settings.tests)}
        print(", ".join(f"{name} {figure}" for name, figure in figures["intrinsic"].items()), flush=True)
    return figures | {
        "words": corpus_words,
        "vocabulary": len(space.words),
        "words_per_second": round(corpus_words / seconds),
        "cost": {"tokens": corpus_words * getattr(settings, "epochs", 1)},
    }


if __name__ == "__main__":
    stage.main("vectors", train_vectors)
