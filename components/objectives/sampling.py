"""Samples for the report. `components.generate` is faster and has more decoding methods; no training depends on it."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from components.text.tokenizer import SPECIALS

MAX_NEW_TOKENS = 24
TOP_K, TEMPERATURE = 20, 0.8


@torch.no_grad()
def generate(
    logits: Callable[[list[int]], Tensor], ends: Collection[int], max_tokens: int, generator: torch.Generator | None = None
) -> list[int]:  # fmt: skip
    """Generate tokens until one of `ends`, which is left out, or for `max_tokens`.

    Greedy, or with a `generator` top-k sampling at a temperature. `logits` maps the tokens so far to the scores of the next
    one, (vocab_size,).
    """
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        scores = logits(tokens).float()
        scores[[i for i in range(len(SPECIALS)) if i not in ends]] = -torch.inf
        top = scores.topk(min(TOP_K, len(scores)))
        index = (top.values / TEMPERATURE).softmax(0).multinomial(1, generator=generator) if generator else 0
        if (token := int(top.indices[index])) in ends:
            break
        tokens.append(token)
    return tokens
