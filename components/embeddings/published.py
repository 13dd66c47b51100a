"""Stage `published_vectors`: `python -m components.embeddings.published NAME` imports word vectors to data/vectors/NAME.

Unusable entries are left out and counted (a repeated word, a vector that is zero or not finite); a broken or truncated file, or one of
another format, is an error with its line.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from components import params
from components.core.errors import SesameError, format_counts, one_line
from components.embeddings import intrinsic
from components.embeddings.space import Space, save, written
from components.stages import stage
from components.text import sources
from components.text.sources.file import SourceFile
from components.text.sources.text import lines

UNREADABLE = "\ufffd"
"""Replaces bytes that are not UTF-8, as of a file in Latin-1."""
Entries = Iterator[tuple[str, str, np.ndarray]]
"""Place in the file, word, vector (d,)."""


def import_vectors(all_params: params.Params, name: str, run) -> dict:
    """Read, filter and save the vectors; returns the counts.

    Raises SesameError where a file is not in its format, or has no usable vector.
    """
    settings = all_params.published_vectors[name]
    dropped = {"repeated": 0, "zero": 0, "not_finite": 0, "no_word": 0, "not_utf8": 0}
    taken: dict[str, np.ndarray] = {}
    files = sources.open_files(settings.source)
    entries = itertools.chain.from_iterable(FORMATS[settings.format](file, settings.max_vocabulary) for file in files)
    first_not_finite = ""
    for place, word, vector in itertools.islice(entries, settings.max_vocabulary):
        word = written(word, settings.lowercase)  # a line of vocabulary.txt has one word
        if not word:
            dropped["no_word"] += 1
        elif UNREADABLE in word:
            dropped["not_utf8"] += 1
        elif word in taken:
            dropped["repeated"] += 1
        elif not np.isfinite(vector).all():
            dropped["not_finite"] += 1
            first_not_finite = first_not_finite or place
        elif not vector.any():
            dropped["zero"] += 1
        else:
            taken[word] = vector
    if not taken:
        raise SesameError(f"{settings.source.shown}: no usable vector")
    widths = {len(vector) for vector in taken.values()}
    if len(widths) > 1:
        raise SesameError(f"{settings.source.shown}: its files have vectors of {' and '.join(map(str, sorted(widths)))} dimensions")
    space = Space(list(taken), np.zeros(len(taken), dtype=np.int64), np.array(list(taken.values()), dtype=np.float32))
    save(space, Path("data/vectors", name))
    left_out = format_counts(dropped) if any(dropped.values()) else ""
    left_out += f" (the first is {first_not_finite})" if first_not_finite else ""
    print(f"{len(taken)} vectors of {widths.pop()} dimensions{f'; left out: {left_out}' if left_out else ''}", flush=True)
    figures = {"intrinsic": intrinsic.evaluate(space, settings.tests)} if settings.tests else {}
    return {"vocabulary": len(taken), "vector_size": space.vectors.shape[1], "left_out": dropped} | figures


def text(file: SourceFile, most: int) -> Entries:
    """One word with its numbers per line; a first line of two integers is the number of words and dimensions."""
    promised = width = None
    number = last = 0  # of lines that are not empty, and the position of the last one
    for at, line in lines(file, errors="replace"):
        if not line.strip():
            continue
        number, last = number + 1, at
        fields = line.rstrip(" \t").replace("\t", " ").split(" ")
        place = f"{file.name}, line {at}"
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            promised, width = map(int, fields)
            continue
        if number - bool(promised) > most:
            return
        width = len(fields) - 1 if width is None else width
        word = " ".join(fields[:-width] if width else fields)  # some published words have a space in them
        if width < 1 or not word:
            header = f", the first line says {width}" if promised else f", {width} expected as in the first line" if number > 1 else ""
            raise SesameError(f"{place}: a word and its numbers expected, {len(fields)} fields found{header}")
        # too many numbers, rather than a word with spaces such as `1 000`
        if len(fields) > width + 1 and all(map(_is_number, fields[1:])) and not all(map(str.isdecimal, fields[:-width])):
            raise SesameError(f"{place}: {len(fields) - 1} numbers, {width} expected")
        try:
            with np.errstate(over="ignore"):  # counted as not finite where vectors are taken in
                vector = np.array(fields[-width:], dtype=np.float64).astype(np.float32)
        except ValueError:
            raise SesameError(f"{place}: {width} numbers expected after the word") from None
        yield place, word, vector
    if promised is not None and number - 1 != promised and number - 1 < most:
        raise SesameError(
            f"{file.name}, line 1: {promised} vectors promised, {number - 1} are there, the last on line {last}: the file may be cut off, "
            "or of several; give the complete one, or correct its first line"
        )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def word2vec_binary(file: SourceFile, most: int) -> Entries:
    """word2vec's binary format, with gensim."""
    from gensim.models import KeyedVectors

    with _on_disk(file, "word2vec's binary form") as path:
        vectors = KeyedVectors.load_word2vec_format(str(path), binary=True, limit=most, unicode_errors="replace")
    return _in_order(file, vectors.index_to_key, vectors.vectors)


def fasttext_binary(file: SourceFile, most: int) -> Entries:
    """fastText's .bin, with gensim: the vector of a word includes those of its n-grams."""
    from gensim.models.fasttext import load_facebook_vectors

    with _on_disk(file, "fastText's .bin") as path:
        vectors = load_facebook_vectors(str(path))
    return _in_order(file, vectors.index_to_key[:most], vectors.vectors[:most])


def npz(file: SourceFile, most: int) -> Entries:
    """numpy arrays `words` (words,) of str and `vectors` (words, d)."""
    with _on_disk(file, "npz") as path:
        arrays = np.load(path, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            expected = "`words` and `vectors` expected, as numpy.savez writes them"
            raise ValueError(f"it is a single array, as of .npy; {expected}")
        if arrays["vectors"].dtype.kind not in "fiu":
            raise ValueError(f"`vectors` are {arrays['vectors'].dtype}, where real numbers are expected")
        words, vectors = arrays["words"][:most].tolist(), arrays["vectors"][:most].astype(np.float32)
        if arrays["words"].dtype.kind != "U" or arrays["words"].ndim != 1 or vectors.ndim != 2 or len(words) != len(vectors):
            kind = f"{arrays['words'].dtype} of the shape {arrays['words'].shape}"
            raise ValueError(f"`words` (words,) of text and `vectors` (words, d) expected; found {kind} and {vectors.shape}")
    return _in_order(file, words, vectors)


def _in_order(file: SourceFile, words: list[str], vectors: np.ndarray) -> Entries:
    return ((f"{file.name}, vector {n}", *entry) for n, entry in enumerate(zip(words, vectors, strict=True), 1))


@contextmanager
def _on_disk(file: SourceFile, form: str) -> Iterator[Path]:
    """A copy of the file that a library can open by its path; errors of the library become one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors")
        with file.open() as stream, path.open("wb") as written:
            shutil.copyfileobj(stream, written)
        try:
            yield path
        except Exception as error:  # of many kinds: no format marks its end
            raise SesameError(f"{file.name}: can't be read as {form}: {one_line(error)}") from None


FORMATS = {"text": text, "word2vec_binary": word2vec_binary, "fasttext_binary": fasttext_binary, "npz": npz}
"""(file, maximal number of vectors) -> (place, word, vector (d,)), most frequent first."""


if __name__ == "__main__":
    stage.main("published_vectors", import_vectors)
