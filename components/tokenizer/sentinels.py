"""Ids that no text becomes, at the end of a vocabulary (Raffel et al. 2020, section 3.1.4)."""

from pathlib import Path

import tokenizers
from sentencepiece import sentencepiece_model_pb2

from components.tokenizer import fast, spm


def add(folder: Path, count: int) -> None:
    """Put `<extra_id_0>` to `<extra_id_{count - 1}>` into the tokenizer of a folder; as with T5 the first has the last id."""
    names = [f"<extra_id_{i}>" for i in reversed(range(count))]
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
