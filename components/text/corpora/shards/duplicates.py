"""Exact and near duplicates across all shards: the first document of each group in the text stays.

Hashes are compared by ranges: a task reads the hashes of all shards that fall into its range and sorts them, so it holds about `AT_ONCE`
of them whatever the size of the text. Documents are candidates if a band of their signatures agrees. The later one is dropped if their
signatures are at least as similar as `near_duplicates` and the earlier one stays, as in a corpus that is cleaned in memory.

datatrove's own four steps keep an arbitrary document of a cluster and do not check how similar the candidates are.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datatrove.pipeline.base import PipelineStep

from components import params
from components.text.corpora.cleaning import rows_of
from components.text.corpora.shards import minhash
from components.text.corpora.shards.steps import counts, dropped, first_documents, texts, words_in

AT_ONCE = 1 << 23
"""Documents whose hashes a task sorts (half a gigabyte)."""
PAIRS = 1 << 18
"""Pairs whose signatures are compared at once (some hundred megabytes with copies)."""


def ranges(folder: Path, tasks: int) -> int:
    """Number of ranges into which the hashes of all documents are divided."""
    return int(first_documents(folder, tasks)[-1]) // AT_ONCE + 1


def bands(cleaning: params.Cleaning) -> int:
    """Number of bands of a signature."""
    return minhash.PERMUTATIONS // rows_of(cleaning.near_duplicates)


def _in_range(keys: np.ndarray, number: int, of: int) -> np.ndarray:
    """(n,) whether a key falls into range `number` of `of`."""
    return (keys >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(number)


def _rows_between(folder: Path, begin: int, end: int) -> np.ndarray:
    """The rows of all files of a folder whose first column, by which each file is sorted, is in [begin, end)."""
    slices = []
    for path in sorted(folder.glob("*.npy")):
        rows = np.load(path, mmap_mode="r")
        first, last = np.searchsorted(rows[:, 0], [begin, end])
        slices.append(np.array(rows[first:last]))
    return np.concatenate(slices)


class Exact(PipelineStep):
    """Finds the documents of all shards that equal an earlier one, among the digests of a range."""

    type, name = "DUPLICATES", "exact"

    def __init__(self, folder: Path, tasks: int):
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "exact.found").mkdir(exist_ok=True)
        first, keys, numbers = first_documents(self.folder, self.tasks), [], []
        for shard in range(self.tasks):
            digests = np.load(self.folder / "clean" / f"{shard:05}.npy", mmap_mode="r")
            selected = np.flatnonzero(_in_range(digests[:, 0], rank, world_size))
            keys.append(digests[selected])
            numbers.append(selected + first[shard])
        keys, numbers = np.concatenate(keys), np.concatenate(numbers)
        order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal documents stay in the order of the text
        keys = keys[order]
        repeated = np.zeros(len(keys), bool)
        repeated[1:] = (keys[1:] == keys[:-1]).all(1)
        np.save(target / f"{rank:05}.npy", np.sort(numbers[order][repeated])[:, None])


class ByShard(PipelineStep):
    """Collects the duplicates that `Exact` found in a shard."""

    type, name = "DUPLICATES", "exact, by shard"

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "exact").mkdir(exist_ok=True)
        first = first_documents(self.folder, world_size)
        numbers = _rows_between(self.folder / "exact.found", first[rank], first[rank + 1])[:, 0]
        np.save(target / f"{rank:05}.npy", np.sort(numbers) - first[rank])


class Sign(PipelineStep):
    """Computes the signatures of a shard's documents that are long enough and not exact duplicates."""

    type, name = "DUPLICATES", "signatures"

    def __init__(self, folder: Path, cleaning: params.Cleaning):
        super().__init__()
        self.folder, self.cleaning = folder, cleaning

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "sign").mkdir(exist_ok=True)
        rows, shortest = rows_of(self.cleaning.near_duplicates), self.cleaning.near_duplicates_min_words
        duplicates, signed, group = set(dropped(self.folder, "exact", rank).tolist()), [], []
        with (target / f"{rank:05}.bin").open("wb") as file:
            for number, raw in enumerate(texts(self.folder / "clean" / f"{rank:05}.txt")):
                if number in duplicates or words_in(words := minhash.compared(raw)) < shortest:
                    continue
                signed.append(number)
                group.append(minhash.signature(words))
                if len(group) == minhash.GROUP:
                    file.write(minhash.Signatures.group(group, rows))
                    group = []
            if group:
                file.write(minhash.Signatures.group(group, rows))
        np.save(target / f"{rank:05}.npy", np.array(signed, np.int64))
        (target / f"{rank:05}.json").write_text(json.dumps({"documents": len(signed)}))


def _first_signatures(folder: Path, tasks: int) -> np.ndarray:
    """(tasks + 1,): the number of each shard's first signature, and the number of signatures."""
    return np.cumsum([0, *(counts(folder / "sign", rank)["documents"] for rank in range(tasks))])


class Candidates(PipelineStep):
    """Pairs the documents of all shards that share a band's key, among the keys of a range; the later document comes first. In a group of
    many, each is paired only with the first and the previous one: a text that occurs a million times would give too many pairs."""

    type, name = "DUPLICATES", "candidates"

    def __init__(self, folder: Path, tasks: int, threshold: float):
        super().__init__()
        self.folder, self.tasks, self.rows = folder, tasks, rows_of(threshold)

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "candidates").mkdir(exist_ok=True)
        of = world_size // (minhash.PERMUTATIONS // self.rows)
        band, part = divmod(rank, of)
        first, keys, numbers = _first_signatures(self.folder, self.tasks), [], []
        for shard in range(self.tasks):
            shard_keys = minhash.Signatures(self.folder / "sign" / f"{shard:05}.bin", self.rows).band(band)
            selected = np.flatnonzero(_in_range(shard_keys, part, of))
            keys.append(shard_keys[selected])
            numbers.append(selected + first[shard])
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
    """Keeps the candidates with the later document in this shard of which enough of the signatures' 128 numbers agree."""

    type, name = "DUPLICATES", "compared"

    def __init__(self, folder: Path, threshold: float):
        super().__init__()
        self.folder, self.threshold, self.rows = folder, threshold, rows_of(threshold)

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "verify").mkdir(exist_ok=True)
        first = _first_signatures(self.folder, world_size)
        pairs = np.unique(_rows_between(self.folder / "candidates", first[rank], first[rank + 1]), axis=0)
        similar = [np.empty((0, 2), np.int64)]
        for begin in range(0, len(pairs), PAIRS):
            some = pairs[begin : begin + PAIRS]
            agree = (self._signatures(some[:, 0], first) == self._signatures(some[:, 1], first)).mean(1)
            similar.append(some[agree >= self.threshold])
        np.save(target / f"{rank:05}.npy", np.concatenate(similar))

    def _signatures(self, numbers: np.ndarray, first: np.ndarray) -> np.ndarray:
        """(n, 128) of documents of any shard, in any order."""
        wanted, inverse = np.unique(numbers, return_inverse=True)
        signatures = []
        for shard in np.unique(np.searchsorted(first, wanted, "right") - 1):
            in_shard = wanted[(wanted >= first[shard]) & (wanted < first[shard + 1])] - first[shard]
            signatures.append(minhash.Signatures(self.folder / "sign" / f"{shard:05}.bin", self.rows).of(in_shard))
        return np.concatenate(signatures)[inverse.ravel()]


class Choose(PipelineStep):
    """Drops, in the order of the text, each document that is similar to an earlier one that stays. Runs as one process, which holds a byte
    per document."""

    type, name = "DUPLICATES", "chosen"

    def __init__(self, folder: Path, tasks: int):
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / "near").mkdir(exist_ok=True)
        first = _first_signatures(self.folder, self.tasks)
        gone = np.zeros(first[-1], bool)
        for shard in range(self.tasks):
            pairs = np.load(self.folder / "verify" / f"{shard:05}.npy")
            for later, earlier in _blocks(pairs):
                if not gone[earlier]:
                    gone[later] = True
            signed = np.load(self.folder / "sign" / f"{shard:05}.npy")
            np.save(target / f"{shard:05}.npy", signed[gone[first[shard] : first[shard + 1]]])


def _blocks(pairs: np.ndarray) -> Iterator[list[int]]:
    """The pairs as Python integers, which are read ten times as fast; they are converted block by block."""
    for begin in range(0, len(pairs), PAIRS):
        yield from pairs[begin : begin + PAIRS].tolist()
