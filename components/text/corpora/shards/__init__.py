"""Build a corpus as shards: any amount of text that the disk holds, by any number of processes or hosts, in bounded memory.

The steps are datatrove's (`PipelineStep`), which its executors run by tasks: a task is a shard of the text, or a range of hashes. What
comes out depends on `shards` and not on workers or executor. Each step reads and writes files in its own folder, and
finished tasks are not repeated: a run that was killed continues with the others.

    plan.py        which shard reads which bytes of which file
    steps.py       reading and cleaning; splits
    quality.py     datatrove's filters
    duplicates.py  exact and near duplicates across shards
    minhash.py     signatures of documents
    executor.py    processes of this machine, or Slurm's

    build -> clean -> exact -> sign -> candidates -> verify -> choose -> split -> data/corpora/<name>/train-00000-of-00008.txt ...
"""

import hashlib
import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

from components import params
from components.core.errors import format_counts
from components.core.storage import output, write_json, writing
from components.params import Params
from components.stages.closure import fingerprint
from components.text.corpora import SPLITS, writer
from components.text.corpora.shards import duplicates, plan, quality, steps
from components.text.corpora.shards.executor import link, runner, workplace


def build(all_params: Params, name: str, about: dict) -> dict:
    """Write the corpus `name` and return its card, which includes `about`.

    Raise SesameError if text is unreadable or none is left, a worker was killed, or nothing can be written.
    """
    corpus = all_params.corpora[name]
    portions = plan.portions(name, corpus)
    folder = workplace("corpora", name, _key(corpus, all_params.seed, portions))
    with writing(folder), runner(all_params.text, folder, f"corpora.{name}", __name__) as run:
        made, counts = folder / "shards", _steps(run, all_params, corpus, portions, folder)
        dropped = _dropped(counts, corpus.cleaning)
        documents = {split: sum(shard["splits"][split]["documents"] for shard in counts) for split in SPLITS}
        writer.check(name, documents, corpus.splits, dropped)
        words = Counter()
        for shard in counts:
            words.update(shard["words_by_language"])
        card = {"name": name} | about | {"dropped": dropped}
        if removed := sum((Counter(shard["sentences_removed"]) for shard in counts), Counter()):
            print(f"{name}: sentences removed within documents: {format_counts(removed)}", flush=True)
            card["sentences_removed"] = dict(removed)
        card |= {"words_by_language": words} if any(part.language for part in corpus.parts) else {}
        card |= {"shards": corpus.shards, "splits": {split: _sum([shard["splits"][split] for shard in counts]) for split in SPLITS}}
        with output(Path("data/corpora", name)) as written:
            written.mkdir()
            for file in made.glob("*.txt"):
                link(file, written / file.name)
            write_json(written / "card.json", card)
    shutil.rmtree(folder)
    return card


def _key(corpus: params.Corpus, seed: int, portions: list[list[plan.Portion]]) -> str:
    """A hash of all that the shards depend on: partial results of other settings, code or files are not reused."""
    sources = {f"components.text.sources.{part.source.kind}" for part in corpus.parts}
    readers = {f"components.text.corpora.readers.{kind}" for kind in ("text", "table")}
    code = fingerprint({"components.text.corpora.shards", *readers, *sources})
    whole = json.dumps([seed, corpus.settings(), code]) + repr(portions)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _steps(run, all_params: Params, corpus: params.Corpus, portions: list[list[plan.Portion]], folder: Path) -> list[dict]:
    """Run all steps in order; return the counts of the last one for each shard."""
    tasks, cleaning = corpus.shards, corpus.cleaning
    (folder / "plan").mkdir(exist_ok=True)
    for rank, shard in enumerate(portions):
        (folder / "plan" / f"{rank:05}.pickle").write_bytes(pickle.dumps(shard))
    reading = [steps.Read(folder, corpus), *quality.filters(cleaning.quality, corpus.language)]
    run("clean", [*reading, steps.Store(folder, cleaning, reading)], tasks)
    ranges = duplicates.ranges(folder, tasks)
    run("exact", [duplicates.Exact(folder, tasks)], ranges)
    if cleaning.near_duplicates is not None:
        run("sign", [duplicates.ByShard(folder), duplicates.Sign(folder, cleaning)], tasks)
        run("candidates", [duplicates.Candidates(folder, tasks, cleaning.near_duplicates)], duplicates.bands(cleaning) * ranges)
        run("verify", [duplicates.Verify(folder, cleaning.near_duplicates)], tasks)
        run("choose", [duplicates.Choose(folder, tasks)], 1)
    run("split", [duplicates.ByShard(folder), steps.Split(folder, corpus.splits, all_params.seed)], tasks)
    return [steps.counts(folder / "shards", rank) for rank in range(tasks)]


def _dropped(counts: list[dict], cleaning: params.Cleaning) -> dict[str, int]:
    dropped = Counter(short=0, duplicates=0, near_duplicates=0)
    for shard in counts:
        dropped.update(shard["dropped"])
    return dict(dropped)


def _sum(shards: list[dict]) -> dict:
    """The summed counts of a split; its hash is that of its shards' concatenated hashes."""
    digest = hashlib.sha256("".join(shard["sha256"] for shard in shards).encode()).hexdigest()
    return {key: sum(shard[key] for shard in shards) for key in ("documents", "segments", "words", "bytes")} | {"sha256": digest}
