"""From sources to documents on disk, and from there to the splits."""

import hashlib
import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datatrove.data import Document as Text
from datatrove.pipeline.base import PipelineStep

from components import params
from components.core.errors import SesameError
from components.text import sources
from components.text.corpora import SPLITS, readers
from components.text.corpora.cleaning import digest_of, normalised
from components.text.corpora.shards.plan import Portion
from components.text.corpora.writer import split_of

CHUNK = 1 << 20


def texts(path: Path) -> Iterator[bytes]:
    """The documents of a shard, one segment per line, without the final line end."""
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(CHUNK):
            *whole, rest = (rest + chunk).split(b"\n\n")
            yield from whole
        if rest:
            yield rest.removesuffix(b"\n")


def words_in(text: str | bytes) -> int:
    """Number of words of a normalised document: one space separates words, one line end segments."""
    space, end = (" ", "\n") if isinstance(text, str) else (b" ", b"\n")
    return text.count(space) + text.count(end) + 1


def counts(folder: Path, rank: int) -> dict:
    """The counts that a step wrote for a shard."""
    return json.loads((folder / f"{rank:05}.json").read_text())


def first_documents(folder: Path, tasks: int) -> np.ndarray:
    """(tasks + 1,): the number of each shard's first cleaned document, and the number of all."""
    return np.cumsum([0, *(counts(folder / "clean", rank)["documents"] for rank in range(tasks))])


def dropped(folder: Path, step: str, rank: int) -> np.ndarray:
    """(n,), ascending: the documents of a shard, counted from its first, that a step drops; empty if the step was not run."""
    path = folder / step / f"{rank:05}.npy"
    return np.load(path) if path.exists() else np.empty(0, np.int64)


class Read(PipelineStep):
    """Reads a shard's portions as normalised documents and drops short ones."""

    type, name = "READER", "portions"

    def __init__(self, folder: Path, corpus: params.Corpus):
        super().__init__()
        self.folder, self.parts, self.cleaning = folder / "plan", corpus.parts, corpus.cleaning

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> Iterator[Text]:
        for portion in pickle.loads((self.folder / f"{rank:05}.pickle").read_bytes()):
            part = self.parts[portion.part]
            for document in _documents(part, portion):
                document = normalised(document, self.cleaning.unicode)
                self.stat_update("total")
                text = "\n".join(document)
                if not document or words_in(text) < self.cleaning.min_words:
                    self.stat_update("dropped_short")
                else:
                    yield Text(text, "", metadata={"language": part.language} if part.language else {})


def _documents(part: params.CorpusPart, portion: Portion) -> Iterator[list[str]]:
    rows = sources.brings_rows(part.source.kind)
    try:
        yield from readers.documents(part if rows else part.model_copy(update={"source": portion}))
    except SesameError as error:
        if not portion.begin:
            raise
        # lines were counted from the start of the portion: add those before it
        [file] = list(sources.open_files(part.source))[portion.first : portion.stop]
        with file.raw() as stream:
            before = stream.read(portion.begin).count(b"\n")
        place = re.compile(re.escape(f"{file.name}, line ") + r"(\d+)")
        raise SesameError(place.sub(lambda match: f"{file.name}, line {int(match[1]) + before}", str(error))) from None


LINES = "line-filter-"
"""Before the reason, in datatrove's counts of removed lines."""


class Store(PipelineStep):
    """Writes documents to `clean/<rank>.txt`, with a digest of each and the counts."""

    type, name = "WRITER", "cleaned text"

    def __init__(self, folder: Path, cleaning: params.Cleaning, before: list[PipelineStep] = ()):
        super().__init__()
        self.folder, self.cleaning, self.before = folder / "clean", cleaning, before

    def run(self, data: Iterator[Text], rank: int = 0, world_size: int = 1) -> None:
        self.folder.mkdir(exist_ok=True)
        digests, number, languages, short = bytearray(), 0, [], 0
        with (self.folder / f"{rank:05}.txt").open("wb", CHUNK) as file:
            for document in data:
                text = document.text
                if self.before[1:] and (not text or words_in(text) < self.cleaning.min_words):
                    short += 1  # a filter removed lines
                    continue
                language = document.metadata.get("language")
                if not languages or languages[-1][0] != language:
                    languages.append([language, number])
                file.write(b"\n" * (number > 0) + text.encode() + b"\n")
                digests += digest_of(text)
                number += 1
        np.save(self.folder / f"{rank:05}.npy", np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2))
        reasons, sentences = Counter(short=short), Counter()
        for step in self.before:
            for label, stat in step.stats.stats.items():
                if label.startswith("dropped_"):
                    reasons[label.removeprefix("dropped_")] += round(stat.total)
                elif label.startswith(LINES):  # C4's rules take single lines out of a document: sentences, here
                    sentences[label.removeprefix(LINES)] += round(stat.total)
        about = {"documents": number, "languages": languages, "dropped": reasons, "sentences_removed": sentences}
        (self.folder / f"{rank:05}.json").write_text(json.dumps(about))


class Split(PipelineStep):
    """Writes a shard without its duplicates to one file per split. A document's hash selects its split, as for a corpus of one file."""

    type, name = "WRITER", "splits"

    def __init__(self, folder: Path, splits: params.Splits, seed: int):
        super().__init__()
        self.folder, self.splits, self.seed = folder, splits, seed

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        target, known = self.folder / "shards", counts(self.folder / "clean", rank)
        target.mkdir(exist_ok=True)
        exact, near = dropped(self.folder, "exact", rank), dropped(self.folder, "near", rank)
        kept = np.ones(known["documents"], bool)
        kept[exact] = kept[near] = False
        languages, words, language = [*known["languages"], (None, known["documents"])], Counter(), -1
        written = {split: {"documents": 0, "segments": 0, "words": 0, "bytes": 0} for split in SPLITS}
        digests = {split: hashlib.sha256() for split in SPLITS}
        files = {split: (target / f"{split}-{rank:05}-of-{world_size:05}.txt").open("wb", CHUNK) for split in SPLITS}
        for number, raw in enumerate(texts(self.folder / "clean" / f"{rank:05}.txt")):
            if number == languages[language + 1][1]:
                language += 1
            if not kept[number]:
                continue
            split = split_of(raw.decode(), self.splits, self.seed)
            totals, block = written[split], b"\n" * (written[split]["documents"] > 0) + raw + b"\n"
            files[split].write(block)
            digests[split].update(block)
            size = words_in(raw)
            for key, more in (("documents", 1), ("segments", raw.count(b"\n") + 1), ("words", size), ("bytes", len(block))):
                totals[key] += more
            words[languages[language][0]] += size
        for file in files.values():
            file.close()
        reasons = known["dropped"] | {"duplicates": len(exact), "near_duplicates": len(near)}
        splits = {split: totals | {"sha256": digests[split].hexdigest()} for split, totals in written.items()}
        about = {
            "dropped": reasons, "sentences_removed": known["sentences_removed"], "splits": splits,
            "words_by_language": {key: count for key, count in words.items() if key},
        }  # fmt: skip
        (target / f"{rank:05}.json").write_text(json.dumps(about))
