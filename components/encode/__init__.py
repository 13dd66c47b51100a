"""Text as memory-mapped token ids with segment and document boundaries (`python -m components.encode NAME`).

A split is a flat file of ids: every document opens with `[CLS]`, every segment ends with `[SEP]`.
`load` opens an encoding; nothing is read into memory before it is asked for.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.stage import reading
from components.tokenizer import SEP

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """The ids of one split and where its segments and documents are."""

    tokens: np.ndarray  # (num_tokens,) memory-mapped, with [CLS] and [SEP]
    segments: np.ndarray  # (num_segments, 2): first token and the [SEP] after the last one
    documents: np.ndarray  # (num_documents + 1,): first segment of each document, and the number of segments

    def __len__(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    @property
    def document_tokens(self) -> np.ndarray:
        """(num_documents + 1,): the first token of each document, which is its `[CLS]`, and the number of tokens."""
        first = self.segments[self.documents[:-1], 0] - 1
        return np.append(first, len(self.tokens))


def load(path: Path, split: str) -> Split:
    """One split of an encoding's folder. Raises SesameError when a file is missing, or cut off."""
    with reading(path / "meta.json"):
        meta = json.loads((path / "meta.json").read_text())
        dtype, counts = np.dtype(meta["dtype"]), meta[split]
    arrays = {}
    for array, name in (("tokens", "bin"), ("segments", "segments.npy"), ("documents", "documents.npy")):
        with reading(file := path / f"{split}.{name}"):
            arrays[array] = np.memmap(file, dtype=dtype, mode="r") if array == "tokens" else np.load(file, mmap_mode="r")
            # A file that was cut off may still open; documents have one boundary more than there are documents.
            if (rows := len(arrays[array]) - (array == "documents")) != counts[array]:
                raise ValueError(f"{rows} {array}, {counts[array]} by meta.json")
    with reading(path / f"{split}.bin"):
        if (arrays["tokens"][arrays["segments"][:, 1]] != SEP).any():  # as many ids as there should be, and other ones
            raise ValueError("a segment does not end with [SEP]")
    return Split(**arrays)
