"""The encoding of a corpus with shards: one task per shard, one process with one thread per core."""

import hashlib
import json
import shutil
from pathlib import Path

from datatrove.pipeline.base import PipelineStep

from components.params import Params
from components.stages.closure import fingerprint
from components.text import corpora, tokenizer
from components.text.corpora.shards.executor import link, runner, workplace
from components.text.encode import SPLITS, stem
from components.text.encode.splits import encode_split
from components.text.tokenizer import Tokenizer

FILES = ("bin", "segments.npy", "documents.npy")


class Encode(PipelineStep):
    """Encodes all splits of one shard."""

    type, name = "TOKENIZER", "ids"

    def __init__(self, folder: Path, corpus: Path, trained: Path, dtype: str):
        super().__init__()
        self.folder, self.corpus, self.trained, self.dtype = folder, corpus, trained, dtype

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        (target := self.folder / f"{rank:05}").mkdir(exist_ok=True)
        tokens, counts = tokenizer.load(self.trained), {}
        for split in SPLITS:
            documents = corpora.read_file(corpora.files(self.corpus, split)[rank])
            counts[split] = encode_split(documents, split, tokens, target, self.dtype, 1)
        (target / "counts.json").write_text(json.dumps(counts))


def encode_shards(params: Params, name: str, corpus: Path, trained: Tokenizer, folder: Path, dtype: str) -> dict:
    """Write the shards of all splits to the folder, in the order of the text; return the counts. Raise SesameError like `runner`.

    The hash of a split is that of its shards' concatenated hashes. A shard of the text may give several shards of ids, or none.
    """
    tasks = len(corpora.files(corpus, "train"))
    work = workplace("encoded", name, _key(corpus, trained))
    with runner(params.text, work, f"encodings.{name}", __name__) as run:
        run("encode", [Encode(work, corpus, Path("data/tokenizers", params.encodings[name].tokenizer), dtype)], tasks)
    by_task = [json.loads((work / f"{rank:05}" / "counts.json").read_text()) for rank in range(tasks)]
    counts = {}
    for split in SPLITS:
        shards = [
            (stem(work / f"{rank:05}", split, number), shard)
            for rank, of_task in enumerate(by_task)
            for number, shard in enumerate(of_task[split]["shards"])
        ]
        shards = [(files, shard) for files, shard in shards if shard["documents"]] or shards[:1]  # a split without text is one empty shard
        for number, (files, _) in enumerate(shards):
            for kind in FILES:
                link(Path(f"{files}.{kind}"), Path(f"{stem(folder, split, number)}.{kind}"))
        sums = {key: sum(of_task[split][key] for of_task in by_task) for key in ("tokens", "segments", "documents", "bytes")}
        digest = hashlib.sha256("".join(of_task[split]["sha256"] for of_task in by_task).encode()).hexdigest()
        counts[split] = sums | {"sha256": digest, "shards": [shard for _, shard in shards]}
    shutil.rmtree(work)
    return counts


def _key(corpus: Path, trained: Tokenizer) -> str:
    """Return a hash of everything that the ids depend on."""
    inputs = [(corpus / "card.json").read_bytes(), trained.path.read_bytes(), fingerprint(("components.text.encode.shards",)).encode()]
    return hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
