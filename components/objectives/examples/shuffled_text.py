"""A text as one sequence of tokens, its shards and their documents in a new order in every epoch."""

from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from components.core.keyed import generator
from components.objectives.examples.batches import Chunk
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import CLS, PAD, Tokenizer


class Order(NamedTuple):
    """The order of the documents of a shard in an epoch."""

    documents: np.ndarray  # (documents,): their numbers in the shard
    ends: np.ndarray  # (documents,): their last positions plus one, from the shard's first token in the epoch
    offsets: np.ndarray  # (documents,): position in the file minus position in the epoch


class ShuffledText:
    """Reads any range of an epoch without building it: memory holds one entry per document."""

    def __init__(self, text: Split, seed: int):
        self.text, self.seed, self.epoch = text, seed, -1
        self.size = text.num_tokens

    def read(self, epoch: int, start: int, end: int) -> np.ndarray:
        """Return the tokens [start, end) of an epoch, (end - start,)."""
        self._load(epoch)
        documents = []
        for index, first, last, order, inside in self._shards(start, end):
            ends, offsets = order.ends[inside], order.offsets[inside]
            begins, stops = np.append(first, ends[:-1]) + offsets, np.append(ends[:-1], last) + offsets
            tokens = self.text.shards[self.shards[index]].tokens
            documents += [tokens[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        return np.concatenate(documents).astype(np.int64)

    def documents(self, epoch: int, start: int, end: int) -> str:
        """Return the numbers of the documents in the tokens [start, end) of an epoch, cut to its bounds."""
        self._load(epoch)
        start, end = max(0, start), min(end, self.size)
        firsts = self.text.first_documents[self.shards]
        return " ".join(str(firsts[index] + i) for index, _, _, order, inside in self._shards(start, end) for i in order.documents[inside])

    def _shards(self, start: int, end: int) -> Iterator[tuple[int, int, int, Order, slice]]:
        """Yield for each shard in [start, end): its index in the epoch, the range in the shard, its order, the slice of documents."""
        while start < end:
            index = int(np.searchsorted(self.starts, start, side="right")) - 1
            order = self._order(index)
            first, last = start - self.starts[index], min(end - self.starts[index], int(order.ends[-1]))
            first_document, last_document = np.searchsorted(order.ends, [first, last - 1], side="right")
            yield index, first, last, order, slice(first_document, last_document + 1)
            start = self.starts[index] + last

    def _load(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.orders = epoch, {}
            self.shards = generator(self.seed, epoch).permutation(len(self.text.shards))
            sizes = [len(self.text.shards[shard].tokens) for shard in self.shards]
            self.starts = np.cumsum([0, *sizes[:-1]])

    def _order(self, index: int) -> Order:
        """Return the order of the shard at an index of this epoch."""
        if index not in self.orders:
            shard = int(self.shards[index])
            bounds = self.text.shards[shard].document_tokens
            order = generator(self.seed, self.epoch, shard).permutation(len(bounds) - 1)
            ends = np.cumsum(np.diff(bounds)[order])
            self.orders[index] = Order(order, ends, bounds[order + 1] - ends)
        return self.orders[index]


def is_target(ids: np.ndarray | Tensor, backward: bool = False) -> np.ndarray | Tensor:
    """ids (sequences, length + 1) -> whether each token but the first is predicted, (sequences, length).

    The first token of a document is not: `[CLS]`, or the last `[SEP]` of a text read backwards, which always follows the
    `[CLS]` of the next document. So each direction predicts a document's text and its end, and has as many targets. Padding
    at the end of the text is not predicted either.
    """
    return ((ids[:, :-1] if backward else ids[:, 1:]) != CLS) & (ids[:, 1:] != PAD)


def pad_to(tokens: np.ndarray, size: int) -> np.ndarray:
    """tokens (n,) -> with padding on the right, (size,)."""
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PAD)


def next_token_labels(ids: Tensor, backward: bool = False) -> Tensor:
    """ids (sequences, length + 1) -> the label after each token but the last, (sequences * length,)."""
    return torch.where(is_target(ids, backward), ids[:, 1:], IGNORED).flatten()


def next_token_chunk(
    first: int, batch_size: int, term: str, sequences: dict[str, np.ndarray], byte_lengths: np.ndarray, backward: Container[str] = ()
) -> Chunk:  # fmt: skip
    """Build a chunk of sequences (steps * batch_size, length + 1) whose tokens but the first are targets.

    `backward` names the sequences that are read from the end of the text. Padding is after the end of the text.
    """
    [(count, width), *_] = {ids.shape for ids in sequences.values()}
    counts = {
        "tokens": (next(iter(sequences.values()))[:, 1:] != PAD).sum(1),
        term: sum(is_target(ids, name in backward).sum(1) for name, ids in sequences.items()),
        "bytes": sum(byte_lengths[ids[:, 1:]].sum(1) for ids in sequences.values()),  # 0 for special tokens
    }
    widths = np.full(count // batch_size, width)
    return Chunk.from_arrays(first, batch_size, {name: (ids.reshape(-1), widths) for name, ids in sequences.items()}, counts)


def explain_sequences(ids: Tensor, documents: list[str], tokens: Tokenizer) -> list[dict[str, str]]:
    """Show sequences of running text (sequences, length + 1) and their documents; `¶` marks the start of a document."""
    return [{"documents": numbers, "text": tokens.stream(row)} for row, numbers in zip(ids.tolist(), documents, strict=True)]
