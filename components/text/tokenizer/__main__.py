"""`python -m components.text.tokenizer NAME`: data/corpora/<corpus> -> data/tokenizers/<name>/."""

import random
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain, islice, pairwise
from pathlib import Path

import sentencepiece

from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.core.words import NON_JOINER
from components.params import Params
from components.params import Tokenizer as TokenizerSettings
from components.stages import stage
from components.text import corpora, tokenizer
from components.text.tokenizer import sentinels, spm

SENTENCEPIECE = {"bpe": "bpe", "unigram": "unigram", "characters": "char", "bytes": "char"}
"""Kind of tokenizer -> sentencepiece's model type; `trained` trains the other kinds."""
MEASURED_SEGMENTS = 20_000
"""Segments of the validation text on which fertility is measured."""


def train(params: Params, name: str, run: Run) -> dict:
    """Train the tokenizer `name`; return its metrics on held-out text. Raise SesameError if the text supports fewer tokens."""
    settings = params.tokenizers[name]
    corpus = Path("data/corpora", settings.corpus)
    with storage.output(Path("data/tokenizers", name)) as folder:
        folder.mkdir()
        sample = _sample(corpus, settings.sample_sentences, params.seed)
        segments = _segments(corpus, sample)
        first = next(segments, None)
        if first is None:
            raise SesameError(f"{corpus / 'train.txt'} has no text to train on")
        if settings.kind in SENTENCEPIECE:
            kept = [NON_JOINER] if any(NON_JOINER in segment for segment in _segments(corpus, sample)) else []
            _fit(settings, chain([first], segments), folder, name, kept)
        else:
            import_module("components.text.tokenizer.trained").train(settings, lambda: _segments(corpus, sample), folder)
        if settings.sentinels:
            sentinels.add(folder, settings.sentinels)
        tokens = tokenizer.load(folder)
    segments = list(islice(chain.from_iterable(corpora.read(corpus, "valid")), MEASURED_SEGMENTS))
    ids = list(chain.from_iterable(tokens.encode(segments)))
    words = sum(len(segment.split()) for segment in segments)
    run.artifact(Path("data/tokenizers", name), "tokenizer")
    if not ids:
        raise SesameError(f"{corpus / 'valid.txt'} has no text to measure the tokenizer on; raise splits.valid of its corpus")
    unknown = sum(i == tokenizer.UNK for i in ids) / len(ids)
    warning = f"; {unknown:.2%} of the tokens of held-out text are unknown" if unknown else ""
    print(f"vocabulary of {tokens.vocab_size}, {len(ids) / words:.3f} tokens a word{warning}")
    return {
        "vocab_size": tokens.vocab_size,
        "fertility": len(ids) / words,
        "unknown_rate": unknown,
        "byte_fallback_rate": sum(map(tokens.falls_back, ids)) / len(ids),
        "bytes_per_token": sum(len(segment.encode()) for segment in segments) / len(ids),
    }


def _sample(corpus: Path, size: int | None, seed: int) -> list[int] | None:
    """Return the numbers of the training segments to learn from, ascending; None: all."""
    total = corpora.card(corpus)["splits"]["train"]["segments"] if size else 0
    return sorted(random.Random(seed).sample(range(total), size)) if size and size < total else None


def _segments(corpus: Path, sample: list[int] | None) -> Iterator[str]:
    """Yield the sampled segments of the training text, in its order."""
    segments = chain.from_iterable(corpora.read(corpus, "train"))
    if sample is None:
        return segments
    gaps = (number - before - 1 for before, number in pairwise([-1, *sample]))
    return (next(islice(segments, gap, None)) for gap in gaps)


def _fit(settings: TokenizerSettings, segments: Iterator[str], folder: Path, name: str, kept: Sequence[str] = ()) -> None:
    """Write `tokenizer.model` to the folder. Raise SesameError with the largest vocabulary that the text supports.

    `kept`: characters that are tokens; sentencepiece's rules would make a blank of the non-joiner within Persian words.
    """
    try:
        sentencepiece.SentencePieceTrainer.train(
            # a segment with the sign that sentencepiece keeps for unknown tokens would be left out whole
            sentence_iterator=(segment.replace("\u2585", " ") for segment in segments),
            model_prefix=str(folder / "tokenizer"),
            model_type=SENTENCEPIECE[settings.kind],
            # a vocabulary of bytes has no room to spare: what is kept would take the place of the blank
            vocab_size=settings.most_pieces + (len(kept) if settings.kind == "bytes" else 0),
            character_coverage=settings.character_coverage,
            hard_vocab_limit=settings.kind not in ("characters", "bytes"),  # there may be fewer characters
            byte_fallback=settings.byte_fallback,
            normalization_rule_name="nmt_nfkc_cf" if settings.lowercase else "nmt_nfkc",
            pad_id=tokenizer.PAD, unk_id=tokenizer.UNK, bos_id=tokenizer.CLS, eos_id=tokenizer.SEP,
            pad_piece="[PAD]", unk_piece="[UNK]", bos_piece="[CLS]", eos_piece="[SEP]",
            max_sentence_length=spm.LONGEST_SEGMENT,
            user_defined_symbols=list(kept),
            control_symbols=["[MASK]"],  # control symbols are never produced from raw text
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        place = f"tokenizers.{name}"
        if supported := re.search(r"value <= (\d+)", str(error)):
            size, most = settings.vocab_size, supported[1]
            raise SesameError(f"{place}.vocab_size: {size} is more than the text of {settings.corpus} supports; at most {most}") from None
        if needed := re.search(r"required_chars. \d+ vs (\d+)", str(error)):
            raise SesameError(
                f"{place}.vocab_size: {settings.vocab_size} is less than the {needed[1]} that special tokens, bytes and single characters "
                "need; raise it, or lower character_coverage"
            ) from None
        raise SesameError(f"{place}: sentencepiece could not train: {str(error).splitlines()[-1]}") from None


if __name__ == "__main__":
    stage.main("tokenizer", train)
