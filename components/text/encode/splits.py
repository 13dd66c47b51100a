"""The documents of a split as files of token ids."""

import hashlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from components.text import corpora
from components.text.encode import stem
from components.text.tokenizer import CLS, SEP, Tokenizer

DOCUMENTS_AT_ONCE = 10_000
SHARD_TOKENS = 2**27
"""A shard ends after the group of documents that reaches this size, 256 MiB in 16 bit. A masked LM holds the boundaries of one shard in
memory, a causal LM three numbers per document of the shards that it has read in the epoch."""


class ShardFiles:
    """The files of a shard while it is written; memory holds its boundaries."""

    def __init__(self, stem: Path):
        self.stem, self.file = stem, open(f"{stem}.bin", "wb")  # noqa: SIM115, closed by `close`
        self.size, self.segments, self.documents = 0, [np.empty((0, 2), np.int64)], [np.zeros(1, np.int64)]

    def add(self, flat: np.ndarray, segments: np.ndarray, sizes: np.ndarray) -> None:
        """Append documents: ids (n,), segments (m, 2) counted from the first id, and the number of segments of each document."""
        flat.tofile(self.file)
        self.segments.append(segments + self.size)
        self.documents.append(self.documents[-1][-1] + np.cumsum(sizes))
        self.size += len(flat)

    def close(self) -> dict[str, int]:
        """Write the boundaries and return the counts."""
        self.file.close()
        segments, documents = np.concatenate(self.segments), np.concatenate(self.documents)
        np.save(f"{self.stem}.segments.npy", segments)
        np.save(f"{self.stem}.documents.npy", documents)
        return {"tokens": self.size, "segments": len(segments), "documents": len(documents) - 1}


def with_specials(ids: list[list[int]], sizes: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids of segments, number of segments per document -> ids with `[CLS]` before each document and `[SEP]` after each segment, (n,),
    and the positions of each segment's first id and its `[SEP]`, (segments, 2)."""
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    document = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(lengths + 1) + document  # with all [SEP]s and [CLS]s before
    starts = ends - lengths
    flat = np.empty(int(lengths.sum()) + len(ids) + len(sizes), dtype)
    openings = starts[np.cumsum(sizes) - sizes] - 1
    flat[openings], flat[ends] = CLS, SEP
    text = np.ones(len(flat), bool)
    text[openings] = text[ends] = False
    flat[text] = np.fromiter(chain.from_iterable(ids), dtype, int(lengths.sum()))
    return flat, np.stack([starts, ends], 1)


def encode_split(documents: Iterator[corpora.Document], split: str, tokens: Tokenizer, folder: Path, dtype: str, threads: int) -> dict:
    """Write the shards of a split; return its counts."""
    num_bytes, digest = 0, hashlib.sha256()
    shards, files = [], ShardFiles(stem(folder, split, 0))  # a split without text is one empty shard
    while group := list(islice(documents, DOCUMENTS_AT_ONCE)):
        if files.size >= SHARD_TOKENS:
            shards.append(files.close())
            files = ShardFiles(stem(folder, split, len(shards)))
        # segments of many documents in one call, which sentencepiece distributes over its threads
        texts = list(chain.from_iterable(group))
        sizes = np.fromiter(map(len, group), np.int64, len(group))
        flat, segments = with_specials(tokens.encode(texts, threads), sizes, dtype)
        files.add(flat, segments, sizes)
        digest.update(flat)
        num_bytes += len("".join(texts).encode()) + len(texts)  # with line ends, as `Tokenizer.byte_lengths` counts
    shards.append(files.close())
    counts = {key: sum(shard[key] for shard in shards) for key in shards[0]}
    return counts | {"bytes": num_bytes, "sha256": digest.hexdigest(), "shards": shards}
