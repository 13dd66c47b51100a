"""Masked spans (SpanBERT, Joshi et al. 2020, section 3.1)."""

from typing import Protocol

import numpy as np

from components.core.keyed import uniform
from components.objectives.noise.tokens import Shares, hidden

ANCHOR, LENGTH = 4, 5  # what a keyed number decides
DRAWS = 30
"""Of spans for a row, beside one for each target; one that is full before asks for none, and a row that is hard to fill stays below
its share."""


class Spans(Shares, Protocol):
    """How long the spans are, too."""

    span_probability: float
    longest_span: int


def mask_spans(
    tokens: np.ndarray, sizes: np.ndarray, config: Spans, ordinary: np.ndarray, key: tuple[int, ...], examples: np.ndarray,
    opens: np.ndarray, texts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """As `mask`, and of each target the first and the last token of its span, (targets, 2), counted over all rows. texts (n,) is True where
    another text begins than that of the token before: no span goes over it, since a `[SEP]` stands there.

    Spans of whole words are drawn until round(mlm_probability * size) of a row's tokens, at least one, are targets: each begins anywhere,
    is geometric in length, and is passed over where it meets another; the last is cut to what is left, by words. At least the shortest
    word of a row is one. What becomes of a span (`[MASK]`, other tokens, nothing) is decided for all of it.
    """
    counts = np.minimum(sizes, np.maximum(1, np.round(config.mlm_probability * sizes).astype(int)))
    starts = np.append(np.flatnonzero(opens), len(tokens))  # of words, over all rows
    row_of_word = np.repeat(np.arange(len(sizes)), sizes)[starts[:-1]]
    words = np.bincount(row_of_word, minlength=len(sizes))
    first_words = np.cumsum(words) - words
    begins = np.append(np.flatnonzero(texts[starts[:-1]]), len(starts) - 1)  # the first word of each text
    ends = begins[np.searchsorted(begins, np.arange(len(starts) - 1), side="right")]  # of each word: the first of the next text
    span = np.full(len(starts) - 1, -1)  # of each word: the first word of the span that it is of
    shares = (1 - config.span_probability) ** np.arange(config.longest_span) * config.span_probability
    bounds = np.cumsum(shares / shares.sum())
    left, rows = counts.copy(), np.arange(len(sizes))
    for draw in range(DRAWS + counts.max(initial=0)):
        rows = rows[left[rows] > 0]
        if not len(rows):
            break
        anchor = first_words[rows] + (uniform(*key, examples[rows], draw, ANCHOR) * words[rows]).astype(int)
        length = 1 + np.searchsorted(bounds, uniform(*key, examples[rows], draw, LENGTH), side="right")
        stop = np.minimum(anchor + length, ends[anchor])
        fits = np.searchsorted(starts, starts[anchor] + left[rows], side="right") - 1  # the word after the last that is not too much
        stop = np.minimum(stop, fits)
        own = anchor[:, None] + np.arange(config.longest_span)
        within = own < stop[:, None]
        free = (np.where(within, span[own.clip(max=len(span) - 1)], -1) < 0).all(1) & (stop > anchor)
        own, within, anchor, stop, taken = own[free], within[free], anchor[free], stop[free], rows[free]
        span[own[within]] = np.repeat(anchor, stop - anchor)
        left[taken] -= starts[stop] - starts[anchor]
    bare = np.flatnonzero(left == counts)
    if len(bare):
        size = np.diff(starts)
        order = np.lexsort((size, row_of_word))  # each row's shortest word first
        shortest = order[first_words[bare]]
        span[shortest] = shortest
    word = np.cumsum(opens) - 1
    targets = np.flatnonzero(span[word] >= 0)
    first = span[word[targets]]
    last_word = np.zeros(len(span), int)
    np.maximum.at(last_word, first, word[targets])
    edges = np.stack([starts[first], starts[last_word[first] + 1] - 1], 1)
    return hidden(tokens, sizes, targets, edges[:, 0], config, ordinary, key, examples), targets, edges
