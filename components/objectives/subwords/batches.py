"""Sequences of characters of which complete subwords are masked."""

from dataclasses import replace

import numpy as np
import torch

from components.core.keyed import uniform
from components.objectives.examples.batches import TARGETS_MULTIPLE, Batch, Chunk, rounded_up
from components.objectives.examples.masked import MaskedBatches
from components.objectives.scoring import IGNORED
from components.objectives.subwords.config import SubwordLM
from components.objectives.subwords.vocabulary import Subwords
from components.text.encode import Split
from components.text.tokenizer import MASK, Tokenizer

POSITION, REPLACEMENT = 11, 12  # keys of random numbers


class SubwordBatches(MaskedBatches):
    """Masked subwords, so many that they have `mlm_probability` of a sequence's characters.

    A subword is masked, replaced by another of the same length, or unchanged as a whole, and is predicted from one of its
    characters at random. Memory holds eight bytes for each character of a shard.
    """

    def __init__(self, config: SubwordLM, tokens: Tokenizer, subwords: Subwords, text: Split, batch_size: int, max_length: int, seed: int):
        self.vocab_size, self.subwords, self.ids_of_shard = tokens.vocab_size, subwords, {}
        single_words = config.model_copy(update={"span_probability": 1.0, "longest_span": 1})
        super().__init__(single_words, tokens, text, batch_size, max_length, seed, {"subword": "targets"})
        self.starts_word = np.arange(self.vocab_size * (1 + len(subwords))) >= self.vocab_size
        self.byte_lengths = np.tile(self.byte_lengths, 1 + len(subwords))

    def _load(self, visit: int) -> None:
        super()._load(visit)
        if self.index not in self.ids_of_shard:
            self.ids_of_shard = {self.index: self.subwords.with_subwords(self.shard)}  # only the current shard is cached
        self.shard = replace(self.shard, tokens=self.ids_of_shard[self.index])

    def draw(self, first: int, last: int) -> Chunk:
        batches = enumerate(super().draw(first, last), first)
        return Chunk.from_batches(first, [self._subword_targets(step, batch) for step, batch in batches])

    def _subword_targets(self, step: int, batch: Batch) -> Batch:
        """Replace targets that are characters by subwords. A subword that is partly in another sequence is masked, not predicted."""
        arrays = {name: tensor.numpy() for name, tensor in batch.tensors.items()}
        labels, left, right = arrays["labels"], arrays["left"], arrays["right"]  # left and right: positions around a character's subword
        lengths, subwords = right - left - 1, labels // self.vocab_size - 1
        begins = (labels >= self.vocab_size) & (self.subwords.lengths[subwords] == lengths)
        key = (self.seed, 0 if self.config.static else self.epoch, self.index, self.selected(step)[:, None], left)
        positions = left + 1 + (uniform(*key, POSITION) * lengths).astype(int)
        counts = begins.sum(1)
        order = np.argsort(~begins, axis=1, kind="stable")[:, : rounded_up(max(1, counts.max()), TARGETS_MULTIPLE, begins.shape[1])]
        real = np.arange(order.shape[1]) < counts[:, None]
        complete = np.zeros((len(labels), arrays["ids"].shape[1]), bool)  # by the position before it: whether a subword is predicted
        complete[np.nonzero(begins)[0], left[begins]] = True
        predicted = np.take_along_axis(complete, left, 1) & (labels != IGNORED)
        ids = self._replaced(arrays["ids"] % self.vocab_size, begins, left, lengths, subwords, uniform(*key, REPLACEMENT))
        result = {
            "ids": ids, **{name: arrays[name] for name in ("segment_ids", "lengths", "answers")},
            "positions": np.where(real, np.take_along_axis(positions, order, 1), 0),
            "labels": np.where(real, np.take_along_axis(subwords, order, 1), IGNORED),
        }  # fmt: skip
        sums = {"subword": float(counts.sum()), "bytes": float(self.byte_lengths[labels[predicted]].sum())}
        return Batch({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in result.items()}, batch.counts | sums)

    def _replaced(
        self, ids: np.ndarray, begins: np.ndarray, left: np.ndarray, lengths: np.ndarray, subwords: np.ndarray, drawn: np.ndarray
    ) -> np.ndarray:  # fmt: skip
        """ids (batch, length) of characters, some replaced at random -> with a subword of the same length in their place.

        A subword that is partly in another sequence keeps the random characters.
        """
        for length in np.unique(lengths[begins]):
            row, target = np.nonzero(begins & (lengths == length))
            row, positions = row[:, None], left[row, target][:, None] + 1 + np.arange(length)
            seen, candidates = ids[row, positions], self.subwords.by_length[length]
            original = self.subwords.characters[subwords[row[:, 0], target], :length]
            random = (seen != MASK).any(1) & (seen != original).any(1)
            replacement = candidates[(drawn[row[:, 0], target] * len(candidates)).astype(int)]
            ids[row[random], positions[random]] = self.subwords.characters[replacement[random], :length]
        return ids
