"""The likeliest tokens for each [MASK] of a prompt, shown in samples."""

import torch
from torch import Tensor

from components.text.tokenizer import CLS, MASK, SEP, SPECIALS, Tokenizer

FILLINGS = 5


def mask_prompt(tokens: Tokenizer, prompt: str, max_length: int) -> Tensor:
    """Encode a prompt with `[MASK]`s, (1, length), cut to max_length."""
    first, *rest = tokens.encode(prompt.split("[MASK]"))
    ids = [CLS, *first]
    for span in rest:
        ids += [MASK, *span]
    return torch.tensor([[*ids[: max_length - 1], SEP]])


def likeliest_fillings(tokens: Tokenizer, logits: Tensor) -> str:
    """logits (masks, vocab_size) -> the likeliest tokens for each mask as text."""
    logits[:, : len(SPECIALS)] = -torch.inf
    likeliest = logits.topk(min(FILLINGS, logits.shape[1] - len(SPECIALS))).indices
    return " | ".join(", ".join(tokens.pieces[i].decode(errors="replace").strip() for i in row) for row in likeliest)
