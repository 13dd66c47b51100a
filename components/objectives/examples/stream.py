"""A text as one endless stream of tokens, its documents in a new order in every epoch."""

import numpy as np

from components.encode import Split


class Stream:
    """Reads anywhere in an epoch without building it: memory holds an entry a document."""

    def __init__(self, text: Split, seed: int):
        self.text, self.seed, self.epoch = text, seed, -1
        self.bounds = text.document_tokens
        self.size = len(text.tokens)

    def read(self, epoch: int, start: int, end: int) -> np.ndarray:
        """Tokens start..end of an epoch, (end - start,)."""
        self._load(epoch)
        parts, place = [], int(np.searchsorted(self.ends, start, side="right"))
        while start < end:
            document = self.order[place]
            offset = self.bounds[document + 1] - self.ends[place]  # from the place in the epoch to the place in the file
            stop = min(end, int(self.ends[place]))
            parts.append(self.text.tokens[start + offset : stop + offset])
            start, place = stop, place + 1
        return np.concatenate(parts).astype(np.int64)

    def documents(self, epoch: int, start: int, end: int) -> str:
        """The numbers of the documents that tokens start..end of an epoch are of."""
        self._load(epoch)
        first, last = np.searchsorted(self.ends, [start, end - 1], side="right")
        return " ".join(map(str, self.order[first : last + 1]))

    def _load(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.order = np.random.default_rng([self.seed, epoch]).permutation(len(self.text))
            self.ends = np.cumsum(np.diff(self.bounds)[self.order])
            self.epoch = epoch
