"""Examples as token ids, in batches of similar length."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components import params
from components.tasks import Example
from components.tokenizer import CLS, SEP, Tokenizer, fit_pair


@dataclass
class Encoded:
    """Inputs of a split. With `joined` a pair is one text of two segments, else two texts."""

    texts: list[list[Tensor]]
    """Of each example and text: ids with specials (length,), or frozen features (length, layers, width)."""
    segments: list[Tensor] | None
    """Segment ids of joined pairs, (length,)."""
    targets: Tensor
    """(examples,): label indices, or scores."""
    cut: int
    """Examples that did not fit max_length."""
    flops: int = 0
    """Spent on reading frozen features."""

    def __len__(self) -> int:
        return len(self.targets)


def encode(examples: list[Example], task: params.Task, tokens: Tokenizer, max_length: int, joined: bool) -> Encoded:
    """Tokenise examples; the longer text of a pair is cut first, and cuts are counted."""
    first = tokens.encode([example.text_a for example in examples])
    second = tokens.encode([example.text_b or "" for example in examples]) if task.table.text_b is not None else None
    texts, segments, cut = [], [], 0
    for i, a in enumerate(first):
        if second is None or not joined:
            parts = [a] if second is None else [a, second[i]]
            cut += any(len(part) > max_length - 2 for part in parts)
            texts.append([torch.tensor([CLS, *part[: max_length - 2], SEP]) for part in parts])
            segments.append(torch.zeros_like(texts[-1][0]))
            continue
        b, room = second[i], max_length - 3
        cut += len(a) + len(b) > room
        a_size, b_size = fit_pair(len(a), len(b), room)
        a, b = a[:a_size], b[:b_size]
        texts.append([torch.tensor([CLS, *a, SEP, *b, SEP])])
        segments.append(torch.tensor([0] * (len(a) + 2) + [1] * (len(b) + 1)))
    if task.kind == "regression":
        targets = torch.tensor([example.label for example in examples], dtype=torch.float32)
    else:
        targets = torch.tensor([task.labels.index(example.label) for example in examples])
    return Encoded(texts, segments if joined else None, targets, cut)


def batches(data: Encoded, size: int, rng: np.random.Generator | None) -> Iterator[tuple[list[tuple[Tensor, Tensor]], Tensor | None, Tensor]]:
    """`(texts, segment_ids, index)`: each text is (ids or features (batch, length, ...), lengths (batch,)), padded to the batch's longest.

    Examples of similar length go together. With `rng` (training) examples and batches come in a random order.
    """
    lengths = np.array([sum(map(len, texts)) for texts in data.texts])
    order = rng.permutation(len(lengths)) if rng else np.arange(len(lengths))
    window = size * 20 if rng else len(order)
    groups = []
    for start in range(0, len(order), window):
        part = order[start : start + window]
        part = part[np.argsort(lengths[part], kind="stable")]
        groups += [part[i : i + size] for i in range(0, len(part), size)]
    for i in rng.permutation(len(groups)) if rng else range(len(groups)):
        group = groups[i]
        texts = [pad([data.texts[j][k] for j in group]) for k in range(len(data.texts[0]))]
        segments = pad([data.segments[j] for j in group])[0] if data.segments else None
        yield texts, segments, torch.from_numpy(group)


def pad(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows filled with 0 to (batch, longest, ...), and lengths (batch,)."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])
