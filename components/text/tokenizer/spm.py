"""Sentencepiece's tokenizers, in one file."""

import shutil
from functools import cached_property
from pathlib import Path

import sentencepiece

from components.core.storage import reading
from components.text.tokenizer.contract import MASK, SPECIALS, UNK, Tokenizer

FILE = "tokenizer.model"
LONGEST_SEGMENT = 2**30
"""Bytes that a segment may have where pieces are learnt. Sentencepiece leaves out those of more than 4,192 if nothing
is said: of articles of one line each that is most of the text."""


class SentencePieces(Tokenizer):
    """Text to ids and back. Special ids are never parsed out of raw text: `"[MASK]"` in a text is five ordinary characters or more."""

    def __init__(self, path: Path):
        """`path` is a `tokenizer.model` file or a folder that holds one. Raises SesameError when it is not there, or broken."""
        self.path = path / FILE if path.is_dir() else path
        with reading(self.path):
            if not (model := self.path.read_bytes()):
                raise ValueError("it is empty")  # which sentencepiece takes for none given
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

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

    def falls_back(self, i: int) -> bool:
        return self.processor.is_byte(i)

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
