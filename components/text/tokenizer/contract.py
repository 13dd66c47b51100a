"""The interface of a tokenizer for pre-training."""

import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import numpy as np

from components.core import words

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens, with ids 0 to 4 in every vocabulary. `[CLS]` begins a document, `[SEP]` ends a segment."""
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))


class Tokenizer(ABC):
    """Converts text to ids and back; the special tokens have the first ids."""

    path: Path
    """Path of its file."""
    vocab_size: int
    """Number of ids, with special tokens."""
    prefix, middle, suffix = [CLS], [SEP], [SEP]
    """Special ids before a text, between the two texts of a pair, and after."""
    unknown = UNK
    mask: int | None = MASK
    """The id of the mask token; None if there is none."""

    @abstractmethod
    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, without special tokens."""

    @abstractmethod
    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and for each id its characters in the text, (first, end)."""

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, without special tokens except mask and unknown."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Copy its files to a folder."""

    @cached_property
    @abstractmethod
    def pieces(self) -> list[bytes]:
        """The bytes of each id: the first token of a word begins with a space, a special token is empty."""

    def falls_back(self, i: int) -> bool:
        """Return whether an id is a byte of a character that is not in the vocabulary."""
        return False

    def stream(self, ids: list[int]) -> str:
        """Return the text of ids across documents: `¶` marks the start of a document; segments are not separated."""
        marks = {CLS: " ¶", SEP: ""}
        return "".join(marks.get(i, self.pieces[i].decode(errors="replace")) for i in ids).strip()

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of each id (vocab_size,). The space before the first token of a segment counts as its line end."""
        return np.array([len(piece) for piece in self.pieces], dtype=np.int64)

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether a word starts with the id (vocab_size,), boolean.

        In scripts without blanks between words each token starts one, as in BERT's Chinese vocabulary: a sentence would be one word.
        """
        opens = re.compile(rf" |{words.UNSPACED}")
        return np.array([bool(opens.match(piece.decode(errors="replace"))) for piece in self.pieces])

    def characters(self, shortest: int = 1, longest: int = 64) -> np.ndarray:
        """Return the byte ids of each token (vocab_size, length): 0 is padding, 1-256 are bytes, from 257 on special tokens.

        The length is that of the longest token, between the two bounds; longer tokens are cut. sentencepiece's are of up to 16
        characters, which are 64 bytes at most.
        """
        length = max(shortest, min(longest, max(map(len, self.pieces))))
        table = np.zeros((self.vocab_size, length), dtype=np.int64)
        for i, piece in enumerate(self.pieces):
            row = [257 + i] if i < len(SPECIALS) else [byte + 1 for byte in piece[:length]]
            table[i, : len(row)] = row
        return table
