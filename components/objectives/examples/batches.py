"""Training batches, built in chunks of many steps: for numpy a thousand sequences take little longer than one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components.objectives.scoring import IGNORED
from components.text.tokenizer import PAD

Tensors = dict[str, Tensor]
"""Inputs and labels of a batch: tensors whose first dimension is the sequence."""
CHUNK_TOKENS = 2**18
"""Approximate number of tokens in a chunk."""
BUCKET = 50
"""Batches whose examples are sorted by length together."""
TEXT_MULTIPLE, TARGETS_MULTIPLE = 8, 4
"""The widths of padded sequences, and of the targets in them, are multiples of these, so that few shapes occur. A CPU compiles
its bf16 matrix products for each shape and keeps the last thousand of them: with any width, half of a small masked model's step
went to compiling, and memory grew by a gigabyte."""


class Batch(NamedTuple):
    """The data of one step."""

    tensors: Tensors
    counts: dict[str, float]
    """Sums over all sequences: targets of each loss term; `tokens` read, without padding; `bytes` of the text of the main targets.
    Counted where the batch is built, so that nothing has to be read back from a device."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive steps: of each name one flat tensor, and its shape in every step. Few tensors pass quickly between processes."""

    first: int
    flat: Tensors
    shapes: dict[str, list[tuple[int, ...]]]
    counts: list[dict[str, float]]

    @classmethod
    def from_batches(cls, first: int, batches: Sequence[Batch]) -> "Chunk":
        names = batches[0].tensors.keys()
        flat = {name: torch.cat([batch.tensors[name].flatten() for batch in batches]) for name in names}
        shapes = {name: [tuple(batch.tensors[name].shape) for batch in batches] for name in names}
        return cls(first, flat, shapes, [batch.counts for batch in batches])

    @classmethod
    def from_arrays(
        cls, first: int, batch_size: int, flat: dict[str, tuple[np.ndarray, np.ndarray | None]], counts: dict[str, np.ndarray]
    ) -> "Chunk":  # fmt: skip
        """Build a chunk from flat arrays, each with the width of every step (None for one number per sequence), and counts (sequences,)."""
        steps = len(counts["tokens"]) // batch_size
        shapes = {
            name: [(batch_size,)] * steps if widths is None else [(batch_size, width) for width in widths.tolist()]
            for name, (_, widths) in flat.items()
        }
        sums = [values.reshape(steps, batch_size).sum(1).astype(float).tolist() for values in counts.values()]
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, (values, _) in flat.items()}
        return cls(first, tensors, shapes, [dict(zip(counts, of_step, strict=True)) for of_step in zip(*sums, strict=True)])

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Batch]:
        columns = {}
        for name, shapes in self.shapes.items():
            flat = self.flat[name].split([prod(shape) for shape in shapes])
            columns[name] = [tensor.view(shape) for tensor, shape in zip(flat, shapes, strict=True)]
        for i, counts in enumerate(self.counts):
            yield Batch({name: tensors[i] for name, tensors in columns.items()}, counts)

    def pin_memory(self) -> "Chunk":
        """Return the chunk in pinned memory; called by the data loader."""
        return replace(self, flat={name: tensor.pin_memory() for name, tensor in self.flat.items()})


class Batches(ABC):
    """An endless sequence of training batches from a text. A batch is a pure function of (seed, step)."""

    cached: tuple[int, list[Batch]] | None = None
    """First step and batches of the last chunk."""
    varying_lengths: ClassVar[bool] = False
    """Whether steps differ in the lengths of their sequences, and so in FLOPs per token."""
    left_out: float = 0.0
    """Share of the text's tokens that no epoch reads. Tokens that do not fill the last batch of an epoch are not counted:
    they differ from epoch to epoch."""

    @abstractmethod
    def epoch_steps(self) -> int:
        """Return the number of steps in the first epoch."""

    @abstractmethod
    def tokens(self, step: int) -> int:
        """Return the number of tokens in a step, without padding."""

    def bounds(self, step: int) -> tuple[int, int]:
        """Return the steps [first, last) of the chunk with this step; here all epochs have the same number of steps."""
        steps = self.epoch_steps()
        epoch = step // steps
        return chunk_bounds(step, epoch * steps, (epoch + 1) * steps, self.tokens(step))

    def representative_steps(self, tokens: int) -> dict[int, float]:
        """Return the steps on which FLOPs per token are counted, each with its weight: here the first one, or, where lengths vary,
        as many as have so many tokens."""
        number, counted = 1, self.tokens(0)
        while self.varying_lengths and counted < tokens:
            counted += self.tokens(number)
            number += 1
        return dict.fromkeys(range(number), 1 / number)

    @abstractmethod
    def draw(self, first: int, last: int) -> Chunk:
        """Build the chunk of the steps [first, last), which are the bounds of a chunk."""

    def __getitem__(self, step: int) -> Batch:
        if self.cached is None or not 0 <= step - self.cached[0] < len(self.cached[1]):
            chunk = self.draw(*self.bounds(step))
            self.cached = chunk.first, list(chunk)
        return self.cached[1][step - self.cached[0]]


class GroupedBatches(Batches):
    """Batches of one sequence, grouped into larger ones; the last batch has the remaining sequences.

    A sequence does not depend on the batch size.
    """

    def __init__(self, single: Batches, batch_size: int):
        self.single, self.batch_size = single, batch_size

    def epoch_steps(self) -> int:
        return -(-self.single.epoch_steps() // self.batch_size)

    def _range(self, step: int) -> range:
        return range(step * self.batch_size, min((step + 1) * self.batch_size, self.single.epoch_steps()))

    def tokens(self, step: int) -> int:
        return sum(map(self.single.tokens, self._range(step)))

    def draw(self, first: int, last: int) -> Chunk:
        return Chunk.from_batches(first, [self.collate([self.single[i] for i in self._range(step)]) for step in range(first, last)])

    def collate(self, batches: Sequence[Batch]) -> Batch:
        """Join batches of one sequence each, padded to the longest."""
        tensors = {}
        for name, first in batches[0].tensors.items():
            values = [batch.tensors[name][0] for batch in batches]
            filler = IGNORED if name == "labels" else PAD
            tensors[name] = pad_sequence(values, batch_first=True, padding_value=filler) if first.ndim > 1 else torch.stack(values)
        return Batch(tensors, {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts})


def chunk_bounds(step: int, start: int, stop: int, tokens: int) -> tuple[int, int]:
    """Return the bounds of the chunk with a step, within [start, stop), where a step has about so many tokens."""
    size = max(1, CHUNK_TOKENS // tokens)
    first = step - (step - start) % size
    return first, min(first + size, stop)


def bucket_by_length(examples: np.ndarray, lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Group examples of similar length into batches, (steps, batch_size), in a random order; the rest of a batch is left out.

    `lengths` is indexed by the numbers in `examples`.
    """
    order, batches = rng.permutation(examples)[: len(examples) // batch_size * batch_size], []
    for bucket in np.split(order, range(batch_size * BUCKET, len(order), batch_size * BUCKET)):
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")].reshape(-1, batch_size)
        batches.append(bucket[rng.permutation(len(bucket))])
    return np.concatenate(batches)


_rounds = True


@contextmanager
def exact_widths() -> Iterator[None]:
    """Within it no width is rounded up. FLOPs are counted on such a batch: a rounded one of short sequences is half padding, which
    is no part of what a recipe costs elsewhere."""
    global _rounds
    _rounds = False
    try:
        yield
    finally:
        _rounds = True


def rounded_up(widths: np.ndarray, multiple: int, most: int) -> np.ndarray:
    """Return the next multiples of widths, but none beyond `most`, where a model has no positions."""
    return np.maximum(widths, np.minimum(-(-widths // multiple) * multiple, most)) if _rounds else widths


def padded_layout(lengths: np.ndarray, batch_size: int, multiple: int = 1, most: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """lengths (steps * batch_size,) -> the width of each step, (steps,), and the start of each sequence in a flat array of all steps.

    A width is that of the step's longest sequence, `rounded_up`.
    """
    widths = rounded_up(lengths.reshape(-1, batch_size).max(1), multiple, most)
    per_sequence = np.repeat(widths, batch_size)
    return widths, np.cumsum(per_sequence) - per_sequence


@dataclass(frozen=True)
class Targets:
    """The tokens that a model predicts at some positions of its sequences, laid out for a chunk."""

    counts: np.ndarray
    """Targets of each sequence, (sequences,)."""
    at: np.ndarray
    """Where each target is in the flat arrays, (targets,)."""
    widths: np.ndarray
    """Most targets of a sequence in each step, rounded up, (steps,)."""
    positions: np.ndarray
    labels: np.ndarray
    """Flat, IGNORED where a sequence has fewer targets than the widest."""

    @classmethod
    def of(
        cls, sequence: np.ndarray, position: np.ndarray, token: np.ndarray, sequences: int, batch_size: int, most: int
    ) -> "Targets":  # fmt: skip
        """Lay out targets, (targets,) each, in the order of their sequences; `most` is the length of a sequence."""
        counts = np.bincount(sequence, minlength=sequences)
        widths, begins = padded_layout(counts, batch_size, TARGETS_MULTIPLE, most)
        at = begins[sequence] + np.arange(len(sequence)) - (np.cumsum(counts) - counts)[sequence]
        size = batch_size * widths.sum()
        positions, labels = np.zeros(size, np.int64), np.full(size, IGNORED)
        positions[at], labels[at] = position, token
        return cls(counts, at, widths, positions, labels)

    @property
    def flat(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """As `Chunk.from_arrays` takes them."""
        return {"positions": (self.positions, self.widths), "labels": (self.labels, self.widths)}
