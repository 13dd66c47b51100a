"""Rows of masked-LM batches."""

from bisect import bisect_right

import numpy as np

from components.encode import Shard, Split
from components.errors import SesameError
from components.objectives.examples.segments import pairs, ranges, spans
from components.objectives.examples.windows import Batches, Window, padded, within
from components.objectives.mlm.block import MaskedLM
from components.objectives.noise.tokens import mask
from components.objectives.scoring import IGNORED
from components.tokenizer import CLS, SEP, SPECIALS, Tokenizer

BUCKET = 50  # batches whose examples are sorted by length together


class MaskedBatches(Batches):
    """Examples `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` in batches of similar length, made and masked anew in every epoch.

    An epoch takes the shards of the text in a random order, and the examples of each in a random order; memory holds those of one shard.
    """

    def __init__(self, config: MaskedLM, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.config, self.text, self.batch_size, self.max_length, self.seed = config, text, batch_size, max_length, seed
        self.ordinary, self.byte_lengths = np.arange(len(SPECIALS), tokens.vocab_size), np.asarray(tokens.byte_lengths)
        self.starts_word = tokens.starts_word if config.whole_word else None
        self.starts = [0]
        """The first step of each shard visited so far, epoch after epoch, and of the next one."""
        self._load(0)
        if self.starts[-1] == 0 and not self.epoch_steps():
            raise SesameError(
                f"the text makes {len(self.examples)} examples, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    def _load(self, number: int) -> None:
        """Make the examples of the shard that is visited as this one, and put them into batches."""
        self.visit, (epoch, place) = number, divmod(number, len(self.text.shards))
        index = int(np.random.default_rng([self.seed, epoch]).permutation(len(self.text.shards))[place])
        self.epoch, self.index, self.shard = epoch, index, self.text.shards[index]
        self.examples, self.inner = self._examples(self.shard, index, 0 if self.config.static else epoch)
        self.lengths = self.inner.sum(1) + np.where(self.examples[:, 2] < self.examples[:, 3], 3, 2)
        rng = np.random.default_rng([self.seed, epoch, index])
        steps = len(self.examples) // self.batch_size
        order = rng.permutation(len(self.examples))[: steps * self.batch_size]
        sorted_ = []
        for part in np.split(order, range(self.batch_size * BUCKET, len(order), self.batch_size * BUCKET)):
            part = part[np.argsort(self.lengths[part], kind="stable")].reshape(-1, self.batch_size)
            sorted_.append(part[rng.permutation(len(part))])
        self.order = np.concatenate(sorted_)
        if number == len(self.starts) - 1:
            self.starts.append(self.starts[-1] + steps)

    def _examples(self, shard: Shard, index: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of a shard, (n, 5), and the ordinary tokens of their As and Bs, (n, 2)."""
        rng = np.random.default_rng([self.seed, epoch, index, 1])
        try:
            examples = pairs(shard, self.max_length, rng) if self.config.paired else spans(shard, self.max_length)
        except SesameError:
            if len(self.text.shards) == 1:
                raise
            examples = spans(shard, self.max_length)  # the last shard may be a single document: nothing can be asked of it
        inside = np.diff(np.searchsorted(shard.segments[:, 1], examples[:, :4]), axis=1)  # [SEP]s inside A, between, inside B
        ordinary = (np.diff(examples[:, :4], axis=1) - inside)[:, ::2]
        some = ordinary.sum(1) > 0  # a segment may make no token
        return examples[some], ordinary[some]

    def _visit(self, step: int) -> int:
        """Have the shard loaded that a step is of; the step's number in it."""
        while step >= self.starts[-1]:
            self._load(len(self.starts) - 1)
        number = bisect_right(self.starts, step) - 1
        if number != self.visit:
            self._load(number)
        return step - self.starts[number]

    def restart(self) -> None:
        """Have the examples of the first shard of the first epoch at hand."""
        self._visit(0)

    def chosen(self, step: int) -> np.ndarray:
        """The examples of a step, (batch,); loads its shard."""
        place = self._visit(step)
        return self.order[place]

    def epoch_steps(self) -> int:
        while len(self.starts) <= len(self.text.shards):
            self._load(len(self.starts) - 1)
        return self.starts[len(self.text.shards)]

    def tokens(self, step: int) -> int:
        chosen = self.chosen(step)  # first, since it may load another shard with other lengths
        return int(self.lengths[chosen].sum())

    def bounds(self, step: int) -> tuple[int, int]:
        self._visit(step)
        return within(step, *self.starts[self.visit : self.visit + 2], self.batch_size * self.max_length)

    def draw(self, first: int, last: int) -> Window:
        start = self._visit(first)
        chosen = self.order[start : start + last - first].ravel()
        examples, inner, lengths = self.examples[chosen], self.inner[chosen], self.lengths[chosen]
        sizes, paired = inner.sum(1), examples[:, 2] < examples[:, 3]
        tokens = self._ordinary(examples)
        row = np.repeat(np.arange(len(chosen)), sizes)
        rank = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        in_b = rank >= inner[row, 0]
        opens = None
        if self.starts_word is not None:  # what follows a special opens a word, too
            opens = self.starts_word[tokens] | (rank == 0) | (rank == inner[row, 0])
        key = (self.seed, 0 if self.config.static else self.epoch, self.index)
        seen, targets = mask(tokens, sizes, self.config, self.ordinary, key, chosen, opens)

        widths, begins = padded(lengths, self.batch_size)
        place = 1 + rank + in_b
        ids, segment_ids = np.zeros((2, self.batch_size * widths.sum()), np.int64)
        ids[begins], ids[begins + 1 + inner[:, 0]], ids[(begins + lengths - 1)[paired]] = CLS, SEP, SEP
        ids[begins[row] + place] = seen
        segment_ids[ranges(begins + 2 + inner[:, 0], np.where(paired, inner[:, 1] + 1, 0))] = 1

        row, asked = row[targets], np.bincount(row[targets], minlength=len(chosen))
        most, begins = padded(asked, self.batch_size)
        places, labels = np.zeros(self.batch_size * most.sum(), np.int64), np.full(self.batch_size * most.sum(), IGNORED)
        at = begins[row] + np.arange(len(row)) - (np.cumsum(asked) - asked)[row]
        places[at], labels[at] = place[targets], tokens[targets]

        counts = {"tokens": lengths, "mlm": asked, "bytes": np.bincount(row, self.byte_lengths[tokens[targets]], minlength=len(chosen))}
        if self.config.next_sentence:
            counts["nsp"] = examples[:, 4] != IGNORED
        flat = {
            "ids": (ids, widths), "segment_ids": (segment_ids, widths), "places": (places, most), "labels": (labels, most),
            "lengths": (lengths, None), "is_random": (examples[:, 4], None),
        }  # fmt: skip
        return Window.laid_out(first, self.batch_size, flat, counts)

    def _ordinary(self, examples: np.ndarray) -> np.ndarray:
        """The tokens of the rows' As and Bs one after another, without the [SEP]s inside them."""
        first, end = examples[:, [0, 2]].ravel(), examples[:, [1, 3]].ravel()
        tokens = self.shard.tokens[ranges(first, end - first)].astype(np.int64)
        return tokens[tokens != SEP]
