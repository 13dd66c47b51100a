"""Sentinel ids at the end of a vocabulary, which no text is encoded to (Raffel et al. 2020, section 3.1.4)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from components.text.tokenizer import fast, spm
from components.text.tokenizer.contract import SPECIALS, Tokenizer

PREFIX = "<extra_id_"


def ids(vocab_size: int, count: int) -> list[int]:
    """Return the ids of `<extra_id_0>` to `<extra_id_{count - 1}>`; the first has the last id, as in T5."""
    return [vocab_size - 1 - i for i in range(count)]


def ordinary(tokens: Tokenizer) -> np.ndarray:
    """Return the ids of ordinary text, (n,), without special tokens and sentinels."""
    unused = sum(piece.startswith(PREFIX.encode()) for piece in tokens.pieces)
    return np.arange(len(SPECIALS), tokens.vocab_size - unused)


def with_holes(tokens: Tokenizer | fast.FastTokenizer, text: str, marks: Sequence[int]) -> list[int]:
    """Return the ids of a text; each `[MASK]` becomes the next of `marks`, cyclically, or is removed if there are none."""
    ids: list[int] = []
    for i, segment in enumerate(tokens.encode(text.split("[MASK]"))):
        ids += [marks[(i - 1) % len(marks)]] if i and marks else []
        ids += segment
    return ids


def add(folder: Path, count: int) -> None:
    """Add `<extra_id_0>` to `<extra_id_{count - 1}>` to the tokenizer of a folder."""
    names = [f"{PREFIX}{i}>" for i in reversed(range(count))]
    if (path := folder / spm.FILE).exists():
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(path.read_bytes())
        for name in names:  # raw text is never encoded to a control symbol
            model.pieces.add(piece=name, score=0.0, type=sentencepiece_model_pb2.ModelProto.SentencePiece.CONTROL)
        path.write_bytes(model.SerializeToString())
    else:
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / fast.FILE))
        tokenizer.add_special_tokens(names)
        tokenizer.save(str(folder / fast.FILE))
