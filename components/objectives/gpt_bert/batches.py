"""Rows of running text, whose steps are causal or masked."""

import numpy as np

from components.core.keyed import uniform
from components.objectives.examples.batches import Chunk, Targets
from components.objectives.examples.rows import PackedRows
from components.objectives.examples.shuffled_text import is_target
from components.objectives.gpt_bert.config import GptBert
from components.objectives.noise.tokens import mask
from components.text.encode import Split
from components.text.tokenizer import PAD, SPECIALS, Tokenizer, sentinels

KIND, HIDDEN = 21, 22  # keys of random numbers
LOOKED_AT = 2**16
"""Steps among which one of each kind is looked for."""


class GptBertBatches(PackedRows):
    """Rows of max_length tokens and the one that follows. A step is masked, or causal, by a number drawn for it."""

    def __init__(self, config: GptBert, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        super().__init__(tokens, text, batch_size, max_length, seed)
        self.config, self.ordinary = config, sentinels.ordinary(tokens)

    def is_masked(self, steps: np.ndarray) -> np.ndarray:
        """steps (n,) -> whether tokens are hidden in each, (n,)."""
        return uniform(self.seed, steps, KIND) < self.config.masked_steps

    def representative_steps(self, tokens: int) -> dict[int, float]:
        """A step of each kind, since a masked one has fewer targets than a causal one; those of a kind are alike."""
        masked, share = self.is_masked(np.arange(LOOKED_AT)), self.config.masked_steps
        # a kind that is not among so many steps has no share in the FLOPs
        return {int(np.argmax(masked == kind)): weight for kind, weight in ((True, share), (False, 1 - share)) if (masked == kind).any()}

    def draw(self, first: int, last: int) -> Chunk:
        """`ids` are the inputs; `labels` at `positions` are the tokens that follow these; `two_sided` (rows,)."""
        text = self.read(first, last)
        steps = np.arange(first, last)
        masked = np.repeat(self.is_masked(steps), self.batch_size)
        inputs, predicted = text[:, :-1].copy(), is_target(text)
        if masked.any():
            inputs[masked], predicted[masked] = self._hidden(text[masked], steps.repeat(self.batch_size)[masked])
        row, place = np.nonzero(predicted)
        labels = text[row, place + 1]
        targets = Targets.of(row, place, labels, len(text), self.batch_size, self.stride)
        flat = {"ids": (inputs.reshape(-1), np.full(last - first, self.stride)), "two_sided": (masked, None)} | targets.flat
        counts = {"tokens": (text[:, 1:] != PAD).sum(1), "next_token": targets.counts}
        counts["bytes"] = np.bincount(row, self.byte_lengths[labels], minlength=len(text))
        return Chunk.from_arrays(first, self.batch_size, flat, counts)

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
