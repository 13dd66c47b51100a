"""How evaluations read texts with a model: without dropout and gradients, texts of about one length together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.models.contract import LanguageModel
from components.text.tokenizer import PAD, Tokenizer
from components.text.tokenizer.fast import FastTokenizer

AnyTokenizer = Tokenizer | FastTokenizer


@contextmanager
def reading(model: LanguageModel) -> Iterator[None]:
    """Without dropout and gradients; afterwards the model is as it was."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def device_of(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def by_length(lengths: Sequence[int], more: int, most: int) -> Iterator[range]:
    """Tokens of rows, shortest first, to which some `more` come -> which rows are read together: padded, they have at
    most so many tokens."""
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (lengths[end] + more) * (end + 1 - start) > most:
            yield range(start, end)
            start = end


def padded(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """-> ids (batch, length), lengths (batch,)."""
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return ids.to(device), torch.tensor([*map(len, rows)], device=device)
