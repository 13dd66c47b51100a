"""Sentencepiece BPE: training (`python -m components.tokenizer NAME`) and the `Tokenizer` class; `fast` is that of imported checkpoints.

A tokenizer lives in one file, `tokenizer.model`, copied beside every model that was trained with it.
Another kind of tokenizer is a new class with the same members, chosen in `load`.
"""

import shutil
from functools import cached_property
from pathlib import Path

import numpy as np
import sentencepiece

from components.stage import reading
from components.tokenizer import fast

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Their ids are 0 to 4 in every vocabulary. `[CLS]` opens a document, `[SEP]` ends a segment."""
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))
FILE = "tokenizer.model"


class Tokenizer:
    """Text to ids and back. Special ids are never parsed out of raw text: `"[MASK]"` in a text is five ordinary characters or more."""

    def __init__(self, path: Path):
        """`path` is a `tokenizer.model` file or a folder that holds one. Raises SesameError when it is not there, or broken."""
        self.path = path / FILE if path.is_dir() else path
        with reading(self.path):
            if not (model := self.path.read_bytes()):
                raise ValueError("it is empty")  # which sentencepiece takes for none given
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    prefix, middle, suffix = [CLS], [SEP], [SEP]
    """Special ids before a text, between the two of a pair, and after."""
    unknown = UNK

    @property
    def vocab_size(self) -> int:
        """Pieces, specials among them."""
        return self.processor.vocab_size()

    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, without specials."""
        return self.processor.encode(texts, num_threads=threads)

    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and of each id the characters of the text it stands for, (first, end)."""
        return [(text["ids"], text["offsets"]) for text in self.processor.encode(texts, return_type="offset_mapping")]

    def decode(self, ids: list[int]) -> str:
        """Text of ids; specials are left out, but `[MASK]` shows as `[MASK]`."""
        texts, run = [], []  # sentencepiece decodes the runs of ordinary ids between specials
        for i in ids:
            if i < len(SPECIALS):
                texts.append(self.processor.decode(run))
                run = []
                texts.append(SPECIALS[i] if i in (MASK, UNK) else "")
            else:
                run.append(int(i))
        texts.append(self.processor.decode(run))
        return " ".join(text for text in texts if text)

    def stream(self, ids: list[int]) -> str:
        """Text of ids across documents: `¶` is where one opens, segments stand side by side."""
        marks = {CLS: " ¶", SEP: ""}
        return "".join(marks.get(i, self.pieces[i].decode(errors="replace")) for i in ids).strip()

    def save(self, folder: Path) -> None:
        """Put the file into a folder."""
        shutil.copy(self.path, folder / FILE)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes that each id stands for: a leading `▁` is a space, a byte piece is its byte, a special is nothing."""
        return [b"" if i < len(SPECIALS) else self._piece(i) for i in range(self.vocab_size)]

    def _piece(self, i: int) -> bytes:
        piece = self.processor.id_to_piece(i)
        return bytes([int(piece[3:5], 16)]) if self.processor.is_byte(i) else piece.replace("▁", " ").encode()

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


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text of a pair are kept: the longer one is cut first, and each keeps half the room at least."""
    kept = min(first, max(room - second, room - room // 2))
    return kept, min(second, room - kept)


def load(path: Path) -> Tokenizer | fast.FastTokenizer:
    """The tokenizer of a tokenizer's, an encoding's or a model's folder."""
    return fast.FastTokenizer(path) if (path / fast.FILE).exists() else Tokenizer(path)
