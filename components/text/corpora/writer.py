"""Documents -> `data/corpora/<name>`: splits by hash, one segment per line, and the card."""

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from components import params
from components.core.errors import SesameError, format_counts
from components.core.storage import output, write_json
from components.text.corpora import SPLITS, Document
from components.text.corpora.cleaning import share_of, words_of


def split_of(key: str, splits: params.Splits, seed: int) -> str:
    """Return the split of a document by its text alone, so that a document never changes its split."""
    share = share_of(key, f"split {seed}")
    if share < splits.test:
        return "test"
    return "valid" if share < splits.test + splits.valid else "train"


class _Split:
    """The file of a split while it is written, and its counts."""

    def __init__(self, path: Path):
        self.file = path.open("wb")
        self.hash = hashlib.sha256()
        self.counts = {"documents": 0, "segments": 0, "words": 0, "bytes": 0}

    def add(self, document: Document) -> None:
        text = ("\n" if self.counts["documents"] else "") + "\n".join(document) + "\n"
        raw = text.encode()
        self.file.write(raw)
        self.hash.update(raw)
        for count, more in (("documents", 1), ("segments", len(document)), ("words", words_of(document)), ("bytes", len(raw))):
            self.counts[count] += more


def write(name: str, documents: Iterable[tuple[str, Document]], splits: params.Splits, seed: int, about: dict | None = None) -> dict:
    """Write `(key, document)` pairs as the corpus `name`; the key's hash determines the split. Return the card.

    `about` are further fields of the card, whose counts may still change while documents are read. Raise SesameError if there is no
    document, or none in a required split.
    """
    with output(Path("data/corpora", name)) as folder:
        folder.mkdir()
        with ExitStack() as stack:
            files = {split: _Split(folder / f"{split}.txt") for split in SPLITS}
            for split in files.values():
                stack.enter_context(split.file)
            for key, document in documents:
                files[split_of(key, splits, seed)].add(document)
        about = about or {}
        check(name, {split: file.counts["documents"] for split, file in files.items()}, splits, about.get("dropped", {}))
        written = {split: file.counts | {"sha256": file.hash.hexdigest()} for split, file in files.items()}
        card = {"name": name} | about | {"splits": written}
        write_json(folder / "card.json", card)
    return card


def check(name: str, documents: dict[str, int], splits: params.Splits, dropped: dict[str, int]) -> None:
    """Raise SesameError if there is no document, or none in a required split: later stages would fail less clearly."""
    total = sum(documents.values())
    if total == 0:
        raise SesameError(f"corpora.{name}: no text is left; dropped: {format_counts(dropped)}")
    for split, share in (("train", 1), ("valid", 1), ("test", splits.test)):
        if share and not documents[split]:
            raise SesameError(
                f"corpora.{name}: no document of {total} fell into {split} "
                f"(splits are by document: valid {splits.valid}, test {splits.test}; dropped: {format_counts(dropped)}); "
                "set larger shares in its `splits`, read more, or read smaller documents (`document: blank_line` or `line` of format text)"
            )


def counts(card: dict) -> dict:
    """Return the counts of a card as metrics of the stage."""
    return {
        "words": sum(split["words"] for split in card["splits"].values()),
        "bytes": sum(split["bytes"] for split in card["splits"].values()),
        "documents": sum(split["documents"] for split in card["splits"].values()),
        "dropped": card["dropped"],
        "splits": {name: {key: value for key, value in split.items() if key != "sha256"} for name, split in card["splits"].items()},
    }
