"""How much of what is written stands in the training text already."""

from collections.abc import Iterator

import numpy as np

from components.encode import Shard, Split

LONGEST = 64
"""Tokens of a copy; longer ones count as so many."""
CHUNK = 2**22
"""Tokens of the training text that are looked through together."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def windows(ids: np.ndarray, n: int) -> np.ndarray:
    """A number of 64 bits for each n tokens that stand side by side, (len(ids) - n + 1,)."""
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)  # or sums of other tokens would be the same
    if len(ids) < n:
        return np.empty(0, np.uint64)
    numbers = np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for i in range(n):
            numbers = numbers * FACTOR + mixed[i : len(ids) - n + 1 + i]
    return numbers


def chunks(shard: Shard, n: int) -> Iterator[np.ndarray]:
    for start in range(0, len(shard.tokens), CHUNK):
        yield np.asarray(shard.tokens[start : start + CHUNK + n - 1])


def known(texts: list[list[int]], train: Split, n: int) -> list[np.ndarray]:
    """Of each text which of its n-grams stand in the training text, (its n-grams,), boolean."""
    own = [windows(np.array(text, np.int64), n) for text in texts]
    wanted = np.unique(np.concatenate(own)) if own else np.empty(0, np.uint64)
    met = np.zeros(len(wanted), bool)
    for shard in train.shards if len(wanted) else ():
        for chunk in chunks(shard, n):
            met |= np.isin(wanted, windows(chunk, n), assume_unique=False)
    return [met[np.searchsorted(wanted, numbers)] for numbers in own]


def copied(texts: list[list[int]], train: Split, sizes: tuple[int, ...] = (2, 3, 4, 6, 8)) -> dict[str, float | None]:
    """`novel_n`: the share of all n-grams (of tokens) that the training text does not have, None where no text is so long; and the
    longest copies: `longest_copy` of all texts, `copy` the mean over the texts (McCoy et al. 2023, section 4)."""
    figures: dict[str, float | None] = {}
    longest = np.zeros(len(texts), int)
    for n in range(1, LONGEST + 1):
        there = known(texts, train, n)
        if n in sizes:
            grams = np.concatenate(there) if there else np.empty(0, bool)
            figures[f"novel_{n}"] = float(1 - grams.mean()) if len(grams) else None
        some = np.array([own.any() for own in there], bool)
        longest[some] = n
        if not some.any() and n >= max(sizes):
            break
    return figures | {"copy": float(longest.mean()) if len(texts) else None, "longest_copy": float(longest.max(initial=0))}


def nearest(texts: list[str], sentences: list[str]) -> list[tuple[str, float]]:
    """Of each text the training sentence that is most like it, and the cosine of their words weighted by rarity."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second

    vectors = TfidfVectorizer(token_pattern=r"\S+").fit(sentences)
    rows = vectors.transform(texts) @ vectors.transform(sentences).T
    best = np.asarray(rows.argmax(axis=1)).ravel()
    return [(sentences[j], float(rows[i, j])) for i, j in enumerate(best)]
