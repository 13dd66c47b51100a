"""Byte-level BPE and WordPiece, trained here with the `tokenizers` library."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from components import params
from components.core.storage import write_json
from components.core.words import ZERO_WIDTH
from components.stages.outputs import read_json
from components.text.tokenizer.contract import CLS, SEP, SPECIALS, UNK, Tokenizer
from components.text.tokenizer.fast import BYTES_OF_PIECES, FILE, SETTINGS, FastTokenizer

MARK = "##"
"""Prefix of a WordPiece token that continues a word."""
LONGEST_WORD = 100
"""Characters. The library makes a longer word unknown as a whole, such as a sentence of Thai, which has no spaces; here it is
split into several words."""
MEASURED_SEGMENTS = 20_000
"""Segments of the training text on which the bytes per token are measured."""


class TrainedTokenizer(FastTokenizer, Tokenizer):
    """Fit for pre-training, too: its vocabulary starts with our special tokens."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / FILE

    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, without specials; for `threads` above 1 the library chooses their number."""
        if threads == 1:
            return super().encode(texts)
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of text of each id, (vocab_size,). A WordPiece token does not say whether a space preceded it: each counts as if one did,
        scaled so that the sum is right on the training text."""
        return super().byte_lengths * read_json(self.folder / SETTINGS)[BYTES_OF_PIECES]

    @cached_property
    def pieces(self) -> list[bytes]:
        tokens = [self.tokenizer.id_to_token(i) for i in range(len(SPECIALS), self.vocab_size)]
        if isinstance(self.tokenizer.model, models.WordPiece):
            pieces = [(token.removeprefix(MARK) if token.startswith(MARK) else f" {token}").encode() for token in tokens]
        else:
            pieces = [bytes(BYTE_OF[character] for character in token) for token in tokens]
        return [b""] * len(SPECIALS) + pieces

    @cached_property
    def starts_word(self) -> np.ndarray:
        starts = super().starts_word
        starts[UNK] = True  # of WordPiece, which makes a complete word unknown; byte-level BPE knows all
        return starts


def train(settings: params.Tokenizer, segments: Callable[[], Iterable[str]], folder: Path) -> None:
    """Write `tokenizer.json` to the folder. A small text may yield fewer tokens than requested; the metrics report their number."""
    tokenizer = (_wordpiece if settings.kind == "wordpiece" else _byte_level_bpe)(settings, segments)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.save(str(folder / FILE))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, BYTES_OF_PIECES: 1.0}
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=True)) | {"bos": "[CLS]", "eos": "[SEP]"}
    config |= {f"{name}_token": token for name, token in names.items()}
    write_json(folder / SETTINGS, config)
    if settings.kind == "wordpiece":
        trained, sample = TrainedTokenizer(folder), list(islice(segments(), MEASURED_SEGMENTS))
        estimate = sum(int(trained.byte_lengths[ids].sum()) for ids in trained.encode(sample, threads=2) if ids)
        write_json(folder / SETTINGS, config | {BYTES_OF_PIECES: sum(len(text.encode()) + 1 for text in sample) / estimate})


def _byte_level_bpe(settings: params.Tokenizer, segments: Callable[[], Iterable[str]]) -> tokenizers.Tokenizer:
    """Merges of bytes, so that no text is unknown (Radford et al. 2019, section 2.2)."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    lower = [normalizers.Lowercase()] if settings.lowercase else []
    # a trailing space gives no token, as in sentencepiece: the text before the [MASK] of a prompt ends in one
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower, normalizers.Strip()])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    options = {"vocab_size": settings.vocab_size, "special_tokens": list(SPECIALS), "show_progress": False}
    tokenizer.train_from_iterator(segments(), trainers.BpeTrainer(initial_alphabet=sorted(BYTE_OF), **options))
    return tokenizer


def _wordpiece(settings: params.Tokenizer, segments: Callable[[], Iterable[str]]) -> tokenizers.Tokenizer:
    """BERT's tokens, which the library merges by frequency. Accents stay, as with all kinds; all but the most frequent characters are
    unknown."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=MARK))
    # without the library's cleaning, which has taken the non-joiner out of Persian words
    bert = normalizers.BertNormalizer(lowercase=settings.lowercase, strip_accents=False, clean_text=False)
    no_width = normalizers.Replace(tokenizers.Regex(rf"[{ZERO_WIDTH}\p{{Cc}}]"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), no_width, bert])
    split_long_words = pre_tokenizers.Split(tokenizers.Regex(f".{{1,{LONGEST_WORD}}}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), split_long_words])
    tokenizer.decoder = decoders.WordPiece(MARK)
    counts = Counter(chain.from_iterable(map(tokenizer.normalizer.normalize_str, segments())))
    # each character may be in the vocabulary twice, and at least a third of it is left for merges
    most = (settings.vocab_size - len(SPECIALS)) // 3
    alphabet = sorted(sorted(counts.keys() - {" "}), key=counts.get, reverse=True)[:most]

    def continues_words(character: str) -> bool:
        """False for punctuation and Han characters, which are words of their own."""
        normalized = tokenizer.normalizer.normalize_str(f"a{character}a")
        return len(tokenizer.pre_tokenizer.pre_tokenize_str(normalized)) == 1

    inside = filter(continues_words, alphabet)
    # The trainer numbers the characters inside words in the order of a hash table and breaks ties by number, which gives a different
    # vocabulary in every run. Special tokens are numbered in order.
    options = {"special_tokens": [*SPECIALS, *(MARK + character for character in inside)], "show_progress": False}
    trainer = trainers.WordPieceTrainer(vocab_size=settings.vocab_size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), **options)
    tokenizer.train_from_iterator(segments(), trainer)
    # the same vocabulary without those as special tokens
    clean = tokenizers.Tokenizer(models.WordPiece(tokenizer.get_vocab(), unk_token="[UNK]", continuing_subword_prefix=MARK))
    clean.normalizer, clean.pre_tokenizer, clean.decoder = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder
    return clean


def byte_characters() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for: printable Latin-1 characters stand for themselves, the characters
    from 256 on for the other bytes in order (Radford et al. 2019, in their code)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = byte_characters()
