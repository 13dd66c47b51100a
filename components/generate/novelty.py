"""How much of a generated text is copied from the training text."""

from collections.abc import Iterator

import numpy as np

from components.core.words import HAN, OTHERS, UNSPACED
from components.text.encode import Shard, Split

LONGEST = 512
"""Tokens of the longest copy that is measured."""
CHUNK = 2**22
"""Tokens of the training text in memory at once."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)
WORDS = rf"{UNSPACED}|[^\s{HAN}{OTHERS}]+"
"""What blanks divide; in scripts without blanks between words, the characters."""


def mixed(ids: np.ndarray) -> np.ndarray:
    """A 64-bit hash for each token, far from that of its neighbour, so that hashes of n-grams do not collide."""
    with np.errstate(over="ignore"):
        numbers = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        return numbers ^ (numbers >> np.uint64(29))


def windows(ids: np.ndarray, n: int) -> np.ndarray:
    """A 64-bit hash for each n-gram, (len(ids) - n + 1,)."""
    if len(ids) < n:
        return np.empty(0, np.uint64)
    hashes, numbers = mixed(ids), np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for i in range(n):
            numbers = numbers * FACTOR + hashes[i : len(ids) - n + 1 + i]
    return numbers


def chunks(shard: Shard) -> Iterator[np.ndarray]:
    for start in range(0, len(shard.tokens), CHUNK):
        yield np.asarray(shard.tokens[start : start + CHUNK + LONGEST - 1])


def known(texts: list[list[int]], train: Split) -> list[list[np.ndarray]]:
    """For n = 1, 2, ..., LONGEST and each text: which of its n-grams are in the training text, (n-grams,) bool.

    One pass over the training text: an n-gram is extended only while it is an n-gram of the texts, so that few remain after some tokens.
    """
    by_size = [[windows(np.array(text, np.int64), n) for text in texts] for n in range(1, LONGEST + 1)]
    wanted = [np.unique(np.concatenate(grams)) for grams in by_size]
    flags = [np.zeros(len(numbers), bool) for numbers in wanted]
    for chunk in (chunk for shard in train.shards for chunk in chunks(shard)):
        hashes, starts = mixed(chunk), np.arange(len(chunk))
        numbers = np.zeros(len(chunk), np.uint64)
        for n, (sorted_, is_found) in enumerate(zip(wanted, flags, strict=True)):
            inside = starts + n < len(chunk)
            starts = starts[inside]
            with np.errstate(over="ignore"):
                numbers = numbers[inside] * FACTOR + hashes[starts + n]
            if not len(sorted_) or not len(starts):
                break
            index = np.searchsorted(sorted_, numbers).clip(max=len(sorted_) - 1)
            same = sorted_[index] == numbers
            is_found[index[same]] = True
            starts, numbers = starts[same], numbers[same]
    return [
        [is_found[np.searchsorted(sorted_, numbers)] for numbers in grams]
        for grams, sorted_, is_found in zip(by_size, wanted, flags, strict=True)
    ]


def copied(texts: list[list[int]], train: Split, sizes: tuple[int, ...] = (2, 3, 4, 6, 8)) -> dict[str, float | None]:
    """`novel_n`: the share of all n-grams of tokens that are not in the training text, None where no text is long enough; and the
    lengths of copies: `longest_copy` over all texts, `copy` the mean over the texts (McCoy et al. 2023, section 4)."""
    figures: dict[str, float | None] = {}
    longest = np.zeros(len(texts), int)
    for n, in_train in enumerate(known(texts, train) if texts else [], start=1):
        if n in sizes:
            grams = np.concatenate(in_train)
            figures[f"novel_{n}"] = float(1 - grams.mean()) if len(grams) else None
        longest[[grams.any() for grams in in_train]] = n
    return figures | {"copy": float(longest.mean()) if len(texts) else None, "longest_copy": float(longest.max(initial=0))}


def nearest(texts: list[str], sentences: list[str]) -> list[tuple[str, float]]:
    """The most similar training sentence of each text, with the cosine of their TF-IDF vectors. Words of a text that no training sentence
    has count as the rarest ones: without them, half a copy would be as similar as a whole one."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer  # takes a second

    words = CountVectorizer(token_pattern=WORDS).fit([*sentences, *texts]).vocabulary_
    vectors = TfidfVectorizer(token_pattern=WORDS, vocabulary=words).fit(sentences)
    rows = vectors.transform(texts) @ vectors.transform(sentences).T
    best = np.asarray(rows.argmax(axis=1)).ravel()
    return [(sentences[j], float(rows[i, j])) for i, j in enumerate(best)]
