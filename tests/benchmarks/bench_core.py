"""Text to batches: encoding, masking and drawing, against a stated peer or limit measured in the same run."""

import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from components import objectives
from components.objectives.bilm.config import BidirectionalLM
from components.objectives.clm.config import CausalLM
from components.objectives.mlm.config import MaskedLM
from components.objectives.noise.tokens import mask
from components.text import corpora, tokenizer
from components.text.encode.splits import encode_split
from components.text.tokenizer import SPECIALS
from tests.benchmarks.made import PIECES, VOCABULARY, collator, made_text
from tests.benchmarks.record import best, record

ROOT = Path(__file__).parents[2]
TARGET = 5e6
"""Tokens a second: what one core must draw so that a small model on one H200 does not wait."""
OBJECTIVES = {
    "masked LM, pairs": MaskedLM(name="mlm"), "masked LM": MaskedLM(name="mlm", next_sentence=False),
    "masked LM, whole words": MaskedLM(name="mlm", next_sentence=False, whole_word=True),
    "masked LM, spans": MaskedLM(name="mlm", next_sentence=False, span_probability=0.2),
    "masked LM, full sentences": MaskedLM(name="mlm", next_sentence=False, inputs="full_sentences"),
    "masked LM, sentence order": MaskedLM(name="mlm", next_sentence=False, sentence_order=True),
    "left to right": CausalLM(name="clm"), "ELMo": BidirectionalLM(name="bilm"),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(("rows", "length"), [(32, 64), (256, 128)])
def test_batches_a_core(name, rows, length):
    """With the setting up of an epoch, by its share."""
    torch.set_num_threads(1)
    objective, text = objectives.build(OBJECTIVES[name], PIECES), made_text(2_000_000)
    steps = objective.batches(text, rows, length, 1).epoch_steps()

    def draw() -> float:
        batches = objective.batches(text, rows, length, 1)
        return sum(batches[step].counts["tokens"] for step in range(steps))

    [seconds] = best(draw, rounds=3)
    record(f"batches a core, {name}, {rows} x {length}", draw() / seconds, TARGET, "tokens/s", "what an H200 eats")


def test_masking():
    """Keyed masking against transformers' collator, 256 rows of 128 tokens."""
    ids = np.random.default_rng(0).integers(len(SPECIALS), VOCABULARY, (256, 128))
    examples, theirs = [{"input_ids": row} for row in torch.from_numpy(ids)], collator(mlm=True)
    flat, sizes, config, ordinary = ids.ravel(), np.full(256, 128), MaskedLM(name="mlm"), np.arange(len(SPECIALS), VOCABULARY)
    seconds = best(lambda: mask(flat, sizes, config, ordinary, (1, 0), np.arange(256)), lambda: theirs(examples))
    record("masking", ids.size / seconds[0], ids.size / seconds[1], "tokens/s", "transformers' collator")


def test_encoding(tmp_path):
    """The encode stage against sentencepiece alone on the same text and cores, which is its limit. The text is the default pipeline's."""
    corpus, trained = ROOT / "data/corpora/english", ROOT / "data/tokenizers/english"
    if not corpus.exists() or not trained.exists():
        pytest.skip("the default's text is not built: `sesame run tokenizer@english`")
    texts, own = list(chain.from_iterable(corpora.read(corpus, "train"))), tokenizer.load(trained)
    size = sum(len(text.encode()) for text in texts) / 1e6
    cores = os.cpu_count() or 1
    ours = lambda: encode_split(corpora.read(corpus, "train"), "train", own, tmp_path, "uint16", cores)  # noqa: E731
    seconds = best(ours, lambda: own.encode(texts, cores), rounds=4)
    record("encoding", size / seconds[0], size / seconds[1], "MB/s", "sentencepiece alone")
