"""Stage `vectors`: `python -m components.spaces.vectors NAME` writes data/vectors/NAME.

`vectors.npy` is float32 (words, vector_size); `vocabulary.txt` has `word<TAB>count` for each row, most frequent first.
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components import corpora, params, stage
from components.errors import SesameError
from components.spaces import trainers

WORD = re.compile(r"[^\W\d_]+")
"""What a word is here: a run of letters. Digits, punctuation and the apostrophe separate."""
OR_NUMERAL = re.compile(r"[^\W\d_]+|[0-9]+")


@dataclass(frozen=True)
class Space:
    """Words with their counts and vectors, most frequent first."""

    words: list[str]
    counts: np.ndarray
    """(words,) occurrences in the training text; 0 where they are not known."""
    vectors: np.ndarray
    """(words, vector_size) float32."""


def load(path: str | Path, limit: int | None = None) -> Space:
    """The (`limit` most frequent) vectors of a `data/vectors/<name>` folder. Raises SesameError when a file is not there, or broken."""
    path = Path(path)
    with stage.reading(path / "vocabulary.txt"):
        lines = (path / "vocabulary.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        words, counts = zip(*(line.split("\t") for line in lines), strict=True)
        counts = np.array(counts, dtype=np.int64)
    with stage.reading(path / "vectors.npy"):
        vectors = np.load(path / "vectors.npy")
        if len(vectors) != len(words):
            raise ValueError(f"{len(vectors)} vectors, {len(words)} words in vocabulary.txt")
    return Space(list(words[:limit]), counts[:limit], vectors[:limit])


def save(space: Space, path: Path) -> None:
    """Write a space where `load` reads it."""
    with stage.output(path) as folder:
        folder.mkdir()
        np.save(folder / "vectors.npy", space.vectors)
        lines = (f"{word}\t{count}\n" for word, count in zip(space.words, space.counts, strict=True))
        (folder / "vocabulary.txt").write_text("".join(lines), encoding="utf-8")


def sentences_of(settings: params.Vectors) -> list[list[str]]:
    """The lower-cased words of each segment of a corpus' training split, or of a half of it; no more than `max_words`."""
    folder, word = Path("data/corpora", settings.corpus), OR_NUMERAL if settings.numerals else WORD
    documents = [[word.findall(segment.lower()) for segment in document] for document in corpora.read(folder, "train")]
    if settings.half:
        if len(documents) < 2:
            raise SesameError(f"{folder} has one document, of which there are no halves")
        documents = halves(documents, settings.half.split)[settings.half.side == "second"]
    return cut([sentence for document in documents for sentence in document], settings.max_words)


def halves(documents: list[list[list[str]]], split: int) -> tuple[list, list]:
    """Documents in two groups of as many words: in an order drawn by `split`, each goes where there are fewer; the larger group is cut."""
    sizes = [sum(map(len, document)) for document in documents]
    parts: tuple[list[int], list[int]] = ([], [])
    words = [0, 0]
    for i in np.random.default_rng(split).permutation(len(documents)).tolist():
        smaller = int(words[1] < words[0])
        parts[smaller].append(i)
        words[smaller] += sizes[i]
    taken = [[documents[i] for i in sorted(part)] for part in parts]
    larger = int(words[1] > words[0])
    taken[larger] = [cut([sentence for document in taken[larger] for sentence in document], words[1 - larger])]
    return taken[0], taken[1]


def cut(sentences: list[list[str]], words: int | None) -> list[list[str]]:
    """The first sentences with so many words together; None: all."""
    if words is None:
        return sentences
    total = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: int(np.searchsorted(total, words, side="right"))]


def body(params: params.Params, name: str, run) -> dict:
    """Train the vectors `name`; the counts. Raises SesameError where the corpus is not there, or too short."""
    settings = params.vectors[name]
    sentences = sentences_of(settings)
    corpus_words = sum(map(len, sentences))
    started = time.perf_counter()
    space = Space(*trainers.load(settings.kind)(sentences, settings))
    seconds = time.perf_counter() - started
    save(space, Path("data/vectors", name))
    print(f"{settings.kind}: {len(space.words)} vectors out of {corpus_words} words in {seconds:.1f} s", flush=True)
    return {
        "words": corpus_words,
        "vocabulary": len(space.words),
        "words_per_second": round(corpus_words / seconds),
        "cost": {"tokens": corpus_words * getattr(settings, "epochs", 1)},
    }


if __name__ == "__main__":
    stage.main("vectors", body, "vectors")
