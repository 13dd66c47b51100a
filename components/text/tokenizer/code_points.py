"""Characters by the numbers that Unicode has given them: the tokenizer of CANINE's checkpoints, which come without a file of one."""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from components.core import storage
from components.text.tokenizer.fast import FILE, SETTINGS

PAD, CLS, SEP, MASK, RESERVED = 0, 0xE000, 0xE001, 0xE003, 0xE004
"""In the private use area, but for the first (the authors' `special_codepoints.py`)."""
UNKNOWN = 0xFFFD
"""Unicode's own replacement character."""
VOCAB_SIZE = 0x110000
SURROGATES, EMPTY = range(0xD800, 0xE000), range(0x40000, 0xE0000)
"""No characters: halves of UTF-16, and planes 4 to 13, in which Unicode has none."""


def write(folder: Path) -> None:
    """`tokenizer.json` and its settings, as `tokenizer.load` takes them: `[CLS] a [SEP] b [SEP]`, each id a code point.

    A text is taken as it is, case and form; what is no character of Unicode in it, or a special's number, reads as U+FFFD. The table of
    456,704 characters is 6 MB, since the `tokenizers` library has no model that counts.
    """
    characters = {chr(i): i for i in range(VOCAB_SIZE) if i not in SURROGATES and i not in EMPTY}
    made = Tokenizer(models.WordLevel(characters, unk_token=chr(UNKNOWN)))
    made.normalizer = normalizers.Replace(Regex(f"[{chr(PAD)}{chr(CLS)}-{chr(RESERVED)}]"), chr(UNKNOWN))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    made.add_special_tokens([AddedToken(chr(i), special=True, normalized=False) for i in (PAD, CLS, SEP, MASK)])
    cls, sep = chr(CLS), chr(SEP)
    made.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=[(cls, CLS), (sep, SEP)]
    )
    made.save(str(folder / FILE), pretty=False)
    named = {"pad": PAD, "unk": UNKNOWN, "cls": CLS, "sep": SEP, "mask": MASK, "bos": CLS, "eos": SEP}
    storage.write_json(
        folder / SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast"} | {f"{name}_token": chr(i) for name, i in named.items()}
    )
