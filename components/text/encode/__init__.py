"""Text as memory-mapped token ids with segment and document boundaries (`python -m components.text.encode NAME`).

A split consists of shards, flat files of ids: every document begins with `[CLS]`, every segment ends with `[SEP]`, and no document is in
two shards. `load` opens an encoding; data is read into memory only when it is used.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.stages.outputs import reading
from components.text.tokenizer import SEP

SPLITS = ("train", "valid", "test")
CHECKED = 10_000
"""Segments at each end of a shard whose `[SEP]` is checked when it is opened: checking all would read the complete file."""

AT_ONCE = 2**24
"""Ids that are counted at a time: numpy makes a copy of eight bytes each."""


@dataclass(frozen=True)
class Shard:
    """The ids of some documents, and the bounds of their segments."""

    tokens: np.ndarray  # (num_tokens,) memory-mapped, with [CLS] and [SEP]
    segments: np.ndarray  # (num_segments, 2): positions of the first token and of the [SEP] after the last one
    documents: np.ndarray  # (num_documents + 1,): first segment of each document, and the number of segments

    def __len__(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    @property
    def document_tokens(self) -> np.ndarray:
        """(num_documents + 1,): the first token of each document, which is its `[CLS]`, and the number of tokens."""
        first = self.segments[self.documents[:-1], 0] - 1
        return np.append(first, len(self.tokens))


@dataclass(frozen=True)
class Split:
    """All shards of one split. Its documents are numbered consecutively over the shards."""

    shards: tuple[Shard, ...]
    num_bytes: int | None = None
    """Bytes of the raw text with line ends, before the tokenizer normalises it; None for shards in memory."""

    def __len__(self) -> int:
        """Documents."""
        return sum(map(len, self.shards))

    @property
    def first_documents(self) -> np.ndarray:
        """(shards,): the number of each shard's first document."""
        return np.cumsum([0, *map(len, self.shards[:-1])])

    @property
    def num_tokens(self) -> int:
        return sum(len(shard.tokens) for shard in self.shards)

    def occurrences(self, vocab_size: int) -> np.ndarray:
        """Count each id in the text, (vocab_size,)."""
        counts = np.zeros(vocab_size, np.int64)
        for shard in self.shards:
            for at in range(0, len(shard.tokens), AT_ONCE):
                counts += np.bincount(shard.tokens[at : at + AT_ONCE], minlength=vocab_size)
        return counts


def load(path: Path, split: str) -> Split:
    """Load a split of an encoding. Raise SesameError if a file is missing or truncated."""
    with reading(path / "meta.json"):
        meta = json.loads((path / "meta.json").read_text())
        dtype, counts = np.dtype(meta["dtype"]), meta[split]["shards"]
    shards = tuple(_shard(stem(path, split, number), dtype, of_shard) for number, of_shard in enumerate(counts))
    return Split(shards, meta[split]["bytes"])


def stem(path: Path, split: str, number: int) -> Path:
    """Return the common prefix of a shard's files."""
    return path / f"{split}-{number:05}"


def _shard(stem: Path, dtype: np.dtype, counts: dict[str, int]) -> Shard:
    arrays = {}
    for array, name in (("tokens", "bin"), ("segments", "segments.npy"), ("documents", "documents.npy")):
        with reading(file := stem.with_name(f"{stem.name}.{name}")):
            if array != "tokens":
                mapped = np.load(file, mmap_mode="r")
            else:
                mapped = np.memmap(file, dtype=dtype, mode="r") if file.stat().st_size else np.empty(0, dtype)  # can't map an empty file
            arrays[array] = np.asarray(mapped)  # still memory-mapped, but slicing takes a tenth of the time of a memmap's
            # a truncated file may still open; documents have one boundary more
            if (rows := len(arrays[array]) - (array == "documents")) != counts[array]:
                raise ValueError(f"{rows} {array}, {counts[array]} by meta.json")
    with reading(stem.with_name(f"{stem.name}.bin")):
        ends = np.concatenate([arrays["segments"][:CHECKED, 1], arrays["segments"][-CHECKED:, 1]])
        if (arrays["tokens"][ends] != SEP).any():  # the right number of ids, but other ones
            raise ValueError("a segment does not end with [SEP]")
    return Shard(**arrays)
