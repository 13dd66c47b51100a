"""Lanes of text, read in windows."""

import torch
from torch import Tensor

from components.encode import Split
from components.errors import SesameError
from components.objectives.examples.stream import Stream


class LaneBatches:
    """Row i of every step continues row i of the step before: the text is cut into batch_size lanes, read in windows."""

    def __init__(self, text: Split, batch_size: int, window: int, seed: int):
        self.stream, self.batch_size, self.window, self.seed = Stream(text, seed), batch_size, window, seed
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

    def documents(self, step: int) -> list[str]:
        """Of each row of a step, the documents that its forward window has text of."""
        epoch, starts = self._place(step)
        return [self.stream.documents(epoch, start, start + self.window + 1) for start in starts]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        epoch, starts = self._place(step)
        forward = [self.stream.read(epoch, start, start + self.window + 1) for start in starts]
        size = self.stream.size
        backward = [self.stream.read(epoch, size - start - self.window - 1, size - start)[::-1].copy() for start in starts]
        return {
            "forward": torch.stack([torch.from_numpy(row) for row in forward]),
            "backward": torch.stack([torch.from_numpy(row) for row in backward]),
        }
