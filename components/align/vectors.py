"""Stage `vectors`: `python -m components.align.vectors NAME` writes data/vectors/NAME.

`vectors.npy` is float32 (words, vector_size); `vocabulary.txt` has `word<TAB>count` for each row, most frequent first.
"""

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components import corpora, params, stage
from components.errors import SesameError

WORD = re.compile(r"[^\W\d_]+")
"""What a word is here: a run of letters. Digits, punctuation and the apostrophe separate."""


@dataclass(frozen=True)
class Space:
    """Words with their counts and vectors, most frequent first."""

    words: list[str]
    counts: np.ndarray
    """(words,) occurrences in the training text."""
    vectors: np.ndarray
    """(words, vector_size) float32."""


def load(path: str | Path, limit: int | None = None) -> Space:
    """The (`limit` most frequent) vectors of a `data/vectors/<name>` folder. Raises SesameError when a file is not there, or broken."""
    path = Path(path)
    with stage.reading(path / "vocabulary.txt"):
        words, counts = zip(*(line.split("\t") for line in (path / "vocabulary.txt").read_text(encoding="utf-8").splitlines()), strict=True)
        counts = np.array(counts, dtype=np.int64)
    with stage.reading(path / "vectors.npy"):
        vectors = np.load(path / "vectors.npy")
        if len(vectors) != len(words):
            raise ValueError(f"{len(vectors)} vectors, {len(words)} words in vocabulary.txt")
    return Space(list(words[:limit]), counts[:limit], vectors[:limit])


def sentences_of(path: Path) -> list[list[str]]:
    """The lower-cased words of each segment of a corpus' training split."""
    return [WORD.findall(segment.lower()) for document in corpora.read(path, "train") for segment in document]


def _skip_gram(sentences: list[list[str]], block: params.SkipGram) -> Space:
    """With one worker the same text, block and library versions give the same bits."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        sg=1, hs=0, vector_size=block.vector_size, window=block.window, min_count=block.min_count, negative=block.negative,
        sample=block.sample, epochs=block.epochs, seed=block.seed, workers=block.workers,
    )  # fmt: skip
    model.build_vocab(sentences)
    _check(len(model.wv), 10, block)
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    words = model.wv.index_to_key
    return Space(words, np.array([model.wv.get_vecattr(word, "count") for word in words]), model.wv.vectors.astype(np.float32))


def _ppmi_svd(sentences: list[list[str]], block: params.PpmiSvd) -> Space:
    """Levy, Goldberg and Dagan (2015), section 2.2: U Sᵖ of the truncated SVD of max(0, PMI) with smoothed contexts."""
    from scipy import sparse
    from scipy.sparse.linalg import svds
    from threadpoolctl import threadpool_limits

    counts = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, count in counts.most_common(block.max_vocabulary) if count >= block.min_count]
    _check(len(words), block.vector_size + 1, block)
    row = {word: i for i, word in enumerate(words)}
    kept = [[row[word] for word in sentence if word in row] for sentence in sentences]
    ids = np.fromiter((i for sentence in kept for i in sentence), dtype=np.int32)
    sentence_of = np.repeat(np.arange(len(kept), dtype=np.int32), [len(sentence) for sentence in kept])

    pairs = sparse.csr_matrix((len(words), len(words)), dtype=np.float32)
    for distance in range(1, block.window + 1):
        same = sentence_of[:-distance] == sentence_of[distance:]
        ones = np.full(int(same.sum()), (block.window + 1 - distance) / block.window, dtype=np.float32)
        pairs = pairs + sparse.csr_matrix((ones, (ids[:-distance][same], ids[distance:][same])), shape=pairs.shape)
    pairs = (pairs + pairs.T).tocoo()
    total = np.asarray(pairs.sum(axis=1), dtype=np.float64).ravel()
    context = total**block.context_smoothing
    pairs.data = np.maximum(0, np.log(pairs.data * context.sum() / (total[pairs.row] * context[pairs.col])))
    pairs.eliminate_zeros()

    start = np.random.default_rng(0).standard_normal(len(words))  # of the iteration; the factors don't depend on it
    with threadpool_limits(1):  # more threads are slower on vectors this short, and sums would depend on their number
        u, s, _ = svds(pairs.tocsr(), k=block.vector_size, v0=start)
    vectors = u[:, ::-1] * s[::-1] ** block.eigenvalue_weight  # svds gives the smallest value first
    return Space(words, np.array([counts[word] for word in words]), vectors.astype(np.float32))


def _check(vocabulary: int, needed: int, block: params.Vectors) -> None:
    if vocabulary < needed:
        raise SesameError(
            f"{vocabulary} words occur min_count ({block.min_count}) times or more in corpus {block.corpus!r}, {needed} are needed: "
            "lower min_count or take more text"
        )


KINDS = {"skip_gram": _skip_gram, "ppmi_svd": _ppmi_svd}
"""Sentences of words, a block of params -> a space. Each raises SesameError when the text is too short."""


def body(params: params.Params, name: str, run) -> dict:
    """Train the vectors `name`."""
    block = params.vectors[name]
    sentences = sentences_of(Path("data/corpora", block.corpus))
    words = sum(map(len, sentences))
    started = time.perf_counter()
    space = KINDS[block.kind](sentences, block)
    seconds = time.perf_counter() - started
    with stage.output(Path("data/vectors", name)) as folder:
        folder.mkdir()
        np.save(folder / "vectors.npy", space.vectors)
        lines = (f"{word}\t{count}\n" for word, count in zip(space.words, space.counts, strict=True))
        (folder / "vocabulary.txt").write_text("".join(lines), encoding="utf-8")
    print(f"{block.kind}: {len(space.words)} vectors out of {words} words in {seconds:.1f} s", flush=True)
    return {
        "words": words,
        "vocabulary": len(space.words),
        "words_per_second": round(words / seconds),
        "cost": {"tokens": words * getattr(block, "epochs", 1)},
    }


if __name__ == "__main__":
    stage.main("vectors", body, "vectors")
