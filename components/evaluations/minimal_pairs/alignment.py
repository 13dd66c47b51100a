"""Tokens, words and spans of characters."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from components.core.words import HAN, JOINER, MARKS, NON_JOINER, OTHERS, WORD

LETTER = rf"(?![{HAN}{OTHERS}])\w"
WITHIN = MARKS + JOINER + NON_JOINER
INSIDE_WORD = re.compile(rf"[\w{WITHIN}][{WITHIN}]|(?:{LETTER}|[{WITHIN}]){LETTER}")
"""Two characters without a word boundary between them: letters, digits, combining marks, joiners. In scripts without
blanks between words each token is a word, as for the tokenizers of `transformers` and for whole-word masking here."""


def word_of_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The index of the word of each token, given the tokens' spans of characters."""
    words, word, end, continues = [], -1, 0, False
    for first, last in spans:
        shown = text[first:last]
        start = first + len(shown) - len(shown.lstrip())  # some tokens include the blank before their word
        # each of a character's bytes, which may be several tokens, has the whole character
        same_character = first < end and bool(words)
        inside = start == end and bool(INSIDE_WORD.fullmatch(text[start - 1 : start + 1]))
        word += not (continues or same_character or inside and words)
        words.append(word)
        # a token of a blank belongs to the next word
        end, continues = last, not shown.strip()
    return words


def span_of_tokens(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """The index of the span in which each token's first character lies, -1 for none; a blank belongs to what follows."""
    starts = [first + len(text[first:last]) - len(text[first:last].lstrip()) for first, last in offsets]
    return np.array([next((i for i, (low, high) in enumerate(spans) if low <= start < high), -1) for start in starts], int)


SHARED = re.compile(rf"{WORD}|[^\w\s]")
"""A word with its combining marks, or another character."""
Spans = list[tuple[int, int]]


def shared_words(one: str, other: str) -> tuple[Spans, Spans]:
    """The first and last characters of the words that both texts have in the same order, in each text."""
    words = [list(SHARED.finditer(text)) for text in (one, other)]
    matcher = SequenceMatcher(None, *([word[0] for word in side] for side in words), autojunk=False)
    shared = [(a + i, b + i) for a, b, size in matcher.get_matching_blocks() for i in range(size)]
    return [words[0][a].span() for a, _ in shared], [words[1][b].span() for _, b in shared]
