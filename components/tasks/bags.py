"""Texts as bags of words, for baselines without a model."""

from collections.abc import Mapping, Sequence

from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from components.core.words import WORD, characters_apart
from components.tasks import Example


def bags_of_words(rows: Mapping[str, Sequence[Example]], pair: bool) -> dict[str, sparse.csr_matrix]:
    """Features of each split, (examples, words); of a pair of texts [u, v, |u - v|, u * v]. Words and weights are of the split `train`.

    Punctuation is no part of a word. In scripts without blanks between words each character is one.
    """
    vectorizer = TfidfVectorizer(preprocessor=lambda text: characters_apart(text.lower()), token_pattern=WORD, sublinear_tf=True)
    vectorizer.fit(text for row in rows["train"] for text in (row.text_a, row.text_b) if text)
    features = {}
    for split, examples in rows.items():
        u = vectorizer.transform(row.text_a for row in examples)
        if pair:
            v = vectorizer.transform(row.text_b for row in examples)
            u = sparse.hstack([u, v, abs(u - v), u.multiply(v)]).tocsr()
        features[split] = u
    return features
