"""Gaps in a text, `[MASK]`, as a model marks them: by its mask token, or by sentinels, as T5."""

from collections.abc import Sequence

import numpy as np

from components.core.errors import SesameError
from components.text.tokenizer import Tokenizer, sentinels
from components.text.tokenizer.fast import FastTokenizer

GAP = "[MASK]"


def imported_sentinels(tokens: FastTokenizer) -> list[int]:
    """The ids of T5's sentinels in their order; none for other models."""
    ids = (tokens.tokenizer.token_to_id(f"{sentinels.PREFIX}{i}>") for i in range(len(tokens.specials)))
    return [i for i in ids if i is not None]


def encode(tokens: Tokenizer | FastTokenizer, text: str, marks: Sequence[int]) -> list[int]:
    """Return the ids of a text without special tokens around it; each `[MASK]` is the next of `marks`, cyclically.

    An imported tokenizer encodes the whole text, as `transformers` does, so that blanks beside a gap are as in its
    training. Raises SesameError for a gap that the model can't mark, and for other special tokens in such a text.
    """
    if isinstance(tokens, Tokenizer):
        return sentinels.with_holes(tokens, text, marks)
    first, *others = text.split(GAP)
    names = [tokens.tokenizer.id_to_token(mark) for mark in marks]
    if not others and not any(name in text for name in names):
        return tokens.encode([text])[0]
    if not marks:
        raise SesameError(f"the text has a {GAP}, and this model has no token for a gap: leave it out")
    marked = first + "".join(names[i % len(names)] + segment for i, segment in enumerate(others))
    tokens.tokenizer.encode_special_tokens = False  # or the mask would be read letter by letter
    try:
        ids = tokens.tokenizer.encode(marked, add_special_tokens=False).ids
    finally:
        tokens.tokenizer.encode_special_tokens = True
    if strangers := [i for i in ids if i in tokens.specials and i not in marks and i != tokens.unknown]:
        token = tokens.tokenizer.id_to_token(strangers[0])
        raise SesameError(f"the text has {token}, which this model reads as a special token: leave it out")
    return ids


def not_text(tokens: Tokenizer | FastTokenizer) -> list[int]:
    """Ids that no generated text has: special tokens and sentinels."""
    if isinstance(tokens, Tokenizer):
        return np.setdiff1d(np.arange(tokens.vocab_size), sentinels.ordinary(tokens)).tolist()
    return sorted(tokens.specials)
