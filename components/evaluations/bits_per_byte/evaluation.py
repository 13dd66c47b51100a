"""Bits per byte as an evaluation."""

from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError
from components.core.keyed import generator
from components.evaluations import held_out
from components.evaluations.bits_per_byte.config import BitsPerByte
from components.evaluations.contract import Answers
from components.evaluations.inference import AnyTokenizer
from components.evaluations.minimal_pairs import scoring
from components.models.contract import LanguageModel
from components.stages.outputs import read_json, reading

FILE = "sentences.json"


def prepare(folder: Path, block: BitsPerByte) -> dict:
    """Write the sentences; returns their number and bytes. Raises SesameError where the corpus has no test split."""
    documents, seen = held_out.documents(Path("data/corpora", block.corpus), ["test"])
    text = [(segment, number) for number, document in enumerate(documents) for segment in document]
    if not text:
        raise SesameError(
            f"corpus {block.corpus} has no test text ({seen:,} sentences that the training text has, too, are left out); "
            "raise its `test` share, or take another corpus"
        )
    chosen = [text[i] for i in sorted(generator(0).permutation(len(text))[: block.sentences].tolist())]
    sentences, numbers = zip(*chosen, strict=True)
    storage.write_json(folder / FILE, {"sentences": sentences, "documents": numbers})
    figures = {"sentences": len(chosen), "of": len(text), "bytes": sum(len(sentence.encode()) for sentence in sentences)}
    figures |= {"seen_in_training": seen}
    shown = "{sentences:,} sentences of {of:,}, {bytes:,} bytes; {seen_in_training:,} left out that the training text has"
    print(shown.format(**figures))
    return figures


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without probabilities of sentences."""
    with reading(folder / FILE):
        prepared = read_json(folder / FILE)
        sentences, documents = (prepared.get(key) if isinstance(prepared, dict) else None for key in ("sentences", "documents"))
        if not isinstance(sentences, list) or not sentences or not all(isinstance(text, str) for text in sentences):
            raise ValueError("it has no list of sentences")
        if not isinstance(documents, list) or len(documents) != len(sentences):
            raise ValueError("it has no document of each sentence")
    protocol = scoring.usual_protocol(model)
    scored = scoring.score(model, tokens, sentences, protocol, name)
    size = np.array([len(text.encode()) for text in sentences], float)
    bits = -scored.log_probability.astype(float) / np.log(2)
    figures = {
        "bits": float(bits[scored.scored].sum()), "bytes": int(size[scored.scored].sum()),
        "unknown_pieces": int(scored.unknown.sum()),
    }  # fmt: skip
    items = pd.DataFrame({"sentence": np.arange(len(size)), "bytes": size.astype(int), "pieces": scored.pieces, "bits": bits})
    # sentences of one document are hard or easy alike: the error is over documents, where there are several
    clusters = np.array(documents) if len(set(documents)) > 1 else None
    groups = np.full(len(size), "sentences")
    return Answers(protocol, bits / size, groups, size / size.mean(), items, figures, measure="bits_per_byte", clusters=clusters)
