"""Tokenizers: training (`python -m components.text.tokenizer NAME`), and a class for each library that makes them, chosen in `load`.

    contract     what pre-training asks of all of them
    spm          sentencepiece's, `tokenizer.model`
    trained      byte-level BPE and WordPiece of the `tokenizers` library, `tokenizer.json`
    fast         that of imported checkpoints, for tuning alone

A tokenizer's files are copied next to every model that was trained with it.
"""

from importlib import import_module
from pathlib import Path

from components.text.tokenizer import fast, spm
from components.text.tokenizer.contract import CLS, MASK, PAD, SEP, SPECIALS, UNK, Tokenizer

__all__ = ["CLS", "MASK", "PAD", "SEP", "SPECIALS", "UNK", "Tokenizer", "fit_pair", "load"]


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text of a pair are kept: the longer one is cut first, and each keeps half the room at least."""
    kept = min(first, max(room - second, room - room // 2))
    return kept, min(second, room - kept)


def load(path: Path) -> Tokenizer | fast.FastTokenizer:
    """The tokenizer of a tokenizer's, an encoding's or a model's folder."""
    if not (path / fast.FILE).exists():
        return spm.SentencePieces(path)
    imported = fast.FastTokenizer(path)
    if not imported.trained_here:
        return imported
    # by name: what reads with another does not depend on it
    return import_module("components.text.tokenizer.trained").TrainedTokenizer(path)
