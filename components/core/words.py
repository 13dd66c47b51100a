"""What a word is, in the writing of any language, as parts of regular expressions.

Python's `\\w` has no combining marks: it cuts हिन्दी into bare consonants, and likewise most words of the scripts of India, Hebrew
with its vowels, and letters whose accent is a character of its own.
"""

import unicodedata

SELECTORS = range(0xFE00, 0xFE10)
"""Of how a character looks: marks that no word is written with."""
APART, TOGETHER = "\u200c", "\u200d"
"""Joiners: within a word they say how its letters are drawn."""


def _marks() -> str:
    """The combining marks of all scripts, to stand within brackets."""
    points = [i for i in range(0x300, 0x1F000) if unicodedata.category(chr(i)) in ("Mn", "Mc") and i not in SELECTORS]
    begins = [i for i, before in zip(points, [None, *points], strict=False) if before != i - 1]
    ends = [i for i, after in zip(points, [*points[1:], None], strict=True) if after != i + 1]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(begins, ends, strict=True))


MARKS = _marks()


def _word(letter: str) -> str:
    return f"{letter}+(?:(?:[{MARKS}{TOGETHER}]+|{APART}(?={letter})){letter}*)*"


LETTERS = _word(r"[^\W\d_]")
"""A run of letters with their marks: digits, punctuation and the apostrophe separate."""
WORD = _word(r"\w")
"""The same of letters, digits and `_`."""
HAN, OTHERS = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff", r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"
"""Chinese, and Thai, Lao, Burmese, Khmer and kana, to stand within brackets: where no blank says where a word ends."""
