"""The words of a sentence, as rules and n-grams see them."""

import re

from components.core.words import LETTERS

TOKEN = re.compile(rf"(?:{LETTERS})(?:['’](?:{LETTERS}))*|\d+|\S")
"""A word, `they're` among them, a number, or another character."""


def tokens(text: str) -> list[str]:
    """In small letters."""
    return [token.lower() for token in TOKEN.findall(text)]
