"""What pre-training asks of a tokenizer."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import numpy as np

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Their ids are 0 to 4 in every vocabulary. `[CLS]` opens a document, `[SEP]` ends a segment."""
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))


class Tokenizer(ABC):
    """Text to ids and back; the specials are the first."""

    path: Path
    """Of its file."""
    vocab_size: int
    """Pieces, specials among them."""
    prefix, middle, suffix = [CLS], [SEP], [SEP]
    """Special ids before a text, between the two of a pair, and after."""
    unknown = UNK
    mask: int | None = MASK
    """What stands for a hidden token; None where there is none."""

    @abstractmethod
    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, without specials."""

    @abstractmethod
    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and of each id the characters of the text it stands for, (first, end)."""

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """Text of ids; specials are left out, but mask and unknown show."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Put its files into a folder."""

    @cached_property
    @abstractmethod
    def pieces(self) -> list[bytes]:
        """The bytes that each id stands for: a word's first piece begins with a space, a special is nothing."""

    def falls_back(self, i: int) -> bool:
        """Whether an id is a byte of a character that is no piece."""
        return False

    def stream(self, ids: list[int]) -> str:
        """Text of ids across documents: `¶` is where one opens, segments stand side by side."""
        marks = {CLS: " ¶", SEP: ""}
        return "".join(marks.get(i, self.pieces[i].decode(errors="replace")) for i in ids).strip()

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of text behind each id (vocab_size,). The space before a segment's first piece stands for its line break."""
        return np.array([len(piece) for piece in self.pieces], dtype=np.int64)

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether a word starts at the id (vocab_size,), boolean."""
        return np.array([piece.startswith(b" ") for piece in self.pieces])

    def characters(self, shortest: int = 1, longest: int = 32) -> np.ndarray:
        """Byte ids of each piece (vocab_size, length): 0 is padding, 1-256 are bytes, 257 and up the specials.

        The length is that of the longest piece, between the two bounds; longer pieces are cut.
        """
        length = max(shortest, min(longest, max(map(len, self.pieces))))
        table = np.zeros((self.vocab_size, length), dtype=np.int64)
        for i, piece in enumerate(self.pieces):
            row = [257 + i] if i < len(SPECIALS) else [byte + 1 for byte in piece[:length]]
            table[i, : len(row)] = row
        return table
