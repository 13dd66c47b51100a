"""Rows of characters of which whole subwords are hidden."""

from dataclasses import replace

import numpy as np
import torch

from components.encode import Split
from components.keyed import uniform
from components.objectives.examples.masked import MaskedBatches
from components.objectives.examples.windows import Batch, Window
from components.objectives.scoring import IGNORED
from components.objectives.subwords.block import SubwordLM
from components.objectives.subwords.vocabulary import Subwords
from components.tokenizer import Tokenizer

ASKED = 11  # what a keyed number decides


class SubwordBatches(MaskedBatches):
    """Of the subwords as many are targets as are `mlm_probability` of a row's characters. What becomes of one (`[MASK]`, other characters,
    nothing) is decided for all of it, and one of its characters, any, is asked for its number.

    Memory holds eight bytes for each character of a shard.
    """

    def __init__(self, config: SubwordLM, tokens: Tokenizer, subwords: Subwords, text: Split, batch_size: int, max_length: int, seed: int):
        self.vocab_size, self.subwords, self.numbered = tokens.vocab_size, subwords, {}
        by_one = config.model_copy(update={"span_probability": 1.0, "longest_span": 1})
        super().__init__(by_one, tokens, text, batch_size, max_length, seed, {"subword": "targets"})
        self.starts_word = np.arange(self.vocab_size * (1 + len(subwords))) >= self.vocab_size
        self.byte_lengths = np.tile(self.byte_lengths, 1 + len(subwords))
        self.whole = np.array([-1] + [len(subwords.piece(i)) for i in range(1, len(subwords))])  # the first is any unknown character

    def _load(self, number: int) -> None:
        super()._load(number)
        if self.index not in self.numbered:
            self.numbered = {self.index: self.subwords.numbered(self.shard)}  # of one shard
        self.shard = replace(self.shard, tokens=self.numbered[self.index])

    def draw(self, first: int, last: int) -> Window:
        return Window.of(first, [self._asked(step, batch) for step, batch in enumerate(super().draw(first, last), first)])

    def _asked(self, step: int, batch: Batch) -> Batch:
        """Targets that are characters -> those that are subwords. One of which another row has a part is hidden and not asked for."""
        rows = {name: part.numpy() for name, part in batch.rows.items()}
        labels, left, right = rows["labels"], rows["left"], rows["right"]  # the places outside the subword that a character is of
        lengths, numbers = right - left - 1, labels // self.vocab_size - 1
        begins = (labels >= self.vocab_size) & (self.whole[numbers] == lengths)
        drawn = uniform(self.seed, 0 if self.config.static else self.epoch, self.index, self.chosen(step)[:, None], left, ASKED)
        places = left + 1 + (drawn * lengths).astype(int)
        counts = begins.sum(1)
        order = np.argsort(~begins, axis=1, kind="stable")[:, : max(1, counts.max())]
        asked = np.arange(order.shape[1]) < counts[:, None]
        placed, named = (np.take_along_axis(part, order, 1) for part in (places, numbers))
        named_at = np.zeros((len(labels), rows["ids"].shape[1]), bool)  # by the place before it: whether a subword is asked for
        named_at[np.nonzero(begins)[0], left[begins]] = True
        of_asked = np.take_along_axis(named_at, left, 1) & (labels != IGNORED)
        made = {
            "ids": rows["ids"] % self.vocab_size, **{name: rows[name] for name in ("segment_ids", "lengths", "answers")},
            "places": np.where(asked, placed, 0), "labels": np.where(asked, named, IGNORED),
        }  # fmt: skip
        sums = {"subword": float(counts.sum()), "bytes": float(self.byte_lengths[labels[of_asked]].sum())}
        return Batch({name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in made.items()}, batch.counts | sums)
