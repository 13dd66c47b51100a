"""`python -m components.encode NAME`: text and tokenizer -> data/encoded/<name>/."""

import hashlib
import time
from itertools import chain, islice
from pathlib import Path

import numpy as np

from components import corpora, stage, tokenizer
from components.encode import SPLITS
from components.errors import SesameError
from components.params import Params
from components.tokenizer import CLS, SEP, Tokenizer
from components.tracking import Run

DOCUMENTS_AT_ONCE = 10_000


def encode_split(source: Path, split: str, tokens: Tokenizer, folder: Path, dtype: str) -> dict:
    """Write one split's ids and boundaries; returns its counts. Memory holds the boundaries and one batch of documents."""
    segments: list[tuple[int, int]] = []  # of each the first token, and the [SEP] after the last one
    documents = [0]  # of each the first segment, and at last the number of segments
    size, num_bytes, digest = 0, 0, hashlib.sha256()
    with open(folder / f"{split}.bin", "wb") as file:
        documents_left = corpora.read(source, split)
        while group := list(islice(documents_left, DOCUMENTS_AT_ONCE)):
            # The segments of many documents in one call, which sentencepiece divides over its threads.
            texts = list(chain.from_iterable(group))
            ids = iter(tokens.encode(texts, threads=2))
            num_bytes += sum(len(text.encode()) + 1 for text in texts)  # with its line end, as `Tokenizer.byte_lengths` counts
            flat: list[int] = []
            for document in group:
                flat.append(CLS)
                for _ in document:
                    start = size + len(flat)
                    flat += next(ids)
                    segments.append((start, size + len(flat)))
                    flat.append(SEP)
                documents.append(len(segments))
            raw = np.array(flat, dtype=dtype).tobytes()
            file.write(raw)
            digest.update(raw)
            size += len(flat)
    np.save(folder / f"{split}.segments.npy", np.array(segments, dtype=np.int64).reshape(-1, 2))
    np.save(folder / f"{split}.documents.npy", np.array(documents, dtype=np.int64))
    return {"tokens": size, "segments": len(segments), "documents": len(documents) - 1, "bytes": num_bytes, "sha256": digest.hexdigest()}


def encode(params: Params, name: str, run: Run) -> dict:
    """Write the encoding `name`: the splits, meta.json, and the tokenizer beside them. Raises SesameError where one to read is missing."""
    settings = params.encodings[name]
    trained = tokenizer.load(Path("data/tokenizers", settings.tokenizer))
    dtype = "uint16" if trained.vocab_size <= 2**16 else "uint32"
    started = time.perf_counter()
    with stage.output(Path("data/encoded", name)) as folder:
        folder.mkdir()
        corpus = Path("data/corpora", settings.corpus)
        counts = {split: encode_split(corpus, split, trained, folder, dtype) for split in SPLITS}
        if not counts["train"]["documents"]:
            raise SesameError(f"{corpus / 'train.txt'} has no text: nothing can be trained on it")
        trained.save(folder)
        stage.write_json(folder / "meta.json", {"dtype": dtype, "vocab_size": trained.vocab_size, **counts})
    megabytes = sum(count["bytes"] for count in counts.values()) / 1e6
    speed = megabytes / (time.perf_counter() - started)
    print(f"{counts['train']['tokens']:,} training tokens; {megabytes:.1f} MB at {speed:.1f} MB/s")
    return {**counts, "megabytes_per_second": round(speed, 2), "cost": {"tokens": sum(count["tokens"] for count in counts.values())}}


if __name__ == "__main__":
    stage.main("encode", encode, "encodings")
