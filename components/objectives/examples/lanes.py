"""Lanes of text, read in windows."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from components.core.errors import SesameError
from components.objectives.examples.stream import Stream, filled
from components.objectives.examples.windows import Batches
from components.text.encode import Split
from components.text.tokenizer import Tokenizer

LANES, LANE_TOKENS = 32, 1024


def validation_lanes(text: Split) -> int:
    """In which a whole text is validated on, whatever the batches of the training: long ones, since each begins without
    a memory."""
    return min(LANES, max(1, text.num_tokens // LANE_TOKENS))


class LaneBatches(Batches):
    """Row i of every step continues row i of the step before: the text is cut into batch_size lanes, read in windows.
    What is left of a window behind the end of a lane is padding."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, window: int, seed: int):
        self.stream, self.batch_size, self.window = Stream(text, seed), batch_size, window
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.lane = -(-(self.stream.size - 1) // batch_size)
        if (self.stream.size - 1) // batch_size < window:
            raise SesameError(
                f"the text has {self.stream.size} tokens, less than one batch of {batch_size} windows of {window}; "
                "use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return -(-self.lane // self.window)

    def tokens(self, step: int) -> int:
        return sum(min(self.window, left) for _, left in self._place(step)[1])

    def _place(self, step: int) -> tuple[int, list[tuple[int, int]]]:
        """The epoch of a step, and of each lane where in it its window begins, and how many tokens are left of the
        lane."""
        epoch, index = divmod(step, self.epoch_steps())
        starts = [(lane * self.lane + index * self.window, (lane + 1) * self.lane) for lane in range(self.batch_size)]
        return epoch, [(start, max(0, min(end, self.stream.size - 1) - start)) for start, end in starts]

    def documents(self, step: int, backward: bool = False) -> list[str]:
        """Of each row of a step, the documents that its window has text of, ahead or back."""
        epoch, starts = self._place(step)
        size = self.window + 1
        if backward:
            starts = [(self.stream.size - start - min(left, self.window) - 1, left) for start, left in starts]
        return [self.stream.documents(epoch, start, start + min(size, left + 1)) for start, left in starts]

    def ahead(self, first: int, last: int) -> np.ndarray:
        """The windows of these steps, each with the token that follows, (steps * batch, window + 1)."""
        epoch, starts = self._place(first)
        size = (last - first) * self.window + 1
        return self._windows([filled(self._read(epoch, start, start + min(size, left + 1)), size) for start, left in starts])

    def back(self, first: int, last: int) -> np.ndarray:
        """The same of the lanes read from their ends, each with the token that stands before."""
        epoch, starts = self._place(first)
        size, ends = (last - first) * self.window + 1, [(self.stream.size - start, left) for start, left in starts]
        return self._windows([filled(self._read(epoch, end - min(size, left + 1), end)[::-1], size) for end, left in ends])

    def _read(self, epoch: int, start: int, end: int) -> np.ndarray:
        """Tokens of the stream; none outside of it, as where a short text leaves its last lanes empty."""
        inside = max(0, start), min(end, self.stream.size)
        return self.stream.read(epoch, *inside) if inside[0] < inside[1] else np.zeros(0, np.int64)

    def _windows(self, lanes: list[np.ndarray]) -> np.ndarray:
        windows = sliding_window_view(np.stack(lanes), self.window + 1, axis=1)[:, :: self.window]  # (lanes, steps, window + 1)
        return windows.swapaxes(0, 1).reshape(-1, self.window + 1)
