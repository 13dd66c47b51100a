"""Corpora: text from the sources of `params.yaml`, cleaned, without duplicates, split by document.

`data/corpora/<name>/{train,valid,test}.txt` have one sentence (or other segment) per line and a blank line between documents, the format
of BERT's `create_pretraining_data`; a corpus with `shards` has several such files per split, `train-00000-of-00008.txt` and so on.
`card.json` describes them. Every other stage reads them through `read` and `card`.

    readers       files and tables -> documents; to add a reader, add a module there and its section in `components/params`
    sentences.py  running text -> sentences
    cleaning.py   normalisation, control characters, duplicates
    writer.py     splits by hash, the files, the card
    mix.py        a corpus together with the unlabelled training text of tasks
    shards        the same for text larger than memory, with many processes
"""

from collections.abc import Iterator
from pathlib import Path

from components.stages.outputs import read_json, reading

SPLITS = ("train", "valid", "test")

Document = list[str]
"""Segments (sentences, senses of a gloss), none empty, each on one line."""


def read(path: str | Path, split: str) -> Iterator[Document]:
    """Yield documents of a split of `data/corpora/<name>`, each a list of segments. Raise SesameError if a file is missing or not text."""
    for file in files(path, split):
        yield from read_file(file)


def files(path: str | Path, split: str) -> list[Path]:
    """Return the files of a split: `train.txt`, or all shards. Raise SesameError if a shard is missing."""
    shards = sorted(Path(path).glob(f"{split}-*-of-*.txt"))
    if not shards:
        return [Path(path) / f"{split}.txt"]
    count = int(shards[0].stem.rpartition("-")[2])
    expected = [Path(path) / f"{split}-{number:05}-of-{count:05}.txt" for number in range(count)]
    for file in expected:
        with reading(file):
            file.stat()
    return expected


def read_file(file: Path) -> Iterator[Document]:
    """Yield the documents of one file of a corpus. Raise SesameError like `read`."""
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
    """Read the description of a corpus: language, sources, counts per split, and dropped documents by reason."""
    return read_json(Path(path) / "card.json")
