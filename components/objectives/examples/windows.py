"""Steps drawn together, many at a time: what numpy does for a thousand rows costs little more than for one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.objectives.scoring import IGNORED
from components.text.tokenizer import PAD

Rows = dict[str, Tensor]
"""What a model reads of a step, and what it is asked: tensors whose first dimension is the row."""
TOKENS = 2**18
"""About as many are drawn together."""
BUCKET = 50
"""Batches whose examples are sorted by length together."""


class Batch(NamedTuple):
    """A step."""

    rows: Rows
    counts: dict[str, float]
    """Over all rows: targets of each part; `tokens`, the real ones read; `bytes` of text behind the targets of the main part. Made where
    the rows are, so that nobody has to ask a device for them."""


@dataclass(frozen=True)
class Window:
    """Consecutive steps: of each name one flat tensor, and the shape of every step's part of it. Few pieces pass from a worker cheaply."""

    first: int
    flat: Rows
    shapes: dict[str, list[tuple[int, ...]]]
    counts: list[dict[str, float]]

    @classmethod
    def of(cls, first: int, batches: Sequence[Batch]) -> "Window":
        """From steps that were drawn one by one."""
        names = batches[0].rows.keys()
        flat = {name: torch.cat([batch.rows[name].flatten() for batch in batches]) for name in names}
        shapes = {name: [tuple(batch.rows[name].shape) for batch in batches] for name in names}
        return cls(first, flat, shapes, [batch.counts for batch in batches])

    @classmethod
    def laid_out(
        cls, first: int, batch_size: int, flat: dict[str, tuple[np.ndarray, np.ndarray | None]], counts: dict[str, np.ndarray]
    ) -> "Window":  # fmt: skip
        """From flat arrays, each with the widths of its steps (None where a row has a single number), and counts of every row, (rows,)."""
        steps = len(counts["tokens"]) // batch_size
        shapes = {
            name: [(batch_size,)] * steps if widths is None else [(batch_size, width) for width in widths.tolist()]
            for name, (_, widths) in flat.items()
        }
        sums = [values.reshape(steps, batch_size).sum(1).astype(float).tolist() for values in counts.values()]
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, (values, _) in flat.items()}
        return cls(first, tensors, shapes, [dict(zip(counts, own, strict=True)) for own in zip(*sums, strict=True)])

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Batch]:
        parts = {}
        for name, shapes in self.shapes.items():
            flat = self.flat[name].split([prod(shape) for shape in shapes])
            parts[name] = [part.view(shape) for part, shape in zip(flat, shapes, strict=True)]
        for i, counts in enumerate(self.counts):
            yield Batch({name: part[i] for name, part in parts.items()}, counts)

    def pin_memory(self) -> "Window":
        """In memory that a GPU fetches from by itself; the data loader asks for it."""
        return replace(self, flat={name: tensor.pin_memory() for name, tensor in self.flat.items()})


class Batches(ABC):
    """The training steps that a text makes, without end. A step is a pure function of (seed, step)."""

    drawn: tuple[int, list[Batch]] | None = None
    """The window that was asked for last."""
    left_out: float = 0.0
    """Share of the text's tokens that are in no row, in any epoch. What fills no last batch of an epoch is not counted:
    it is other text in each."""

    @abstractmethod
    def epoch_steps(self) -> int:
        """Steps of the first pass over the text."""

    @abstractmethod
    def tokens(self, step: int) -> int:
        """Real tokens in the step, padding not counted."""

    def bounds(self, step: int) -> tuple[int, int]:
        """The steps first, ..., last - 1 that are drawn together with this one: of one epoch, where all have as many steps."""
        steps = self.epoch_steps()
        epoch = step // steps
        return within(step, epoch * steps, (epoch + 1) * steps, self.tokens(step))

    @abstractmethod
    def draw(self, first: int, last: int) -> Window:
        """The steps between two bounds."""

    def __getitem__(self, step: int) -> Batch:
        if self.drawn is None or not 0 <= step - self.drawn[0] < len(self.drawn[1]):
            window = self.draw(*self.bounds(step))
            self.drawn = window.first, list(window)
        return self.drawn[1][step - self.drawn[0]]


class Grouped(Batches):
    """All rows of batches of one row each, some at a time; the last step has what is left. What a row is does not
    depend on how many there are in a step."""

    def __init__(self, single: Batches, batch_size: int):
        self.single, self.batch_size = single, batch_size

    def epoch_steps(self) -> int:
        return -(-self.single.epoch_steps() // self.batch_size)

    def _rows(self, step: int) -> range:
        return range(step * self.batch_size, min((step + 1) * self.batch_size, self.single.epoch_steps()))

    def tokens(self, step: int) -> int:
        return sum(map(self.single.tokens, self._rows(step)))

    def draw(self, first: int, last: int) -> Window:
        return Window.of(first, [self.joined([self.single[row] for row in self._rows(step)]) for step in range(first, last)])

    def joined(self, rows: Sequence[Batch]) -> Batch:
        """One batch of batches of a row each, padded to the longest."""
        made = {}
        for name, value in rows[0].rows.items():
            values = [own.rows[name][0] for own in rows]
            filler = IGNORED if name == "labels" else PAD
            made[name] = pad_sequence(values, batch_first=True, padding_value=filler) if value.ndim > 1 else torch.stack(values)
        return Batch(made, {name: sum(own.counts[name] for own in rows) for name in rows[0].counts})


def within(step: int, start: int, stop: int, tokens: int) -> tuple[int, int]:
    """Bounds of a step in start..stop, an epoch or a shard of it, where a step has about so many tokens."""
    size = max(1, TOKENS // tokens)
    first = step - (step - start) % size
    return first, min(first + size, stop)


def bucketed(examples: np.ndarray, lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Examples in batches of similar length, (steps, batch_size), in a random order; those that fill no batch are left out. `lengths` is
    that of any example by its number."""
    order, batches = rng.permutation(examples)[: len(examples) // batch_size * batch_size], []
    for part in np.split(order, range(batch_size * BUCKET, len(order), batch_size * BUCKET)):
        part = part[np.argsort(lengths[part], kind="stable")].reshape(-1, batch_size)
        batches.append(part[rng.permutation(len(part))])
    return np.concatenate(batches)


def padded(lengths: np.ndarray, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """lengths (steps * batch_size,) -> the width of each step, (steps,), and where each row begins in a flat array of all steps."""
    widths = lengths.reshape(-1, batch_size).max(1)
    each = np.repeat(widths, batch_size)
    return widths, np.cumsum(each) - each
