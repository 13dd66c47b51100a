"""Rows of characters of which whole subwords are hidden."""

from dataclasses import replace

import numpy as np
import torch

from components.core.keyed import uniform
from components.objectives.examples.masked import MaskedBatches
from components.objectives.examples.windows import Batch, Window
from components.objectives.scoring import IGNORED
from components.objectives.subwords.config import SubwordLM
from components.objectives.subwords.vocabulary import Subwords
from components.text.encode import Split
from components.text.tokenizer import MASK, Tokenizer

ASKED, INSTEAD = 11, 12  # what a keyed number decides


class SubwordBatches(MaskedBatches):
    """Of the subwords as many are targets as are `mlm_probability` of a row's characters. What becomes of one (`[MASK]`, another of as
    many characters, nothing) is decided for all of it, and one of its characters, any, is asked for its number.

    Memory holds eight bytes for each character of a shard.
    """

    def __init__(self, config: SubwordLM, tokens: Tokenizer, subwords: Subwords, text: Split, batch_size: int, max_length: int, seed: int):
        self.vocab_size, self.subwords, self.numbered = tokens.vocab_size, subwords, {}
        by_one = config.model_copy(update={"span_probability": 1.0, "longest_span": 1})
        super().__init__(by_one, tokens, text, batch_size, max_length, seed, {"subword": "targets"})
        self.starts_word = np.arange(self.vocab_size * (1 + len(subwords))) >= self.vocab_size
        self.byte_lengths = np.tile(self.byte_lengths, 1 + len(subwords))

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
        begins = (labels >= self.vocab_size) & (self.subwords.lengths[numbers] == lengths)
        key = (self.seed, 0 if self.config.static else self.epoch, self.index, self.chosen(step)[:, None], left)
        drawn = uniform(*key, ASKED)
        places = left + 1 + (drawn * lengths).astype(int)
        counts = begins.sum(1)
        order = np.argsort(~begins, axis=1, kind="stable")[:, : max(1, counts.max())]
        asked = np.arange(order.shape[1]) < counts[:, None]
        placed, named = (np.take_along_axis(part, order, 1) for part in (places, numbers))
        named_at = np.zeros((len(labels), rows["ids"].shape[1]), bool)  # by the place before it: whether a subword is asked for
        named_at[np.nonzero(begins)[0], left[begins]] = True
        of_asked = np.take_along_axis(named_at, left, 1) & (labels != IGNORED)
        ids = self._replaced(rows["ids"] % self.vocab_size, begins, left, lengths, numbers, uniform(*key, INSTEAD))
        made = {
            "ids": ids, **{name: rows[name] for name in ("segment_ids", "lengths", "answers")},
            "places": np.where(asked, placed, 0), "labels": np.where(asked, named, IGNORED),
        }  # fmt: skip
        sums = {"subword": float(counts.sum()), "bytes": float(self.byte_lengths[labels[of_asked]].sum())}
        return Batch({name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in made.items()}, batch.counts | sums)

    def _replaced(self, ids: np.ndarray, begins: np.ndarray, left: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, drawn: np.ndarray):
        """ids (batch, length) of characters, random ones in place of some targets' -> with a subword of as many characters there. One of
        which another row has a part keeps them."""
        for length in np.unique(lengths[begins]):
            row, target = np.nonzero(begins & (lengths == length))
            row, places = row[:, None], left[row, target][:, None] + 1 + np.arange(length)
            seen, candidates = ids[row, places], self.subwords.of_length[length]
            random = (seen != MASK).any(1) & (seen != self.subwords.spelled[numbers[row[:, 0], target], :length]).any(1)
            instead = candidates[(drawn[row[:, 0], target] * len(candidates)).astype(int)]
            ids[row[random], places[random]] = self.subwords.spelled[instead[random], :length]
        return ids
