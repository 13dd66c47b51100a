"""The words of a sentence for rules and n-grams."""

import re

from components.core.words import LETTERS, characters_apart

TOKEN = re.compile(rf"(?:{LETTERS})(?:['’](?:{LETTERS}))*|\d+|\S")
"""A word such as `they're`, a number, or another character."""


def tokens(text: str) -> list[str]:
    """In lower case; in scripts without blanks between words each character is one."""
    return [token.lower() for token in TOKEN.findall(characters_apart(text))]
