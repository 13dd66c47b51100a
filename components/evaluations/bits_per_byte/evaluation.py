"""Bits per byte as an evaluation."""

from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations.bits_per_byte.config import BitsPerByte
from components.evaluations.contract import Answers
from components.evaluations.minimal_pairs import scoring
from components.evaluations.reading import AnyTokenizer
from components.models.contract import LanguageModel
from components.text import corpora

FILE = "sentences.json"


def prepare(folder: Path, block: BitsPerByte) -> dict:
    """Write the sentences; how many there are and how many bytes they have. Raises SesameError where the corpus has no
    test text."""
    text = [line for document in corpora.read(Path("data/corpora", block.corpus), "test") for line in document]
    if not text:
        raise SesameError(f"corpus {block.corpus} has no test text; raise its `test` share, or take another corpus")
    chosen = [text[i] for i in sorted(generator(0).permutation(len(text))[: block.sentences].tolist())]
    storage.write_json(folder / FILE, chosen)
    figures = {"sentences": len(chosen), "of": len(text), "bytes": sum(len(own.encode()) for own in chosen)}
    print("{sentences:,} sentences of {of:,}, {bytes:,} bytes".format(**figures))
    return figures


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model that has no probability of a sentence."""
    sentences = storage.read_json(folder / FILE)
    protocol = next(iter(scoring.protocols(model)), None)
    scored = scoring.score(model, tokens, sentences, protocol, name)
    size = np.array([len(own.encode()) for own in sentences], float)
    bits = -scored.log_probability.astype(float) / np.log(2)
    there, unknown = scored.scored, int(scored.unknown.sum())
    figures = {"bits": float(bits[there].sum()), "bytes": int(size[there].sum()), "unknown_pieces": unknown}
    items = pd.DataFrame(
        {"sentence": np.arange(len(size)), "bytes": size.astype(int), "pieces": scored.pieces, "bits": bits}
    )
    return Answers(
        protocol or "log_probability", bits / size, np.full(len(size), "sentences"), size / size.mean(), items, figures,
        measure="bits_per_byte",
    )  # fmt: skip
