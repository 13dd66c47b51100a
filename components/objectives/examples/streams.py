"""Parallel streams of text, read in windows."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from components.core.errors import SesameError
from components.objectives.examples.batches import Batches
from components.objectives.examples.shuffled_text import ShuffledText, pad_to
from components.text.encode import Split
from components.text.tokenizer import Tokenizer

VALIDATION_STREAMS, STREAM_TOKENS = 32, 1024


def validation_streams(text: Split) -> int:
    """Return the number of streams to validate on, whatever the training's batch size: long ones, since each starts without a state."""
    return min(VALIDATION_STREAMS, max(1, text.num_tokens // STREAM_TOKENS))


class StreamBatches(Batches):
    """Sequence i of every step continues sequence i of the step before.

    The text is cut into batch_size streams, read in windows; a window beyond the end of its stream is padded.
    """

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, window: int, seed: int):
        self.text, self.batch_size, self.window = ShuffledText(text, seed), batch_size, window
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.stream_length = -(-(self.text.size - 1) // batch_size)
        if (self.text.size - 1) // batch_size < window:
            raise SesameError(
                f"the text has {self.text.size} tokens, less than one batch of {batch_size} windows of {window}; "
                "use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return -(-self.stream_length // self.window)

    def tokens(self, step: int) -> int:
        return sum(min(self.window, left) for _, left in self._starts(step)[1])

    def _starts(self, step: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the epoch of a step, and of each stream the start of its window and the number of tokens from there to its end."""
        epoch, index = divmod(step, self.epoch_steps())
        starts = [(i * self.stream_length + index * self.window, (i + 1) * self.stream_length) for i in range(self.batch_size)]
        return epoch, [(start, max(0, min(end, self.text.size - 1) - start)) for start, end in starts]

    def documents(self, step: int, backward: bool = False) -> list[str]:
        """Return the documents in each window of a step, read forward or backward."""
        epoch, starts = self._starts(step)
        size = self.window + 1
        if backward:
            starts = [(self.text.size - start - min(left, self.window) - 1, left) for start, left in starts]
        return [self.text.documents(epoch, start, start + min(size, left + 1)) for start, left in starts]

    def forward_windows(self, first: int, last: int) -> np.ndarray:
        """Return the windows of these steps, each with the token that follows, (steps * batch_size, window + 1)."""
        epoch, starts = self._starts(first)
        size = (last - first) * self.window + 1
        return self._windows([pad_to(self._read(epoch, start, start + min(size, left + 1)), size) for start, left in starts])

    def backward_windows(self, first: int, last: int) -> np.ndarray:
        """Return the windows of the streams read from their ends, each with the token before it."""
        epoch, starts = self._starts(first)
        size, ends = (last - first) * self.window + 1, [(self.text.size - start, left) for start, left in starts]
        return self._windows([pad_to(self._read(epoch, end - min(size, left + 1), end)[::-1], size) for end, left in ends])

    def _read(self, epoch: int, start: int, end: int) -> np.ndarray:
        """Return the tokens of a range, cut to the text: a short text may leave the last streams empty."""
        start, end = max(0, start), min(end, self.text.size)
        return self.text.read(epoch, start, end) if start < end else np.zeros(0, np.int64)

    def _windows(self, streams: list[np.ndarray]) -> np.ndarray:
        windows = sliding_window_view(np.stack(streams), self.window + 1, axis=1)[:, :: self.window]  # (streams, steps, window + 1)
        return windows.swapaxes(0, 1).reshape(-1, self.window + 1)
