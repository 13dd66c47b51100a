"""Masked spans (SpanBERT, Joshi et al. 2020, section 3.1)."""

from typing import Protocol

import numpy as np

from components.core.keyed import uniform
from components.objectives.noise.tokens import MaskShares, corrupt, target_counts

ANCHOR, LENGTH = 4, 5  # keys of random numbers
EXTRA_DRAWS = 30
"""Spans drawn for a sequence in addition to one per target. A sequence that needs more stays below its share of targets."""


class SpanShares(MaskShares, Protocol):
    """The settings of masked spans."""

    span_probability: float
    longest_span: int


def mask_spans(
    tokens: np.ndarray, sizes: np.ndarray, config: SpanShares, ordinary: np.ndarray, key: tuple[int, ...], examples: np.ndarray,
    opens_word: np.ndarray, opens_text: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Like `mask`, and for each target the first and the last token of its span, (targets, 2), counted over all sequences.

    opens_text (n,) is True where another text begins than that of the token before: no span crosses it, since there is a
    `[SEP]`. Spans of whole words are drawn until round(mlm_probability * size) of a sequence's tokens, at least one, are targets.
    A span begins anywhere, has a geometric length, and is rejected if it overlaps another; the last one is shortened by
    words to what is needed. If no span fits, the shortest word of the sequence is the target. A span is masked, replaced or
    left unchanged as one.
    """
    counts = target_counts(sizes, config.mlm_probability)
    starts = np.append(np.flatnonzero(opens_word), len(tokens))  # of words, over all sequences
    sequence_of_word = np.repeat(np.arange(len(sizes)), sizes)[starts[:-1]]
    words = np.bincount(sequence_of_word, minlength=len(sizes))
    first_words = np.cumsum(words) - words
    text_starts = np.append(np.flatnonzero(opens_text[starts[:-1]]), len(starts) - 1)  # the first word of each text
    text_ends = text_starts[np.searchsorted(text_starts, np.arange(len(starts) - 1), side="right")]  # of each word: of the next text
    span = np.full(len(starts) - 1, -1)  # of each word: the first word of its span
    probabilities = (1 - config.span_probability) ** np.arange(config.longest_span) * config.span_probability
    cumulative = np.cumsum(probabilities / probabilities.sum())
    left, open_sequences = counts.copy(), np.arange(len(sizes))  # tokens that are still to be targets
    for draw in range(EXTRA_DRAWS + counts.max(initial=0)):
        open_sequences = open_sequences[left[open_sequences] > 0]
        if not len(open_sequences):
            break
        example = examples[open_sequences]
        anchor = first_words[open_sequences] + (uniform(*key, example, draw, ANCHOR) * words[open_sequences]).astype(int)
        length = 1 + np.searchsorted(cumulative, uniform(*key, example, draw, LENGTH), side="right")
        stop = np.minimum(anchor + length, text_ends[anchor])
        fits = np.searchsorted(starts, starts[anchor] + left[open_sequences], side="right") - 1  # after the last word that fits
        stop = np.minimum(stop, fits)
        candidates = anchor[:, None] + np.arange(config.longest_span)
        inside = candidates < stop[:, None]
        free = (np.where(inside, span[candidates.clip(max=len(span) - 1)], -1) < 0).all(1) & (stop > anchor)
        anchor, stop = anchor[free], stop[free]
        span[candidates[free][inside[free]]] = np.repeat(anchor, stop - anchor)
        left[open_sequences[free]] -= starts[stop] - starts[anchor]
    without_span = np.flatnonzero(left == counts)
    if len(without_span):
        order = np.lexsort((np.diff(starts), sequence_of_word))  # each sequence's shortest word first
        shortest = order[first_words[without_span]]
        span[shortest] = shortest
    word = np.cumsum(opens_word) - 1
    targets = np.flatnonzero(span[word] >= 0)
    first = span[word[targets]]
    last_word = np.zeros(len(span), int)
    np.maximum.at(last_word, first, word[targets])
    edges = np.stack([starts[first], starts[last_word[first] + 1] - 1], 1)
    return corrupt(tokens, sizes, targets, edges[:, 0], config, ordinary, key, examples), targets, edges
