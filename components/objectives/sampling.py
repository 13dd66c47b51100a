"""Samples for the report. `components.generate` is faster and has more decoding methods; no training depends on it."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.text.tokenizer import CLS, SEP, SPECIALS, Tokenizer

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


def continuations(model: LanguageModel, tokens: Tokenizer, prompts: list[str]) -> list[dict[str, str]]:
    """Sample a continuation of each prompt by a model that reads left to right."""
    generator, samples = torch.Generator().manual_seed(0), []
    for prompt, ids in zip(prompts, tokens.encode(prompts), strict=True):
        context = [CLS, *ids][: model.max_length]
        output = generate(
            lambda text, context=context: model.logits(model(torch.tensor([context + text]))[0, -1]),
            [SEP], min(MAX_NEW_TOKENS, model.max_length - len(context)), generator,
        )  # fmt: skip
        samples.append({"prompt": prompt, "output": tokens.decode(output)})
    return samples
