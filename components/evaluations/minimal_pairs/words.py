"""The words of a sentence for rules and n-grams."""

import re

from components.core.words import LETTERS

TOKEN = re.compile(rf"(?:{LETTERS})(?:['’](?:{LETTERS}))*|\d+|\S")
"""A word such as `they're`, a number, or another character."""


def tokens(text: str) -> list[str]:
    """In lower case."""
    return [token.lower() for token in TOKEN.findall(text)]
