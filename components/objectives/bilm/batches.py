"""Streams of text, each read from both of its ends."""

from components.objectives.examples.batches import Chunk
from components.objectives.examples.shuffled_text import next_token_chunk
from components.objectives.examples.streams import StreamBatches


class BidirectionalBatches(StreamBatches):
    """Sequence i of every step continues sequence i of the step before, forward and backward."""

    def draw(self, first: int, last: int) -> Chunk:
        sequences = {"forward": self.forward_windows(first, last), "backward": self.backward_windows(first, last)}
        return next_token_chunk(first, self.batch_size, "bilm", sequences, self.byte_lengths, backward=["backward"])
