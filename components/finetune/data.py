"""Inputs of a model in batches of similar length."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from components.text.tokenizer import Tokenizer, fit_pair

Texts = list[tuple[Tensor, Tensor]]
"""One text or two: ids (batch, length) or features (batch, length, layers, width), and lengths (batch,)."""


@dataclass
class Encoded:
    """The inputs and targets of a split."""

    texts: list[list[Tensor]]
    """One list for each example: one input, the two texts of a pair, or one input for each choice. An input is
    ids with special tokens (length,), or frozen features (length, layers, width)."""
    segments: list[list[Tensor]]
    """Segment ids, parallel to `texts`, (length,)."""
    targets: list[Any]
    """One for each example, as the kind of task needs it; None without a label."""
    notes: list[Any] = field(default_factory=list)
    """What the kind needs to turn outputs into predictions."""
    choices: bool = False
    """The inputs of an example are choices, scored against each other."""
    cut: int = 0
    """Number of examples that did not fit max_length."""
    lost: int = 0
    """Number of examples whose answer or marked word was cut."""
    flops: int = 0
    """Of computing frozen features."""

    def __len__(self) -> int:
        return len(self.texts)


class Batch(NamedTuple):
    texts: list[tuple[Tensor, Tensor]]
    """For each text: ids or features (inputs, length, ...), padded to the longest, and lengths (inputs,)."""
    segments: Tensor
    """Segment ids of the first text, (inputs, length)."""
    sizes: list[int]
    """Number of inputs of each example."""
    index: list[int]
    """Indices of the examples."""


class Joined(NamedTuple):
    """A text or a pair as one input."""

    ids: Tensor
    segments: Tensor
    first: int
    """Tokens of the first text that fit."""
    second: int
    start: int
    """Position of the second text."""


def join(tokens: Tokenizer, a: list[int], b: list[int] | None, max_length: int, cut: str = "longest") -> Joined:
    """Prefix, a, middle, b, suffix. A pair that is too long loses tokens of the longer text, or with `cut: text_a` of the first only."""
    room = max_length - len(tokens.prefix) - len(tokens.suffix) - (len(tokens.middle) if b is not None else 0)
    if b is None:
        first, second = min(len(a), room), 0
    elif cut == "text_a":
        second = min(len(b), room)
        first = min(len(a), room - second)
    else:
        first, second = fit_pair(len(a), len(b), room)
    ids = [*tokens.prefix, *a[:first], *(tokens.middle if b is not None else tokens.suffix)]
    start = len(ids)
    if b is not None:
        ids += [*b[:second], *tokens.suffix]
    return Joined(torch.tensor(ids), (torch.arange(len(ids)) >= start).long(), first, second, start)


def batches(data: Encoded, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
    """Batches of examples of similar length, in random order with `rng`."""
    lengths = np.array([sum(map(len, texts)) for texts in data.texts])
    order = rng.permutation(len(lengths)) if rng else np.arange(len(lengths))
    window = size * 20 if rng else len(order)
    groups = []
    for start in range(0, len(order), window):
        chunk = order[start : start + window]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        groups += [chunk[i : i + size].tolist() for i in range(0, len(chunk), size)]
    for i in rng.permutation(len(groups)) if rng else range(len(groups)):
        index, sizes = groups[i], [len(data.texts[j]) for j in groups[i]]
        if data.choices:
            texts = [padded([row for j in index for row in data.texts[j]])]
            segments, _ = padded([row for j in index for row in data.segments[j]])
        else:
            texts = [padded([data.texts[j][k] for j in index]) for k in range(sizes[0])]
            segments, _ = padded([data.segments[j][0] for j in index])
        yield Batch(texts, segments, sizes, index)


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Tensors padded with 0 to (batch, longest, ...), and lengths (batch,)."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def stacked(texts: Texts) -> tuple[Tensor, Tensor]:
    """One or two texts as one batch for a single forward pass: (texts * batch, longest, ...), lengths (texts * batch,)."""
    longest = max(rows.shape[1] for rows, _ in texts)
    filled = [nn.functional.pad(rows, (0, 0) * (rows.dim() - 2) + (0, longest - rows.shape[1])) for rows, _ in texts]
    return torch.cat(filled), torch.cat([lengths for _, lengths in texts])
