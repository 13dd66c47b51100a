"""Corpora: text from the sources of `params.yaml`, cleaned, without duplicates, split by document.

`data/corpora/<name>/{train,valid,test}.txt` hold one sentence (or other segment) per line and a blank line between
documents, the format of BERT's `create_pretraining_data`; of a corpus with `shards` a split is several such files,
`train-00000-of-00008.txt` and so on. `card.json` says what they are. Every other stage reads them through `read` and `card`.

    readers       files and tables -> documents; one more way to read is one file there, and its block in `components/params`
    sentences.py  running text -> sentences
    cleaning.py   normalising, control characters, duplicates
    writer.py     splits by hash, the files, the card
    mix.py        a corpus together with the unlabelled training text of tasks
    shards        the same for text that no memory holds, by many processes
"""

from collections.abc import Iterator
from pathlib import Path

from components.core.storage import read_json, reading

SPLITS = ("train", "valid", "test")

Document = list[str]
"""Segments (sentences, senses of a gloss), none empty, each on one line."""


def read(path: str | Path, split: str) -> Iterator[Document]:
    """The documents of `data/corpora/<name>`, each a list of segments. `split`: train, valid or test.

    Raises SesameError where a file is not there, or no text.
    """
    for file in files(path, split):
        yield from read_file(file)


def files(path: str | Path, split: str) -> list[Path]:
    """The files of a split: `train.txt`, or all shards of it. Raises SesameError where one of them is missing."""
    shards = sorted(Path(path).glob(f"{split}-*-of-*.txt"))
    if not shards:
        return [Path(path) / f"{split}.txt"]
    of = int(shards[0].stem.rpartition("-")[2])
    wanted = [Path(path) / f"{split}-{number:05}-of-{of:05}.txt" for number in range(of)]
    for file in wanted:
        with reading(file):
            file.stat()
    return wanted


def read_file(file: Path) -> Iterator[Document]:
    """The documents of one file of a corpus. Raises SesameError as `read` does."""
    with reading(file), file.open(encoding="utf-8", newline="\n") as stream:
        document: Document = []
        for line in stream:
            if segment := line.rstrip("\n"):
                document.append(segment)
            elif document:
                yield document
                document = []
        if document:
            yield document


def card(path: str | Path) -> dict:
    """What a corpus is: language, sources, counts per split, what was dropped and why."""
    return read_json(Path(path) / "card.json")
