"""The tokenizer of an imported checkpoint: `tokenizer.json`, read by the library that wrote it."""

import json
import shutil
from pathlib import Path

import tokenizers

from components.core.errors import SesameError

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
BYTES_OF_PIECES = "bytes_behind_a_byte_of_pieces"
"""A setting that only tokenizers have which are trained here."""


class FastTokenizer:
    """Has the members of `Tokenizer` that fine-tuning uses. Special ids are never parsed out of raw text here either."""

    def __init__(self, folder: Path):
        """Raises SesameError when the files can't be read or don't say how texts are put together."""
        self.folder = folder
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / FILE))
            settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        except Exception as error:  # `tokenizers` raises nothing more special
            raise SesameError(f"{folder}: {FILE} or {SETTINGS} can't be read: {str(error).splitlines()[0]}") from None
        self.trained_here = BYTES_OF_PIECES in settings
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # as plain text, that is
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        # Shown in a decoded text are mask and unknown; GPT-2's unknown is also its end of text, which is not.
        named = {name: vocabulary.get(settings.get(f"{name}_token")) for name in ("unk", "eos", "mask")}
        shown = {named["mask"], named["unk"]} - {named["eos"]}
        self.specials = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        self.hidden = self.specials - shown
        self.prefix, self.middle, self.suffix = self._specials(named["eos"])
        self.mask: int | None = named["mask"]
        self.unknown = named["unk"] if named["unk"] is not None else self.suffix[-1]

    def _specials(self, end: int | None) -> tuple[list[int], list[int], list[int]]:
        """Special ids before a text, between the two of a pair, and after; where the files give none, the end of a text."""
        # No field of the files says it for every kind of tokenizer: what a pair of texts gets around it does.
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
        """Ids of each text, without specials."""
        return [ids for ids, _ in self.encode_offsets(texts)]

    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Ids of each text, and of each id the characters of the text it stands for, (first, end)."""
        encodings = (self.tokenizer.encode(text, add_special_tokens=False) for text in texts)  # one by one: a batch would take all cores
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def decode(self, ids: list[int]) -> str:
        """Text of ids; specials are left out, but unknown and mask are shown."""
        return self.tokenizer.decode([i for i in ids if i not in self.hidden], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        """Put the files into a folder."""
        for name in (FILE, SETTINGS):
            shutil.copy(self.folder / name, folder / name)
