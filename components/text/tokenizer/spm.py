"""Tokenizers of sentencepiece, in one file."""

import shutil
from functools import cached_property
from pathlib import Path

import sentencepiece

from components.stages.outputs import reading
from components.text.tokenizer.contract import MASK, SPECIALS, UNK, Tokenizer

FILE = "tokenizer.model"
LONGEST_SEGMENT = 2**30
"""Longest segment in bytes for training. Sentencepiece's default of 4,192 would leave out most of a text with one article per line."""


class SentencePieces(Tokenizer):
    """A sentencepiece tokenizer. Special tokens in raw text are encoded as plain text: `"[MASK]"` is several ordinary tokens.

    The sign U+2581, `▁`, is sentencepiece's blank, and is read as one.
    """

    def __init__(self, path: Path):
        """`path` is a `tokenizer.model` file or a folder with one. Raise SesameError if it is missing or damaged."""
        self.path = path / FILE if path.is_dir() else path
        with reading(self.path):
            if not (model := self.path.read_bytes()):
                raise ValueError("it is empty")  # which sentencepiece would accept
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        return self.processor.vocab_size()

    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        return self.processor.encode(texts, num_threads=threads)

    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        encoded = self.processor.encode(texts, return_type="offset_mapping")
        return [(text["ids"], self._of_whole_characters(text["ids"], text["offsets"])) for text in encoded]

    def _of_whole_characters(self, ids: list[int], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Give each byte of a character its span: sentencepiece gives it to the last byte, and the others an empty one."""
        spans = list(offsets)
        for i in range(len(ids) - 2, -1, -1):
            first, end = spans[i]
            if first == end == spans[i + 1][0] and self.processor.is_byte(ids[i]):
                spans[i] = spans[i + 1]
        return spans

    def falls_back(self, i: int) -> bool:
        return self.processor.is_byte(i)

    def decode(self, ids: list[int]) -> str:
        texts, run = [], []  # sentencepiece decodes the runs of ordinary ids between special tokens
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
        shutil.copy(self.path, folder / FILE)

    @cached_property
    def pieces(self) -> list[bytes]:
        return [b"" if i < len(SPECIALS) else self._piece(i) for i in range(self.vocab_size)]

    def _piece(self, i: int) -> bytes:
        piece = self.processor.id_to_piece(i)
        return bytes([int(piece[3:5], 16)]) if self.processor.is_byte(i) else piece.replace("▁", " ").encode()
