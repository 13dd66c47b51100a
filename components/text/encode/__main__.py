"""`python -m components.text.encode NAME`: text and tokenizer -> data/encoded/<name>/."""

import os
import time
from importlib import import_module
from pathlib import Path

from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.params import Params
from components.stages import stage
from components.text import corpora, tokenizer
from components.text.encode import SPLITS
from components.text.encode.splits import encode_split


def encode(params: Params, name: str, run: Run) -> dict:
    """Write the encoding `name`: the splits, meta.json, and the tokenizer. Raise SesameError if an input is missing."""
    settings = params.encodings[name]
    trained = tokenizer.load(Path("data/tokenizers", settings.tokenizer))
    dtype = "uint16" if trained.vocab_size <= 2**16 else "uint32"
    started = time.perf_counter()
    with storage.output(Path("data/encoded", name)) as folder:
        folder.mkdir()
        corpus = Path("data/corpora", settings.corpus)
        if len(corpora.files(corpus, "train")) > 1:
            # by name: nothing else depends on it
            counts = import_module("components.text.encode.shards").encode_shards(params, name, corpus, trained, folder, dtype)
        else:
            threads = os.cpu_count() or 1
            counts = {split: encode_split(corpora.read(corpus, split), split, trained, folder, dtype, threads) for split in SPLITS}
        if not counts["train"]["documents"]:
            raise SesameError(f"{corpus / 'train.txt'} has no text: nothing can be trained on it")
        trained.save(folder)
        storage.write_json(folder / "meta.json", {"dtype": dtype, "vocab_size": trained.vocab_size, **counts})
    megabytes = sum(count["bytes"] for count in counts.values()) / 1e6
    speed = megabytes / (time.perf_counter() - started)
    print(f"{counts['train']['tokens']:,} training tokens; {megabytes:.1f} MB at {speed:.1f} MB/s")
    metrics = {split: {key: value for key, value in count.items() if key != "shards"} for split, count in counts.items()}
    return {**metrics, "megabytes_per_second": round(speed, 2), "cost": {"tokens": sum(count["tokens"] for count in counts.values())}}


if __name__ == "__main__":
    stage.main("encode", encode)
