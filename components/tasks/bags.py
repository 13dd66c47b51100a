"""Texts as bags of words, for baselines without a model."""

from collections.abc import Mapping, Sequence

from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from components.core.words import WORD, characters_apart
from components.tasks import Example


def word_weights(rows: Mapping[str, Sequence[Example]], pair: bool) -> dict[str, list[sparse.csr_matrix]]:
    """The TF-IDF bags of each split's first texts, and of a pair's second ones: (examples, words), rows of length one.

    Words and weights are of the split `train`. Punctuation is no part of a word. In scripts without blanks between words
    each character is one.
    """
    vectorizer = TfidfVectorizer(preprocessor=lambda text: characters_apart(text.lower()), token_pattern=WORD, sublinear_tf=True)
    vectorizer.fit(text for row in rows["train"] for text in (row.text_a, row.text_b) if text)
    sides = ("text_a", "text_b") if pair else ("text_a",)
    return {
        split: [vectorizer.transform(getattr(row, side) for row in examples) for side in sides]
        for split, examples in rows.items()
    }


def bags_of_words(rows: Mapping[str, Sequence[Example]], pair: bool) -> dict[str, sparse.csr_matrix]:
    """Features of each split, (examples, words); of a pair of texts [u, v, |u - v|, u * v]."""
    bags = word_weights(rows, pair)
    if not pair:
        return {split: u for split, [u] in bags.items()}
    return {split: sparse.hstack([u, v, abs(u - v), u.multiply(v)]).tocsr() for split, [u, v] in bags.items()}
