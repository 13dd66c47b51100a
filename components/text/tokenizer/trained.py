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
from components.core.storage import read_json, write_json
from components.text.tokenizer.contract import CLS, SEP, SPECIALS, Tokenizer
from components.text.tokenizer.fast import BYTES_OF_PIECES, FILE, SETTINGS, FastTokenizer

MARK = "##"
"""Of a WordPiece that goes on with a word."""
LONGEST_WORD = 100
"""Characters that the library makes pieces of: a longer word would be unknown as a whole, as a sentence of Thai, which
has no blanks. It is several words here."""
MEASURED_SEGMENTS = 20_000
"""Of the text that is trained on, for the bytes behind a piece."""


class TrainedTokenizer(FastTokenizer, Tokenizer):
    """Has what pre-training asks for, too: it was trained with our specials in front."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / FILE

    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, without specials; with several threads the library takes as many as it likes."""
        if threads == 1:
            return super().encode(texts)
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of text behind each id, (vocab_size,). A WordPiece doesn't say whether a space stood before it: each as if one did, times
        what makes their sum right on the text that the tokenizer was trained on."""
        return super().byte_lengths * read_json(self.folder / SETTINGS)[BYTES_OF_PIECES]

    @cached_property
    def pieces(self) -> list[bytes]:
        tokens = [self.tokenizer.id_to_token(i) for i in range(len(SPECIALS), self.vocab_size)]
        if isinstance(self.tokenizer.model, models.WordPiece):
            own = [(token.removeprefix(MARK) if token.startswith(MARK) else f" {token}").encode() for token in tokens]
        else:
            own = [bytes(BYTE_OF[character] for character in token) for token in tokens]
        return [b""] * len(SPECIALS) + own


def train(settings: params.Tokenizer, segments: Callable[[], Iterable[str]], folder: Path) -> None:
    """Write `tokenizer.json` to the folder. The text may give fewer pieces than asked for; that shows in the figures."""
    made = (_wordpiece if settings.kind == "wordpiece" else _byte_level_bpe)(settings, segments)
    made.add_special_tokens(list(SPECIALS))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    made.save(str(folder / FILE))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, BYTES_OF_PIECES: 1.0}
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=True)) | {"bos": "[CLS]", "eos": "[SEP]"}
    about |= {f"{name}_token": token for name, token in names.items()}
    write_json(folder / SETTINGS, about)
    if settings.kind == "wordpiece":
        tokens, some = TrainedTokenizer(folder), list(islice(segments(), MEASURED_SEGMENTS))
        counted = sum(int(tokens.byte_lengths[ids].sum()) for ids in tokens.encode(some, threads=2) if ids)
        write_json(folder / SETTINGS, about | {BYTES_OF_PIECES: sum(len(text.encode()) + 1 for text in some) / counted})


def _byte_level_bpe(settings: params.Tokenizer, segments: Callable[[], Iterable[str]]) -> tokenizers.Tokenizer:
    """Merges of bytes, so that nothing is unknown (Radford et al. 2019, section 2.2)."""
    made = tokenizers.Tokenizer(models.BPE())
    lower = [normalizers.Lowercase()] if settings.lowercase else []
    # a space at the end is no piece, as with sentencepiece: what a prompt has before its [MASK] ends in one
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower, normalizers.Strip()])
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    options = {"vocab_size": settings.vocab_size, "special_tokens": list(SPECIALS), "show_progress": False}
    made.train_from_iterator(segments(), trainers.BpeTrainer(initial_alphabet=sorted(BYTE_OF), **options))
    return made


def _wordpiece(settings: params.Tokenizer, segments: Callable[[], Iterable[str]]) -> tokenizers.Tokenizer:
    """BERT's form of pieces, whose merges are by frequency as the library trains them. Accents stay, as with all kinds; a character beyond
    the commonest is unknown."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=MARK))
    made.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.BertNormalizer(lowercase=settings.lowercase, strip_accents=False),
    ])  # fmt: skip
    parts = pre_tokenizers.Split(tokenizers.Regex(f".{{1,{LONGEST_WORD}}}"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), parts])
    made.decoder = decoders.WordPiece(MARK)
    times = Counter(chain.from_iterable(map(made.normalizer.normalize_str, segments())))
    # each character may stand in twice, and a third at least of the vocabulary is left for what merges
    most = (settings.vocab_size - len(SPECIALS)) // 3
    alphabet = sorted(sorted(times.keys() - {" "}), key=times.get, reverse=True)[:most]
    # punctuation and Han characters are words of their own, and never go on with one
    inside = [own for own in alphabet if len(made.pre_tokenizer.pre_tokenize_str(made.normalizer.normalize_str(f"a{own}a"))) == 1]
    # The trainer numbers the characters inside words as a hash table has them, and breaks ties by number: another vocabulary in every
    # run. What is named as special is numbered in order.
    options = {"special_tokens": [*SPECIALS, *(MARK + character for character in inside)], "show_progress": False}
    trainer = trainers.WordPieceTrainer(vocab_size=settings.vocab_size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), **options)
    made.train_from_iterator(segments(), trainer)
    again = tokenizers.Tokenizer(models.WordPiece(made.get_vocab(), unk_token="[UNK]", continuing_subword_prefix=MARK))
    again.normalizer, again.pre_tokenizer, again.decoder = made.normalizer, made.pre_tokenizer, made.decoder
    return again  # without those as special tokens


def byte_characters() -> dict[str, int]:
    """Which byte each character of a byte-level piece stands for: the printable ones of Latin-1 for themselves, the others, in order,
    for what follows from 256 on (Radford et al. 2019, in their code)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = byte_characters()
