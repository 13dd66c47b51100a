"""Text for benchmarks, as ids: documents of sentences as long as those of an encyclopedia, pieces as frequent as in one."""

from functools import cache
from types import SimpleNamespace

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS

VOCABULARY = 8192
PIECES = SimpleNamespace(
    vocab_size=VOCABULARY, byte_lengths=np.full(VOCABULARY, 4), starts_word=np.arange(VOCABULARY) % 3 > 0,
    characters=lambda shortest=1: np.ones((VOCABULARY, max(8, shortest)), dtype=np.int64), pieces=[b"x"] * VOCABULARY,
    falls_back=lambda i: False,
)  # fmt: skip
"""In the place of a tokenizer."""


@cache
def made_text(tokens: int) -> Split:
    """About so many tokens."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3.1, 0.5, tokens // 26), 4, 90).astype(int)
    sizes = rng.integers(5, 30, len(lengths))
    sizes = sizes[np.cumsum(sizes) <= len(lengths)]
    lengths = lengths[: sizes.sum()]
    ends = np.cumsum(lengths + 1) + np.repeat(np.arange(len(sizes)), sizes)
    starts = ends - lengths
    ids = np.minimum(len(SPECIALS) + (rng.pareto(0.6, ends[-1] + 1) * 10).astype(np.int64), VOCABULARY - 1).astype(np.uint16)
    ids[starts[np.cumsum(sizes) - sizes] - 1], ids[ends] = CLS, SEP
    return Split((Shard(ids, np.stack([starts, ends], 1), np.append(0, np.cumsum(sizes))),))


def collator(mlm: bool) -> DataCollatorForLanguageModeling:
    """transformers' own, over our specials."""
    words = WordLevel({name: i for i, name in enumerate(SPECIALS)} | {f"w{i}": i for i in range(len(SPECIALS), VOCABULARY)}, SPECIALS[1])
    names = {"pad_token": SPECIALS[PAD], "cls_token": SPECIALS[CLS], "sep_token": SPECIALS[SEP], "mask_token": SPECIALS[MASK]}
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **names)
    return DataCollatorForLanguageModeling(fast, mlm=mlm, mlm_probability=0.15)
