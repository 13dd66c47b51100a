"""Rows of running text, whose steps are causal or masked."""

import numpy as np

from components.core.keyed import uniform
from components.objectives.examples.batches import TARGETS_MULTIPLE, Chunk, padded_layout
from components.objectives.examples.rows import PackedRows
from components.objectives.examples.shuffled_text import is_target
from components.objectives.gpt_bert.config import GptBert
from components.objectives.noise.tokens import mask
from components.objectives.scoring import IGNORED
from components.text.encode import Split
from components.text.tokenizer import PAD, SPECIALS, Tokenizer, sentinels

KIND, HIDDEN = 21, 22  # keys of random numbers


class GptBertBatches(PackedRows):
    """Rows of max_length tokens and the one that follows. A step is masked, or causal, by a number drawn for it."""

    def __init__(
        self, config: GptBert, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int, masked_steps: float
    ):  # fmt: skip
        super().__init__(tokens, text, batch_size, max_length, seed)
        self.config, self.masked_steps, self.ordinary = config, masked_steps, sentinels.ordinary(tokens)

    def is_masked(self, steps: np.ndarray) -> np.ndarray:
        """steps (n,) -> whether tokens are hidden in each, (n,)."""
        return uniform(self.seed, steps, KIND) < self.masked_steps

    def draw(self, first: int, last: int) -> Chunk:
        """`ids` are the inputs; `labels` at `positions` are the tokens that follow these; `two_sided` (rows,)."""
        text = self.read(first, last)
        steps = np.arange(first, last)
        masked = np.repeat(self.is_masked(steps), self.batch_size)
        inputs, predicted = text[:, :-1].copy(), is_target(text)
        if masked.any():
            inputs[masked], predicted[masked] = self._hidden(text[masked], steps.repeat(self.batch_size)[masked])
        counts = predicted.sum(1)
        widths, begins = padded_layout(counts, self.batch_size, TARGETS_MULTIPLE, self.stride)
        positions, labels = np.zeros(self.batch_size * widths.sum(), int), np.full(self.batch_size * widths.sum(), IGNORED)
        row, place = np.nonzero(predicted)
        at = begins[row] + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        positions[at], labels[at] = place, text[row, place + 1]
        flat = {
            "ids": (inputs.reshape(-1), np.full(last - first, self.stride)), "positions": (positions, widths),
            "labels": (labels, widths), "two_sided": (masked, None),
        }  # fmt: skip
        sums = {"tokens": (text[:, 1:] != PAD).sum(1), "next_token": counts}
        sums["bytes"] = np.bincount(row, self.byte_lengths[text[row, place + 1]], minlength=len(text))
        return Chunk.from_arrays(first, self.batch_size, flat, sums)

    def _hidden(self, text: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """text (rows, length + 1), their steps -> inputs (rows, length), and whether the token after each is hidden.

        Neither the first token of a row is, which no position is before, nor the last, which is not in the inputs.
        """
        inside = text[:, 1:-1] >= len(SPECIALS)
        numbers = np.arange(len(text)) % self.batch_size
        hidden_tokens, targets = mask(
            text[:, 1:-1][inside], inside.sum(1), self.config, self.ordinary, (self.seed, HIDDEN), steps * self.batch_size + numbers
        )  # fmt: skip
        inputs, predicted = text[:, :-1].copy(), np.zeros((len(text), self.stride), bool)
        inputs[:, 1:][inside] = hidden_tokens
        row, place = (places[targets] for places in np.nonzero(inside))
        predicted[row, place] = True
        return inputs, predicted
