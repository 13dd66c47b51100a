"""Rows of masked-LM batches."""

import numpy as np
import torch
from torch import Tensor

from components.encode import Split
from components.errors import SesameError
from components.objectives.examples.segments import pairs, spans
from components.objectives.mlm.block import MaskedLM
from components.objectives.noise.tokens import mask
from components.tokenizer import CLS, SEP, SPECIALS, Tokenizer

BUCKET = 50  # batches whose examples are sorted by length together


class MaskedBatches:
    """Examples `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` in batches of similar length, masked anew in every epoch."""

    def __init__(self, config: MaskedLM, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.config, self.text, self.batch_size, self.max_length, self.seed = config, text, batch_size, max_length, seed
        self.ordinary = np.arange(len(SPECIALS), tokens.vocab_size)
        self.starts_word = tokens.starts_word if config.whole_word else None
        self.epochs: list[int] = []  # steps of each epoch seen so far
        self._load(0)
        if not self.epochs[0]:
            raise SesameError(
                f"the text makes {len(self.examples)} examples, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    def _load(self, epoch: int) -> None:
        rng = np.random.default_rng([self.seed, epoch])
        self.epoch = epoch
        drawn = np.random.default_rng([self.seed, 0]) if self.config.static else rng
        self.examples = pairs(self.text, self.max_length, drawn) if self.config.paired else spans(self.text, self.max_length)
        inner = np.diff(np.searchsorted(self.text.segments[:, 1], self.examples[:, :4]), axis=1)  # [SEP]s inside A, between, inside B
        self.lengths = np.diff(self.examples[:, :4], axis=1)[:, [0, 2]].sum(1) - inner[:, [0, 2]].sum(1)
        self.lengths += np.where(self.examples[:, 2] < self.examples[:, 3], 3, 2)
        order = rng.permutation(len(self.examples))
        window = self.batch_size * BUCKET
        windows = np.split(order, range(window, len(order), window))
        order = np.concatenate([part[np.argsort(self.lengths[part], kind="stable")] for part in windows])
        steps = len(order) // self.batch_size
        self.order = order[: steps * self.batch_size].reshape(steps, self.batch_size)[rng.permutation(steps)]
        if epoch == len(self.epochs):
            self.epochs.append(steps)

    def chosen(self, step: int) -> np.ndarray:
        """The examples of a step; loads its epoch."""
        epoch = 0
        while True:
            if epoch >= len(self.epochs):
                self._load(epoch)
            if step < self.epochs[epoch]:
                break
            step -= self.epochs[epoch]
            epoch += 1
        if epoch != self.epoch:
            self._load(epoch)
        return self.order[step]

    def epoch_steps(self) -> int:
        return self.epochs[0]

    def tokens(self, step: int) -> int:
        chosen = self.chosen(step)  # first, since it may load another epoch with other lengths
        return int(self.lengths[chosen].sum())

    def _ordinary(self, start: int, end: int) -> np.ndarray:
        tokens = self.text.tokens[start:end]
        return tokens[tokens != SEP]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chosen = self.chosen(step)
        lengths = self.lengths[chosen]
        ids = np.zeros((len(chosen), lengths.max()), dtype=np.int64)
        segment_ids = np.zeros_like(ids)
        for row, (a, a_end, b, b_end, _) in enumerate(self.examples[chosen]):
            first, second = self._ordinary(a, a_end), self._ordinary(b, b_end)
            ids[row, 0], ids[row, 1 + len(first)] = CLS, SEP
            ids[row, 1 : 1 + len(first)] = first
            if len(second):
                ids[row, 2 + len(first) : lengths[row] - 1] = second
                ids[row, lengths[row] - 1] = SEP
                segment_ids[row, 2 + len(first) : lengths[row]] = 1
        ids, labels = mask(ids, self.config, self.ordinary, (self.seed, 0 if self.config.static else self.epoch), chosen, self.starts_word)
        batch = {"ids": ids, "labels": labels, "segment_ids": segment_ids, "lengths": lengths, "is_random": self.examples[chosen, 4]}
        return {key: torch.from_numpy(value) for key, value in batch.items()}
