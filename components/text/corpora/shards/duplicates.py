"""Documents that repeat another one, whatever shard it is in: of those that are the same, or alike, the first in the text stays.

Hashes are compared by ranges: a task reads those of all shards that fall into its own, sorts them, and so holds about as many as
`AT_ONCE` whatever the size of the text. Near ones are candidates where a band of their signatures agrees, and dropped where the signatures
say that they are as alike as `near_duplicates` asks and the earlier one stays itself, as in a corpus that is cleaned in memory.

datatrove's own four steps keep any one of a cluster and do not look whether candidates are alike.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datatrove.pipeline.base import PipelineStep

from components import params
from components.text.corpora.shards import minhash
from components.text.corpora.shards.steps import counts, dropped, first_documents, texts, words_in

AT_ONCE = 1 << 23
"""Documents whose hashes a task sorts: half a gigabyte."""
PAIRS = 1 << 18
"""Whose signatures are compared at once, with copies: some hundred megabytes."""


def ranges(folder: Path, tasks: int) -> int:
    """Into how many the hashes of all documents are divided."""
    return int(first_documents(folder, tasks)[-1]) // AT_ONCE + 1


def bands(cleaning: params.Cleaning) -> int:
    """Of the signatures."""
    return minhash.PERMUTATIONS // minhash.rows_of(cleaning.near_duplicates)


def _in_range(keys: np.ndarray, number: int, of: int) -> np.ndarray:
    """(n,) whether a key falls into one of so many ranges."""
    return (keys >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(number)


def _gathered(folder: Path, begin: int, end: int) -> np.ndarray:
    """Rows of all files of a folder, each sorted by its first column, in which that is in [begin, end)."""
    found = []
    for path in sorted(folder.glob("*.npy")):
        rows = np.load(path, mmap_mode="r")
        first, last = np.searchsorted(rows[:, 0], [begin, end])
        found.append(np.array(rows[first:last]))
    return np.concatenate(found)


class Exact(PipelineStep):
    """Digests of a range, of all shards: which documents are the same as an earlier one."""

    type, name = "DUPLICATES", "exact"

    def __init__(self, folder: Path, tasks: int):
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "exact.found").mkdir(exist_ok=True)
        first, keys, numbers = first_documents(self.folder, self.tasks), [], []
        for shard in range(self.tasks):
            own = np.load(self.folder / "clean" / f"{shard:05}.npy", mmap_mode="r")
            chosen = np.flatnonzero(_in_range(own[:, 0], rank, world_size))
            keys.append(own[chosen])
            numbers.append(chosen + first[shard])
        keys, numbers = np.concatenate(keys), np.concatenate(numbers)
        order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: of the same ones the first in the text comes first
        keys = keys[order]
        again = np.zeros(len(keys), bool)
        again[1:] = (keys[1:] == keys[:-1]).all(1)
        np.save(target / f"{rank:05}.npy", np.sort(numbers[order][again])[:, None])


class ByShard(PipelineStep):
    """What `Exact` found of a shard."""

    type, name = "DUPLICATES", "exact, by shard"

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "exact").mkdir(exist_ok=True)
        first = first_documents(self.folder, world_size)
        found = _gathered(self.folder / "exact.found", first[rank], first[rank + 1])[:, 0]
        np.save(target / f"{rank:05}.npy", np.sort(found) - first[rank])


class Sign(PipelineStep):
    """Signatures of a shard's documents that are long enough and no exact duplicates."""

    type, name = "DUPLICATES", "signatures"

    def __init__(self, folder: Path, cleaning: params.Cleaning):
        super().__init__()
        self.folder, self.cleaning = folder, cleaning

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "sign").mkdir(exist_ok=True)
        rows, shortest = minhash.rows_of(self.cleaning.near_duplicates), self.cleaning.near_duplicates_min_words
        again, signed, group = set(dropped(self.folder, "exact", rank).tolist()), [], []
        with (target / f"{rank:05}.bin").open("wb") as file:
            for number, raw in enumerate(texts(self.folder / "clean" / f"{rank:05}.txt")):
                if number in again or words_in(raw) < shortest:
                    continue
                signed.append(number)
                group.append(minhash.signature(raw))
                if len(group) == minhash.GROUP:
                    file.write(minhash.Signatures.group(group, rows))
                    group = []
            if group:
                file.write(minhash.Signatures.group(group, rows))
        np.save(target / f"{rank:05}.npy", np.array(signed, np.int64))
        (target / f"{rank:05}.json").write_text(json.dumps({"documents": len(signed)}))


def _signed(folder: Path, tasks: int) -> np.ndarray:
    """(tasks + 1,): the number of each shard's first signature, and how many there are."""
    return np.cumsum([0, *(counts(folder / "sign", rank)["documents"] for rank in range(tasks))])


class Candidates(PipelineStep):
    """A range of a band's keys, of all shards: pairs of documents that agree in it, the later first. In a group of many each is paired with
    the first and with the one before it: all pairs of a text that is there a million times would be too many."""

    type, name = "DUPLICATES", "candidates"

    def __init__(self, folder: Path, tasks: int, threshold: float):
        super().__init__()
        self.folder, self.tasks, self.rows = folder, tasks, minhash.rows_of(threshold)

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "candidates").mkdir(exist_ok=True)
        of = world_size // (minhash.PERMUTATIONS // self.rows)
        band, part = divmod(rank, of)
        first, keys, numbers = _signed(self.folder, self.tasks), [], []
        for shard in range(self.tasks):
            own = minhash.Signatures(self.folder / "sign" / f"{shard:05}.bin", self.rows).band(band)
            chosen = np.flatnonzero(_in_range(own, part, of))
            keys.append(own[chosen])
            numbers.append(chosen + first[shard])
        keys, numbers = np.concatenate(keys), np.concatenate(numbers)
        order = np.argsort(keys, kind="stable")
        keys, numbers = keys[order], numbers[order]
        opens = np.ones(len(keys), bool)
        opens[1:] = keys[1:] != keys[:-1]
        firsts = numbers[np.maximum.accumulate(np.where(opens, np.arange(len(keys)), 0))]
        later = np.flatnonzero(~opens)
        pairs = np.concatenate([
            np.stack([numbers[later], firsts[later]], 1),
            np.stack([numbers[later], numbers[later - 1]], 1)[numbers[later - 1] != firsts[later]],
        ])  # fmt: skip
        np.save(target / f"{rank:05}.npy", pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


class Verify(PipelineStep):
    """The candidates whose later document is a shard's own: those of which enough of the signatures' 128 numbers agree."""

    type, name = "DUPLICATES", "compared"

    def __init__(self, folder: Path, threshold: float):
        super().__init__()
        self.folder, self.threshold, self.rows = folder, threshold, minhash.rows_of(threshold)

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "verify").mkdir(exist_ok=True)
        first = _signed(self.folder, world_size)
        pairs = np.unique(_gathered(self.folder / "candidates", first[rank], first[rank + 1]), axis=0)
        alike = [np.empty((0, 2), np.int64)]
        for begin in range(0, len(pairs), PAIRS):
            some = pairs[begin : begin + PAIRS]
            agree = (self._signatures(some[:, 0], first) == self._signatures(some[:, 1], first)).mean(1)
            alike.append(some[agree >= self.threshold])
        np.save(target / f"{rank:05}.npy", np.concatenate(alike))

    def _signatures(self, numbers: np.ndarray, first: np.ndarray) -> np.ndarray:
        """(n, 128) of documents of any shard, in any order."""
        wanted, places = np.unique(numbers, return_inverse=True)
        found = []
        for shard in np.unique(np.searchsorted(first, wanted, "right") - 1):
            own = wanted[(wanted >= first[shard]) & (wanted < first[shard + 1])] - first[shard]
            found.append(minhash.Signatures(self.folder / "sign" / f"{shard:05}.bin", self.rows).of(own))
        return np.concatenate(found)[places.ravel()]


class Choose(PipelineStep):
    """Which documents are dropped, in the order of the text: one that is like an earlier one that stays. One process, which holds a byte a
    document."""

    type, name = "DUPLICATES", "chosen"

    def __init__(self, folder: Path, tasks: int):
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "near").mkdir(exist_ok=True)
        first = _signed(self.folder, self.tasks)
        gone = np.zeros(first[-1], bool)
        for shard in range(self.tasks):
            pairs = np.load(self.folder / "verify" / f"{shard:05}.npy")
            for later, earlier in _blocks(pairs):
                if not gone[earlier]:
                    gone[later] = True
            signed = np.load(self.folder / "sign" / f"{shard:05}.npy")
            np.save(target / f"{shard:05}.npy", signed[gone[first[shard] : first[shard + 1]]])


def _blocks(pairs: np.ndarray) -> Iterator[list[int]]:
    """Pairs as numbers of Python, which are read ten times as fast, some at a time."""
    for begin in range(0, len(pairs), PAIRS):
        yield from pairs[begin : begin + PAIRS].tolist()
