"""Tokenizers: training (`python -m components.text.tokenizer NAME`), and a class for each library, selected in `load`.

    contract     the interface that pre-training needs
    spm          sentencepiece, `tokenizer.model`
    trained      byte-level BPE and WordPiece of the `tokenizers` library, `tokenizer.json`
    fast         tokenizers of imported checkpoints, only for fine-tuning

A tokenizer's files are copied to every model that is trained with it.
"""

from importlib import import_module
from pathlib import Path

from components.text.tokenizer import fast, spm
from components.text.tokenizer.contract import CLS, MASK, PAD, SEP, SPECIALS, UNK, Tokenizer

__all__ = ["CLS", "MASK", "PAD", "SEP", "SPECIALS", "UNK", "Tokenizer", "fit_pair", "load"]


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths to which two texts are truncated: the longer one first, each to at least half of the room."""
    first = min(first, max(room - second, room - room // 2))
    return first, min(second, room - first)


def load(path: Path) -> Tokenizer | fast.FastTokenizer:
    """Load the tokenizer in the folder of a tokenizer, an encoding or a model."""
    if not (path / fast.FILE).exists():
        return spm.SentencePieces(path)
    imported = fast.FastTokenizer(path)
    if not imported.trained_here:
        return imported
    # imported by name, so that stages with other tokenizers do not depend on it
    return import_module("components.text.tokenizer.trained").TrainedTokenizer(path)
