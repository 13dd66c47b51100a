"""The tokenizer of an imported checkpoint: `tokenizer.json`, read by the `tokenizers` library."""

import json
import re
import shutil
from pathlib import Path

import tokenizers

from components.core.errors import SesameError
from components.core.words import MARKS

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
BYTES_OF_PIECES = "bytes_behind_a_byte_of_pieces"
"""A setting that only tokenizers trained here have."""


class FastTokenizer:
    """Has the members of `Tokenizer` that fine-tuning uses. Special tokens in raw text are encoded as plain text."""

    def __init__(self, folder: Path):
        """Raise SesameError if the files can't be read, or don't define the special tokens around texts."""
        self.folder = folder
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / FILE))
            settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        except Exception as error:  # `tokenizers` raises nothing more special
            raise SesameError(f"{folder}: {FILE} or {SETTINGS} can't be read: {str(error).splitlines()[0]}") from None
        self.trained_here = BYTES_OF_PIECES in settings
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # as plain text
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        # mask and unknown are shown in decoded text, but not GPT-2's unknown, which is also its end token
        unknown, end, mask = (vocabulary.get(settings.get(f"{name}_token")) for name in ("unk", "eos", "mask"))
        self.specials = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        self.hidden = self.specials - ({mask, unknown} - {end})
        self.prefix, self.middle, self.suffix = self._specials(end)
        self.mask: int | None = mask
        self.unknown = unknown if unknown is not None else self.suffix[-1]

    def _specials(self, end: int | None) -> tuple[list[int], list[int], list[int]]:
        """Return the special ids before a text, between the texts of a pair, and after; the end token if there are none."""
        # no field of the files has them for every kind of tokenizer, so they are taken from an encoded pair
        pair = self.tokenizer.encode("a", "a")
        sides = pair.sequence_ids
        try:
            first, second = sides.index(0), sides.index(1)
        except ValueError:
            raise SesameError(f"{self.folder}: the tokenizer makes nothing of the letter a") from None
        ends = [len(sides) - sides[::-1].index(side) for side in (0, 1)]
        prefix, middle, suffix = pair.ids[:first], pair.ids[ends[0] : second], pair.ids[ends[1] :]
        if end is None and not (middle and suffix):
            raise SesameError(f"{self.folder}: the tokenizer puts nothing after a text, and {SETTINGS} names no eos_token")
        return prefix, middle or [end], suffix or [end]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens."""
        return [self._encoded(text).ids for text in texts]

    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and for each id its characters in the text, (first, end)."""
        encodings = map(self._encoded, texts)
        return [
            (encoding.ids, whole_characters(text, encoding.offsets))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _encoded(self, text: str) -> tokenizers.Encoding:
        return self.tokenizer.encode(text, add_special_tokens=False)  # one by one, since a batch would use all cores

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, without special tokens except mask and unknown."""
        return self.tokenizer.decode([i for i in ids if i not in self.hidden], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        """Copy the files to a folder."""
        for name in (FILE, SETTINGS):
            shutil.copy(self.folder / name, folder / name)


CONTINUES = re.compile(rf"[{MARKS}\u1160-\u11ff\uff9e\uff9f]+")
"""What is one character with the code point before it: combining marks, vowels and finals of Hangul, marks of narrow kana."""


def whole_characters(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretch tokens' spans in a text over the code points that continue their last character and that no token has.

    Where `tokenizers` composes marks or leaves them out, no token has their place: `cafe` of a decomposed `café`.
    """
    starts = {first for first, _ in spans}

    def end(first: int, last: int) -> int:
        continued = CONTINUES.match(text, last) if last > first else None
        return next((i for i in range(last, continued.end()) if i in starts), continued.end()) if continued else last

    return [(first, end(first, last)) for first, last in spans]
