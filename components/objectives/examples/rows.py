"""Rows of running text, equally long, in a new order in every epoch."""

import numpy as np
import torch
from torch import Tensor

from components.core.errors import SesameError
from components.core.keyed import generator
from components.objectives.examples.batches import Batches
from components.objectives.examples.shuffled_text import ShuffledText, pad_to
from components.text.encode import Split
from components.text.tokenizer import CLS, PAD, Tokenizer


class RowBatches(Batches):
    """Cuts the shuffled documents of an epoch into rows, and shuffles the rows.

    Rows that follow each other in the text would make batches of one document, and of a novel hundreds of them, one
    after another. Memory holds one number per row of the epoch.
    """

    def __init__(self, text: Split, batch_size: int, stride: int, length: int, rows: int, seed: int):
        """A row has `length` tokens, `stride` of which no other of the `rows` has.

        Raise SesameError if the rows do not fill a batch.
        """
        self.text, self.seed, self.epoch = ShuffledText(text, seed), seed, -1
        self.batch_size, self.stride, self.length, self.rows = batch_size, stride, length, rows
        if rows < batch_size:
            raise SesameError(
                f"the text has {self.text.size} tokens, {rows} sequences of {stride}, less than one batch of "
                f"{batch_size}; use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return self.rows // self.batch_size

    def documents(self, step: int) -> list[str]:
        """Return the documents in each row of a step."""
        epoch, starts = self.starts(step, step + 1)
        return [self.text.documents(epoch, start, start + self.length) for start in starts.tolist()]

    def starts(self, first: int, last: int) -> tuple[int, np.ndarray]:
        """Return the epoch of the steps [first, last), and the position in it where each of their rows begins."""
        epoch, index = divmod(first, self.epoch_steps())
        if epoch != self.epoch:
            # a shard's documents have its number in their key; the rows of all shards have the one after the last
            after_the_last = len(self.text.text.shards)
            self.epoch, self.order = epoch, generator(self.seed, epoch, after_the_last).permutation(self.rows)
        return epoch, self.order[index * self.batch_size : (index + last - first) * self.batch_size] * self.stride

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the rows of the steps [first, last), (rows, length). Behind the end of the text is padding."""
        epoch, starts = self.starts(first, last)
        ends = np.minimum(starts + self.length, self.text.size)
        texts = [self.text.read(epoch, start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.stack([pad_to(tokens, self.length) for tokens in texts])


class PackedRows(RowBatches):
    """Rows of max_length + 1 tokens; the last token of one is the first of the next one in the text.

    The last row of the text is padded.
    """

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        rows = -(-(text.num_tokens - 1) // max_length)
        super().__init__(text, batch_size, max_length, max_length + 1, rows, seed)
        self.byte_lengths = np.asarray(tokens.byte_lengths)

    def tokens(self, step: int) -> int:
        _, starts = self.starts(step, step + 1)
        return int(np.minimum(self.stride, self.text.size - 1 - starts).sum())


def isolate(ids: Tensor, two_sided: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """ids (batch, length) -> positions from each document's `[CLS]`, (batch, length), and a mask (batch, 1, length, length).

    The mask is True for earlier tokens of the same document, and where `two_sided` (batch,) for its later ones, too.
    Positions alone would not isolate documents.
    """
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    starts = torch.where(ids == CLS, positions, 0).cummax(1).values
    same = starts[:, :, None] == starts[:, None, :]
    visible = positions[:1, :, None] >= positions[:1, None, :]
    if two_sided is not None:
        visible = visible | (two_sided[:, None, None] & (ids != PAD)[:, None])
    return positions - starts, (same & visible)[:, None]
