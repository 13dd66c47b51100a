"""Unigram, bigram and trigram of words, counted on a training text, as baselines."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from components.core.errors import SesameError
from components.core.ngrams import KneserNey
from components.evaluations.minimal_pairs.words import tokens

START, UNKNOWN = 0, 1
"""Ids of what precedes a sentence, and of words outside the vocabulary."""


class NGrams:
    """Interpolated Kneser-Ney models of several orders with one vocabulary: words and punctuation in lower case.

    Scores follow the convention of `scoring`: all words of a sentence are summed, its end is not.
    """

    def __init__(self, documents: Iterable[Sequence[str]], orders: Sequence[int] = (1, 2, 3)):
        """Count documents of segments, each on its own. Words that occur once are unknown, so that the unknown word has a count.
        Raises SesameError where there are no words, or an order is too high for 64-bit counts."""
        sentences = [tokens(text) for document in documents for text in document]
        counts = Counter(word for sentence in sentences for word in sentence)
        if not counts:
            raise SesameError("n-grams: the training text has no words; name a corpus with a train split")
        once = sum(count == 1 for count in counts.values())
        known = sorted(word for word, count in counts.items() if count > 1 or once == len(counts))
        self.ids = {word: i for i, word in enumerate(known, start=UNKNOWN + 1)}
        self.vocab_size = len(known) + 2
        if max(orders) * (self.vocab_size - 1).bit_length() > 63:
            raise SesameError(f"n-grams: order {max(orders)} of {self.vocab_size:,} words; use an order of at most 3")
        self.models = {order: KneserNey(self._stream(sentences, order), self.vocab_size, order) for order in orders}

    def _stream(self, sentences: Sequence[Sequence[str]], order: int) -> np.ndarray:
        """Ids of all sentences, each after as many START as an n-gram of its first word has context, so that none sees the
        sentence before."""
        start = [START] * max(1, order - 1)
        return np.array([i for words in sentences for i in (*start, *(self.ids.get(word, UNKNOWN) for word in words))], np.int64)

    def knows(self, sentence: str) -> bool:
        """Whether each word occurs twice or more in the training text."""
        return all(word in self.ids for word in tokens(sentence))

    def score(self, sentences: Sequence[str]) -> dict[int, np.ndarray]:
        """For each order the log-probability of each sentence in nats, (n,) float64, independent of the other sentences."""
        words = [tokens(text) for text in sentences]
        sentence, scores = np.repeat(np.arange(len(words)), [*map(len, words)]), {}
        for order, model in self.models.items():
            stream = self._stream(words, order)
            log_probabilities = np.log(model.probabilities(stream))[stream != START]
            scores[order] = np.bincount(sentence, log_probabilities, minlength=len(words))
        return scores
