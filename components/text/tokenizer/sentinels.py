"""Ids that no text becomes, at the end of a vocabulary (Raffel et al. 2020, section 3.1.4)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from components.text.tokenizer import fast, spm
from components.text.tokenizer.contract import SPECIALS, Tokenizer

PREFIX = "<extra_id_"


def ids(vocab_size: int, count: int) -> list[int]:
    """Those of `<extra_id_0>` to `<extra_id_{count - 1}>`: as with T5 the first has the last id."""
    return [vocab_size - 1 - i for i in range(count)]


def ordinary(tokens: Tokenizer) -> np.ndarray:
    """The ids that text becomes, (n,): neither specials nor sentinels."""
    unused = sum(piece.startswith(PREFIX.encode()) for piece in tokens.pieces)
    return np.arange(len(SPECIALS), tokens.vocab_size - unused)


def with_holes(tokens: Tokenizer | fast.FastTokenizer, text: str, marks: Sequence[int]) -> list[int]:
    """The ids of a text, each `[MASK]` in it as the next of `marks`, again and again; as nothing where there are none."""
    made: list[int] = []
    for i, part in enumerate(tokens.encode(text.split("[MASK]"))):
        made += [marks[(i - 1) % len(marks)]] if i and marks else []
        made += part
    return made


def add(folder: Path, count: int) -> None:
    """Put `<extra_id_0>` to `<extra_id_{count - 1}>` into the tokenizer of a folder."""
    names = [f"{PREFIX}{i}>" for i in reversed(range(count))]
    if (path := folder / spm.FILE).exists():
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(path.read_bytes())
        for name in names:  # a control piece is never made of raw text
            model.pieces.add(piece=name, score=0.0, type=sentencepiece_model_pb2.ModelProto.SentencePiece.CONTROL)
        path.write_bytes(model.SerializeToString())
    else:
        made = tokenizers.Tokenizer.from_file(str(folder / fast.FILE))
        made.add_special_tokens(names)
        made.save(str(folder / fast.FILE))
