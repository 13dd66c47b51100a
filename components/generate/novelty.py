"""How much of what is written stands in the training text already."""

from collections.abc import Iterator

import numpy as np

from components.text.encode import Shard, Split

LONGEST = 64
"""Tokens of a copy; longer ones count as so many."""
CHUNK = 2**22
"""Tokens of the training text that are looked through together."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def mixed(ids: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each token, far from that of its neighbour: else sums of other tokens would be the same."""
    with np.errstate(over="ignore"):
        numbers = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        return numbers ^ (numbers >> np.uint64(29))


def windows(ids: np.ndarray, n: int) -> np.ndarray:
    """A number of 64 bits for each n tokens that stand side by side, (len(ids) - n + 1,)."""
    if len(ids) < n:
        return np.empty(0, np.uint64)
    parts, numbers = mixed(ids), np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for i in range(n):
            numbers = numbers * FACTOR + parts[i : len(ids) - n + 1 + i]
    return numbers


def chunks(shard: Shard) -> Iterator[np.ndarray]:
    for start in range(0, len(shard.tokens), CHUNK):
        yield np.asarray(shard.tokens[start : start + CHUNK + LONGEST - 1])


def known(texts: list[list[int]], train: Split) -> list[list[np.ndarray]]:
    """For n = 1, 2, ..., LONGEST, and of each text: which of its n-grams stand in the training text, (its n-grams,), boolean.

    One pass: a run is followed from its first token on, as long as it is one of the texts', so that few are left after some tokens.
    """
    own = [[windows(np.array(text, np.int64), n) for text in texts] for n in range(1, LONGEST + 1)]
    wanted = [np.unique(np.concatenate(grams)) for grams in own]
    met = [np.zeros(len(numbers), bool) for numbers in wanted]
    for chunk in (chunk for shard in train.shards for chunk in chunks(shard)):
        parts, begins = mixed(chunk), np.arange(len(chunk))
        numbers = np.zeros(len(chunk), np.uint64)
        for n, (sorted_, there) in enumerate(zip(wanted, met, strict=True)):
            inside = begins + n < len(chunk)
            begins = begins[inside]
            with np.errstate(over="ignore"):
                numbers = numbers[inside] * FACTOR + parts[begins + n]
            if not len(sorted_) or not len(begins):
                break
            at = np.searchsorted(sorted_, numbers).clip(max=len(sorted_) - 1)
            same = sorted_[at] == numbers
            there[at[same]] = True
            begins, numbers = begins[same], numbers[same]
    return [
        [there[np.searchsorted(sorted_, numbers)] for numbers in grams] for grams, sorted_, there in zip(own, wanted, met, strict=True)
    ]  # fmt: skip


def copied(texts: list[list[int]], train: Split, sizes: tuple[int, ...] = (2, 3, 4, 6, 8)) -> dict[str, float | None]:
    """`novel_n`: the share of all n-grams (of tokens) that the training text does not have, None where no text is so long; and the
    longest copies: `longest_copy` of all texts, `copy` the mean over the texts (McCoy et al. 2023, section 4)."""
    figures: dict[str, float | None] = {}
    longest = np.zeros(len(texts), int)
    for n, there in enumerate(known(texts, train) if texts else [], start=1):
        if n in sizes:
            grams = np.concatenate(there)
            figures[f"novel_{n}"] = float(1 - grams.mean()) if len(grams) else None
        longest[[own.any() for own in there]] = n
    return figures | {"copy": float(longest.mean()) if len(texts) else None, "longest_copy": float(longest.max(initial=0))}


def nearest(texts: list[str], sentences: list[str]) -> list[tuple[str, float]]:
    """Of each text the training sentence that is most like it, and the cosine of their words weighted by rarity."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second

    vectors = TfidfVectorizer(token_pattern=r"\S+").fit(sentences)
    rows = vectors.transform(texts) @ vectors.transform(sentences).T
    best = np.asarray(rows.argmax(axis=1)).ravel()
    return [(sentences[j], float(rows[i, j])) for i, j in enumerate(best)]
