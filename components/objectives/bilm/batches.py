"""Lanes of text, each read from both of its ends."""

from components.objectives.examples.lanes import LaneBatches
from components.objectives.examples.stream import of_streams
from components.objectives.examples.windows import Window


class BothEnds(LaneBatches):
    """Row i of every step goes on where row i of the step before has ended, ahead and back."""

    def draw(self, first: int, last: int) -> Window:
        rows = {"forward": self.ahead(first, last), "backward": self.back(first, last)}
        return of_streams(first, self.batch_size, "bilm", rows, self.byte_lengths, backward=["backward"])
