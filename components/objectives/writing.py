"""What a model writes as a sample for the report. `components.generate` writes faster and in more ways; no training depends on it."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from components.text.tokenizer import SPECIALS

NEW_TOKENS = 24
"""Of a continuation."""
TOP_K, TEMPERATURE = 20, 0.8


@torch.no_grad()
def written(
    logits: Callable[[list[int]], Tensor], ends: Collection[int], most: int, generator: torch.Generator | None = None
) -> list[int]:  # fmt: skip
    """A text token by token, before one of the pieces that are its `ends`, or `most` tokens: the likeliest each time, or with a `generator`
    drawn among the 20 likeliest at temperature 0.8. `logits`: what is written so far -> scores of the next token, (vocab,)."""
    text: list[int] = []
    while len(text) < most:
        scores = logits(text).float()
        scores[[i for i in range(len(SPECIALS)) if i not in ends]] = -torch.inf
        likeliest = scores.topk(TOP_K)
        place = (likeliest.values / TEMPERATURE).softmax(0).multinomial(1, generator=generator) if generator else 0
        if (token := int(likeliest.indices[place])) in ends:
            break
        text.append(token)
    return text
