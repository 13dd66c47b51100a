"""Words in any script, as components of regular expressions.

Python's `\\w` has no combining marks: it cuts हिन्दी into bare consonants, and likewise most words of the scripts of India, Hebrew with
vowels, and letters whose accent is a separate character.
"""

import re
import unicodedata

SELECTORS = range(0xFE00, 0xFE10)
"""Variation selectors: marks that do not occur in words."""
NON_JOINER, JOINER = "\u200c", "\u200d"
"""Zero-width characters that control the joining of letters within a word."""
ZERO_WIDTH = "\u200b\u200e\u200f\ufeff"
"""The other zero-width characters, for use within brackets: places to break a line, marks of a direction, a mark of byte
order."""


def _characters(*categories: str, without: range) -> str:
    """Return the characters of all scripts in these categories of Unicode, as ranges for use within brackets."""
    points = [i for i in range(0x1F000) if unicodedata.category(chr(i)) in categories and i not in without]
    begins = [i for i, before in zip(points, [None, *points], strict=False) if before != i - 1]
    ends = [i for i, after in zip(points, [*points[1:], None], strict=True) if after != i + 1]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(begins, ends, strict=True))


MARKS = _characters("Mn", "Mc", without=SELECTORS)
"""Combining marks, for use within brackets."""
LOWER_CASE = _characters("Ll", without=range(0x10D0, 0x1100))
"""Small letters, for use within brackets. Georgian's are not among them, though Unicode calls them small: its sentences
begin without a capital."""


def _word(letter: str) -> str:
    return f"{letter}+(?:(?:[{MARKS}{JOINER}]+|{NON_JOINER}(?={letter})){letter}*)*"


LETTERS = _word(r"[^\W\d_]")
"""Letters with their marks, separated by digits, punctuation and apostrophes."""
WORD = _word(r"\w")
"""Letters, digits and `_` with their marks."""
HAN, OTHERS = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff", r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"
"""Chinese; Thai, Lao, Burmese, Khmer and kana, for use within brackets: scripts without blanks between words."""
UNSPACED = rf"[{HAN}{OTHERS}][{MARKS}]*"
"""A character of such a script with its marks, which stands for a word where words are compared."""
EAST_ASIAN = rf"{HAN}\u3040-\u30ff\u3000-\u303f\uff00-\uff9f"
"""Chinese, kana, and the punctuation and wide forms beside them, for use within brackets: a line may end anywhere between two of these."""


def characters_apart(text: str) -> str:
    """Put blanks around each character of a script without blanks, with its marks, so that it counts as a word."""
    return text if text.isascii() else re.sub(UNSPACED, r" \g<0> ", text)
