"""Unigram, bigram and trigram of words, counted on a training text: what to hold models against on every page."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from components.core.errors import SesameError
from components.core.ngrams import KneserNey
from components.evaluations.minimal_pairs.words import tokens

OPENS, UNKNOWN = 0, 1
"""Ids of what stands before a sentence, and of words that the training text does not have."""


class NGrams:
    """Interpolated Kneser-Ney models of several orders over one vocabulary: words and punctuation, in small letters.

    Their scores follow the convention of `scoring`: all words of a sentence add up, its end does not.
    """

    def __init__(self, documents: Iterable[Sequence[str]], orders: Sequence[int] = (1, 2, 3)):
        """Counts documents of segments, each of which stands for itself. Words that occur once are unknown, so that
        something is. Raises SesameError where there are no words, or an order is more than the counts hold."""
        sentences = [tokens(text) for document in documents for text in document]
        counts = Counter(word for sentence in sentences for word in sentence)
        if not counts:
            raise SesameError("n-grams: the training text has no words; name a corpus with a train split")
        once = sum(count == 1 for count in counts.values())
        known = sorted(word for word, count in counts.items() if count > 1 or once == len(counts))
        self.ids = {word: i for i, word in enumerate(known, start=UNKNOWN + 1)}
        self.vocab_size = len(known) + 2
        if max(orders) * (self.vocab_size - 1).bit_length() > 63:
            raise SesameError(f"n-grams: order {max(orders)} of {self.vocab_size:,} words; take an order of at most 3")
        self.models = {order: KneserNey(self._stream(sentences, order), self.vocab_size, order) for order in orders}

    def _stream(self, sentences: Sequence[Sequence[str]], order: int) -> np.ndarray:
        """Ids of sentences one behind the other, before each OPENS as often as an n-gram of its first word looks back: none sees the
        sentence before."""
        get, opens = self.ids.get, [OPENS] * max(1, order - 1)
        return np.array([i for own in sentences for i in (*opens, *(get(word, UNKNOWN) for word in own))], np.int64)

    def knows(self, sentence: str) -> bool:
        """Whether the training text has each of its words twice."""
        return all(word in self.ids for word in tokens(sentence))

    def score(self, sentences: Sequence[str]) -> dict[int, np.ndarray]:
        """Of each order the log-probability of each sentence in nats, (n,) float64: the same beside whatever others."""
        taken = [tokens(text) for text in sentences]
        sentence, scores = np.repeat(np.arange(len(taken)), [*map(len, taken)]), {}
        for order, model in self.models.items():
            stream = self._stream(taken, order)
            likely = np.log(model.probabilities(stream))[stream != OPENS]
            scores[order] = np.bincount(sentence, likely, minlength=len(taken))
        return scores
