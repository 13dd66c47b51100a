"""A text as one endless stream of tokens, its shards and their documents in a new order in every epoch."""

from collections.abc import Container
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from components.core.keyed import generator
from components.objectives.examples.windows import Window
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import CLS, PAD, Tokenizer


class Order(NamedTuple):
    """How the documents of a shard stand in an epoch."""

    documents: np.ndarray  # (documents,): which
    ends: np.ndarray  # (documents,): where each ends, counted from the shard's first token in the epoch
    offsets: np.ndarray  # (documents,): from a place in the epoch to the place in the file


class Stream:
    """Reads anywhere in an epoch without building it: memory holds an entry a document."""

    def __init__(self, text: Split, seed: int):
        self.text, self.seed, self.epoch = text, seed, -1
        self.size = text.num_tokens

    def read(self, epoch: int, start: int, end: int) -> np.ndarray:
        """Tokens start..end of an epoch, (end - start,)."""
        self._load(epoch)
        parts = []
        for place, first, last, order, documents in self._parts(start, end):
            ends, offsets = order.ends[documents], order.offsets[documents]
            begins, stops = np.append(first, ends[:-1]) + offsets, np.append(ends[:-1], last) + offsets
            tokens = self.text.shards[self.shards[place]].tokens
            parts += [tokens[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        return np.concatenate(parts).astype(np.int64)

    def documents(self, epoch: int, start: int, end: int) -> str:
        """The numbers of the documents that tokens start..end of an epoch are of; outside of it there are none."""
        self._load(epoch)
        start, end = max(0, start), min(end, self.size)
        firsts = self.text.first_documents[self.shards]
        return " ".join(str(firsts[place] + i) for place, _, _, order, own in self._parts(start, end) for i in order.documents[own])

    def _parts(self, start: int, end: int):
        """Of each shard in start..end: its place in the epoch, the range counted from its first token, its order, its documents there."""
        while start < end:
            place = int(np.searchsorted(self.starts, start, side="right")) - 1
            order = self._order(place)
            first, last = start - self.starts[place], min(end - self.starts[place], int(order.ends[-1]))
            from_, to = np.searchsorted(order.ends, [first, last - 1], side="right")
            yield place, first, last, order, slice(from_, to + 1)
            start = self.starts[place] + last

    def _load(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.orders = epoch, {}
            self.shards = generator(self.seed, epoch).permutation(len(self.text.shards))
            sizes = [len(self.text.shards[shard].tokens) for shard in self.shards]
            self.starts = np.cumsum([0, *sizes[:-1]])

    def _order(self, place: int) -> Order:
        """Of the shard at a place of this epoch."""
        if place not in self.orders:
            shard = int(self.shards[place])
            bounds = self.text.shards[shard].document_tokens
            order = generator(self.seed, self.epoch, shard).permutation(len(bounds) - 1)
            ends = np.cumsum(np.diff(bounds)[order])
            self.orders[place] = Order(order, ends, bounds[order + 1] - ends)
        return self.orders[place]


def asked(ids: np.ndarray | Tensor, backward: bool = False) -> np.ndarray | Tensor:
    """ids (rows, length + 1) -> of each but the first whether it is predicted, (rows, length).

    What opens a document is not: `[CLS]`, or the last `[SEP]` of a text read backwards, which always follows on the
    `[CLS]` that ends the document behind it. So each direction predicts a document's text and its end, and as many
    targets. Nor is what fills up a row behind the end of the text."""
    return ((ids[:, :-1] if backward else ids[:, 1:]) != CLS) & (ids[:, 1:] != PAD)


def filled(tokens: np.ndarray, size: int) -> np.ndarray:
    """tokens (n,) and padding behind them, (size,)."""
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PAD)


def labels(ids: Tensor, backward: bool = False) -> Tensor:
    """ids (rows, length + 1) -> what is predicted after each but the last, (rows * length,)."""
    return torch.where(asked(ids, backward), ids[:, 1:], IGNORED).flatten()


def of_streams(
    first: int, batch_size: int, part: str, rows: dict[str, np.ndarray], byte_lengths: np.ndarray, backward: Container[str] = ()
) -> Window:  # fmt: skip
    """Steps of rows (steps * batch, length + 1), of each of which all tokens but the first are read on as targets; `backward` names those
    of a text that is read from its end. Padding is behind the end of the text."""
    [(count, width), *_] = {ids.shape for ids in rows.values()}
    counts = {
        "tokens": (next(iter(rows.values()))[:, 1:] != PAD).sum(1),
        part: sum(asked(ids, name in backward).sum(1) for name, ids in rows.items()),
        "bytes": sum(byte_lengths[ids[:, 1:]].sum(1) for ids in rows.values()),  # specials have none
    }
    widths = np.full(count // batch_size, width)
    return Window.laid_out(first, batch_size, {name: (ids.reshape(-1), widths) for name, ids in rows.items()}, counts)


def explained(ids: Tensor, documents: list[str], tokens: Tokenizer) -> list[dict[str, str]]:
    """Rows of running text (rows, length + 1), first token to last, and the documents of each; `¶` is where a document opens."""
    return [{"documents": own, "text": tokens.stream(row)} for row, own in zip(ids.tolist(), documents, strict=True)]
