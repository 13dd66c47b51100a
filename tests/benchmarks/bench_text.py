"""Text beyond memory: each step's speed beside its limit, memory, planted duplicates found, the same bytes from one process and two.

Real text (`SESAME_TEXT`, files by a glob, gzipped or not; by default what the pipeline has built), said again with noise until it is
`SESAME_GB` large (0.1): words are exchanged until nothing of it repeats. Into it go copies, exact ones and such with a known share of words
changed. Every document begins with its number, by which it is known what became of it.
"""

import glob
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
import psutil
import pytest

from components.text import corpora, tokenizer
from components.text.corpora.cleaning import SHINGLE
from tests.benchmarks.record import record
from tests.conftest import tiny_params

ROOT = Path(__file__).parents[2]
SIZE = float(os.environ.get("SESAME_GB", 0.1)) * 1e9
SHARDS = 16
DOCUMENT = 2000
"""Characters, about: what a page of the web has."""
NOISE = 0.4
"""Of the words of a text that is said again, exchanged: a thirteenth of the shingles stays."""
COPIES = {"exact": 0.0, "1 % of words": 0.01, "2 % of words": 0.02, "5 % of words": 0.05, "9 % of words": 0.09}
"""Of every hundred documents one each is followed, some way behind, by a copy with such a share of words changed."""


def real() -> Iterator[str]:
    """Documents of about `DOCUMENT` characters."""
    paths = glob.glob(os.environ.get("SESAME_TEXT", str(ROOT / "data/corpora/*/train.txt")))
    if not paths:
        pytest.skip("no text: `sesame run corpus`, or name some by SESAME_TEXT")
    for path in sorted(paths):
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
            own, size = [], 0
            for line in lines:
                own, size = [*own, line.strip()], size + len(line)
                if size > DOCUMENT:
                    yield " ".join(own)
                    own, size = [], 0


def changed(words: list[str], share: float, draw: np.random.Generator, others: list[str]) -> list[str]:
    """With a share of the words exchanged for others'."""
    places = np.flatnonzero(draw.random(len(words)) < share)
    words = list(words)
    for place, other in zip(places.tolist(), draw.integers(len(others), size=len(places)).tolist(), strict=True):
        words[place] = others[other]
    return words


def make(path: Path) -> dict[str, dict[str, float]]:
    """Write the text, a document a line; of each kind of copies how alike (Jaccard, of shingles) each is to what it repeats."""
    draw, size, number, waiting, alike = np.random.default_rng(0), 0, 0, [], {kind: {} for kind in COPIES}
    kinds, others = list(COPIES), ["the"] * 1000
    with path.open("w") as file:
        for turn in range(10**6):
            for text in real():
                words = text.split()
                if turn:
                    words = changed(words, NOISE, draw, others)
                others[number % 1000] = words[len(words) // 2]
                lines = [f"n{number} {' '.join(words)}"]
                if (kind := number % 100) < len(kinds):
                    copy = words if kind == 0 else changed(words, COPIES[kinds[kind]], draw, others)
                    name = f"n{number}" if kind == 0 else f"c{kind}.{number}"
                    alike[kinds[kind]][name] = jaccard([f"n{number}", *words], [name, *copy])
                    waiting.append(f"{name} {' '.join(copy)}")
                if len(waiting) > 2000:
                    lines.append(waiting.pop(0))
                file.write("".join(f"{line}\n" for line in lines))
                size += sum(map(len, lines))
                number += 1
                if size > SIZE:
                    file.write("".join(f"{line}\n" for line in waiting))
                    return alike
    raise AssertionError("unreachable")


def jaccard(a: list[str], b: list[str]) -> float:
    sets = [{tuple(own[i : i + SHINGLE]) for i in range(len(own) - SHINGLE + 1)} for own in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


class Watch(threading.Thread):
    """The most memory of one process and its CPU seconds, of all below this one, twenty times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.cpu, self.ended = 0, {}, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    self.most = max(self.most, process.memory_info().rss)
                    times = process.cpu_times()
                    self.cpu[process.pid, process.create_time()] = times.user + times.system
                except psutil.Error:
                    continue


def stage(module: str, name: str, workers: int, near: float | None = 0.8) -> dict:
    """Run one as a command: seconds, CPU seconds, most memory of a process in MiB, and seconds of its steps."""
    raw = tiny_params()
    source = {"source": {"kind": "files", "paths": ["text.txt"]}, "reader": {"format": "text", "document": "line"}}
    raw["corpora"] = {
        key: {"language": "en", "licence": "none", "parts": [source], "shards": SHARDS, "cleaning": {"near_duplicates": own}}
        for key, own in (("near", 0.8), ("exact", None))
    } | {"base": {**raw["corpora"]["base"]}}
    raw["tokenizers"]["large"] = {"corpus": "near", "vocab_size": 8192, "sample_sentences": 200_000}
    raw["encodings"]["large"] = {"corpus": "near", "tokenizer": "large"}
    raw["text"] = {"workers": workers}
    Path("params.yaml").write_text(json.dumps(raw))
    watch, started = Watch(), time.perf_counter()
    watch.start()
    environment = os.environ | {"SESAME_TRACKING": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", module, name], env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    watch.ended.set()
    watch.join()
    assert done.returncode == 0, done.stderr
    steps = {step: float(took) for step, took in re.findall(r"^(\w+): \d+ of \d+ tasks in ([\d.]+) s", done.stdout, re.M)}
    return {"seconds": seconds, "cpu": sum(watch.cpu.values()), "mib": watch.most / 2**20, "steps": steps}


def hashes(folder: str) -> dict[str, str]:
    return {path.name: hashlib.file_digest(path.open("rb"), "sha256").hexdigest() for path in sorted(Path(folder).glob("*"))}


def test_text(tmp_path, monkeypatch):
    """All of it in one go, since each step reads what the one before it wrote."""
    monkeypatch.chdir(tmp_path)
    cores = os.cpu_count() or 1
    started = time.perf_counter()
    alike = make(Path("text.txt"))
    size = Path("text.txt").stat().st_size / 1e6
    with open("text.txt", "rb") as lines:
        documents = sum(1 for _ in lines)
    print(f"\n{size:,.0f} MB, {documents:,} documents, made in {time.perf_counter() - started:.0f} s; load {os.getloadavg()[0]:.1f}")

    started = time.perf_counter()
    with open("text.txt", "rb") as text, open("copy.txt", "wb") as copy:
        while chunk := text.read(1 << 20):
            copy.write(chunk)
        os.fsync(copy.fileno())
    disk = size / (time.perf_counter() - started)
    Path("copy.txt").unlink()

    exact = stage("components.text.corpora", "exact", cores)
    found = stage("components.text.corpora", "near", cores)
    for name, run, target in (("without near duplicates", exact, 20), ("with near duplicates", found, 5)):
        each = ", ".join(f"{step} {size / took:,.0f}" for step, took in run["steps"].items() if took > 0.3)
        print(
            f"corpus {name}: {size / run['seconds']:.1f} MB/s with {cores} workers (MB/s of steps: {each}), {run['mib']:.0f} MiB a process"
        )
        record(f"corpus of shards, {name}", size / run["cpu"], target, "MB/s a core", "what was asked")
    record("corpus of shards, memory", 2048 / max(exact["mib"], found["mib"]), 1, "of 2 GiB / a worker's", "what was asked")
    record("disk", disk, size / found["seconds"], "MB/s", "corpus with near duplicates")
    several = hashes("data/corpora/near")
    stage("components.text.corpora", "near", 1)
    assert hashes("data/corpora/near") == several, "one worker writes other bytes"
    print(f"one worker and {cores}: the same {len(several)} files, byte for byte")

    left = Counter(document[0].split(maxsplit=1)[0] for split in corpora.SPLITS for document in corpora.read("data/corpora/near", split))
    dropped = corpora.card("data/corpora/near")["dropped"]
    assert dropped["duplicates"] == len(alike.pop("exact")), "exact copies"
    for kind, own in alike.items():
        gone, likeness = sum(name not in left for name in own), np.array(list(own.values()))
        print(f"{kind} changed: Jaccard {likeness.mean():.3f} +- {likeness.std():.3f}, {gone / len(own):.4f} of {len(own):,} dropped")
    planted = {name: likeness for own in alike.values() for name, likeness in own.items()}
    for low, high in ((0.85, 1), (0.8, 0.85), (0.75, 0.8), (0, 0.75)):
        some = [name for name, likeness in planted.items() if low <= likeness < high]
        print(f"Jaccard {low} to {high}: {sum(name not in left for name in some):,} of {len(some):,} dropped")
    gone = {name for name in planted if name not in left}
    true = sum(planted[name] >= 0.8 for name in gone)
    print(f"{dropped['near_duplicates']:,} near duplicates dropped: {len(gone):,} are planted, {true:,} of these with Jaccard .8 or more")

    trained = stage("components.text.tokenizer", "large", cores)
    encoded = stage("components.text.encode", "large", cores)
    bytes_read = sum(corpora.card("data/corpora/near")["splits"][split]["bytes"] for split in corpora.SPLITS) / 1e6
    print(f"tokenizer on a sample of 200,000: {trained['seconds']:.0f} s, {bytes_read / trained['seconds']:.1f} MB/s of text read")
    own = tokenizer.load(Path("data/tokenizers/large"))
    texts = list(islice(chain.from_iterable(corpora.read("data/corpora/near", "train")), 20_000))
    some = sum(len(text.encode()) for text in texts) / 1e6
    wall, cpu = time.perf_counter(), time.process_time()
    own.encode(texts, cores)
    wall, cpu = some / (time.perf_counter() - wall), some / (time.process_time() - cpu)
    record("encoding of shards, all cores", bytes_read / encoded["steps"]["encode"], wall, "MB/s", "sentencepiece alone on all cores")
    record("encoding of shards, a core", bytes_read / encoded["cpu"], cpu, "MB/s a core", "sentencepiece alone")
    print(f"encoding: {encoded['mib']:.0f} MiB a process")
