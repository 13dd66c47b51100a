"""Unicode code points as ids: the tokenizer of CANINE's checkpoints, which have no tokenizer file."""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from components.core import storage
from components.text.tokenizer.fast import FILE, SETTINGS

PAD, CLS, SEP, MASK, RESERVED = 0, 0xE000, 0xE001, 0xE003, 0xE004
"""Special tokens, in the private use area except for the first (the authors' `special_codepoints.py`)."""
UNKNOWN = 0xFFFD
"""Unicode's replacement character."""
VOCAB_SIZE = 0x110000
SURROGATES, EMPTY = range(0xD800, 0xE000), range(0x40000, 0xE0000)
"""Code points without characters: surrogates of UTF-16, and planes 4 to 13."""


def write(folder: Path) -> None:
    """Write `tokenizer.json` and its settings for `tokenizer.load`: `[CLS] a [SEP] b [SEP]`, each id a code point.

    Case and Unicode form stay unchanged; code points without a character, or of a special token, become U+FFFD. The table of 456,704
    characters takes 6 MB, since the `tokenizers` library has no model that computes ids.
    """
    characters = {chr(i): i for i in range(VOCAB_SIZE) if i not in SURROGATES and i not in EMPTY}
    tokenizer = Tokenizer(models.WordLevel(characters, unk_token=chr(UNKNOWN)))
    tokenizer.normalizer = normalizers.Replace(Regex(f"[{chr(PAD)}{chr(CLS)}-{chr(RESERVED)}]"), chr(UNKNOWN))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(chr(i), special=True, normalized=False) for i in (PAD, CLS, SEP, MASK)])
    cls, sep = chr(CLS), chr(SEP)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=[(cls, CLS), (sep, SEP)]
    )
    tokenizer.save(str(folder / FILE), pretty=False)
    names = {"pad": PAD, "unk": UNKNOWN, "cls": CLS, "sep": SEP, "mask": MASK, "bos": CLS, "eos": SEP}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | {f"{name}_token": chr(i) for name, i in names.items()}
    storage.write_json(folder / SETTINGS, settings)
