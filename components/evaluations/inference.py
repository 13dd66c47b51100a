"""Forward passes for evaluations: without dropout and gradients, in batches of texts of similar length."""

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
def inference(model: LanguageModel) -> Iterator[None]:
    """Disable dropout and gradients; restore the model's mode afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def device_of(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def by_length(lengths: Sequence[int], extra: int, most: int) -> Iterator[range]:
    """Batches of sequences, given their lengths in ascending order: padded, and with `extra` tokens each, a batch has at
    most `most` tokens."""
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (lengths[end] + extra) * (end + 1 - start) > most:
            yield range(start, end)
            start = end


def padded(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Sequences -> ids (batch, length), lengths (batch,)."""
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return ids.to(device), torch.tensor([*map(len, rows)], device=device)
