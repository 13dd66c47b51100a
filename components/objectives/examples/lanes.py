"""Lanes of text, read in windows."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from components.encode import Split
from components.errors import SesameError
from components.objectives.examples.stream import Stream
from components.objectives.examples.windows import Batches
from components.tokenizer import Tokenizer


class LaneBatches(Batches):
    """Row i of every step continues row i of the step before: the text is cut into batch_size lanes, read in windows."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, window: int, seed: int):
        self.stream, self.batch_size, self.window = Stream(text, seed), batch_size, window
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.lane = (self.stream.size - 1) // batch_size
        if self.lane < window:
            raise SesameError(
                f"the text has {self.stream.size} tokens, less than one batch of {batch_size} windows of {window}; "
                "use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return self.lane // self.window

    def tokens(self, step: int) -> int:
        return self.batch_size * self.window

    def _place(self, step: int) -> tuple[int, list[int]]:
        """The epoch of a step, and where in it each lane's window begins."""
        epoch, index = divmod(step, self.epoch_steps())
        return epoch, [lane * self.lane + index * self.window for lane in range(self.batch_size)]

    def documents(self, step: int, backward: bool = False) -> list[str]:
        """Of each row of a step, the documents that its window has text of, ahead or back."""
        epoch, starts = self._place(step)
        size = self.window + 1
        if backward:
            starts = [self.stream.size - start - size for start in starts]
        return [self.stream.documents(epoch, start, start + size) for start in starts]

    def ahead(self, first: int, last: int) -> np.ndarray:
        """The windows of these steps, each with the token that follows, (steps * batch, window + 1)."""
        epoch, starts = self._place(first)
        size = (last - first) * self.window + 1
        return self._windows([self.stream.read(epoch, start, start + size) for start in starts])

    def back(self, first: int, last: int) -> np.ndarray:
        """The same of the lanes read from their ends, each with the token that stands before."""
        epoch, starts = self._place(first)
        size, ends = (last - first) * self.window + 1, [self.stream.size - start for start in starts]
        return self._windows([self.stream.read(epoch, end - size, end)[::-1] for end in ends])

    def _windows(self, lanes: list[np.ndarray]) -> np.ndarray:
        windows = sliding_window_view(np.stack(lanes), self.window + 1, axis=1)[:, :: self.window]  # (lanes, steps, window + 1)
        return windows.swapaxes(0, 1).reshape(-1, self.window + 1)
