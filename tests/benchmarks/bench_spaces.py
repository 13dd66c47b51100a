"""Vector spaces against VecMap, MUSE and faiss, which are only run: `make bench`.

The first two are no packages: clone `artetxem/vecmap` and `facebookresearch/MUSE` to `../peers` (or SESAME_PEERS). Where a peer is not
there, its benchmark is skipped with the reason.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from components import params
from components.embeddings import self_learning
from components.embeddings.maps import fit, normalise, unit
from components.embeddings.neighbours import nearest
from components.embeddings.retrieval import csls
from components.params.alignment import PRESETS

PEERS = Path(os.environ.get("SESAME_PEERS", Path(__file__).parents[3] / "peers"))
WORDS, WIDTH, SEEDS = (
    int(os.environ.get(f"SESAME_{name}", default)) for name, default in (("WORDS", 20_000), ("WIDTH", 300), ("SEEDS", 50))
)
THREADS = os.cpu_count() or 1
LIMIT = 600
"""Seconds after which VecMap is stopped: over 20,000 words a side it takes hours, over SESAME_WORDS=5000 it comes to its end."""


def peer(name: str, file: str) -> Path:
    if not (PEERS / name / file).exists():
        pytest.skip(f"{PEERS / name} is not there: clone the peer, which is only run")
    return (PEERS / name).resolve()


def clustered() -> tuple[np.ndarray, np.ndarray]:
    """Words in clusters, and the same words rotated with noise."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((WORDS // 80, WIDTH))[draw.integers(WORDS // 80, size=WORDS)] + 0.45 * draw.standard_normal((WORDS, WIDTH))
    turn = np.linalg.qr(draw.standard_normal((WIDTH, WIDTH)))[0]
    y = x @ turn + 0.9 * draw.standard_normal((WORDS, WIDTH))
    return x.astype(np.float32), y.astype(np.float32)


def write(path: Path, prefix: str, rows: np.ndarray) -> None:
    """word2vec's text form."""
    with path.open("w") as file:
        file.write(f"{len(rows)} {rows.shape[1]}\n")
        for i, row in enumerate(rows):
            file.write(f"{prefix}{i} {' '.join(f'{value:.6g}' for value in row)}\n")


def read(path: Path) -> np.ndarray:
    with path.open(errors="surrogateescape") as file:
        rows, width = map(int, file.readline().split())
        return np.array([line.split(" ")[1:] for line in file], dtype=np.float32).reshape(rows, width)


def p1(mapped: np.ndarray, fixed: np.ndarray, asked: np.ndarray) -> float:
    """P@1 with CSLS, words of the same number being translations."""
    a, b = torch.from_numpy(unit(mapped).astype(np.float32)), torch.from_numpy(unit(fixed).astype(np.float32))
    return float((nearest(a[asked], b, 1, csls(b, a, 10))[1][:, 0].numpy() == asked).mean())


def test_self_learning_to_convergence(tmp_path):
    """From few pairs, by the method of Artetxe et al. (2018b), each with its own defaults: VecMap waits 50 rounds for a gain, ours 5."""
    vecmap = peer("vecmap", "map_embeddings.py")
    torch.set_num_threads(THREADS)
    x, y = clustered()
    asked = np.arange(WORDS - 2000, WORDS)
    method = params.Method(name="own", **PRESETS["artetxe_2018b"])
    started = time.perf_counter()
    a, b = normalise(x), normalise(y)
    learned = self_learning.learn(a, b, np.stack([np.arange(SEEDS)] * 2, axis=1), method)
    mapped, fixed = fit(a, b, learned.rows, method).apply(a, b)
    ours = time.perf_counter() - started
    write(tmp_path / "x.vec", "a", x)
    write(tmp_path / "y.vec", "b", y)
    (tmp_path / "seeds.txt").write_text("".join(f"a{i} b{i}\n" for i in range(SEEDS)))
    log = tmp_path / "log.tsv"
    command = [sys.executable, "map_embeddings.py", "--semi_supervised", tmp_path / "seeds.txt", "--log", log, "-v"]
    started, precision = time.perf_counter(), "not known"
    with suppress(subprocess.TimeoutExpired):
        places = (tmp_path / name for name in ("x.vec", "y.vec", "x.out", "y.out"))
        subprocess.run([*command, *places], cwd=vecmap, check=True, timeout=LIMIT, capture_output=True)
        precision = f"{p1(read(tmp_path / 'x.out'), read(tmp_path / 'y.out'), asked):.3f}"
    whole, rounds = time.perf_counter() - started, [float(line.split("\t")[-1]) for line in log.read_text().splitlines()]
    own = f"{ours:.0f} s, {learned.rounds} rounds of {ours / learned.rounds:.2f} s, P@1 {p1(mapped, fixed, asked):.3f}"
    theirs = f"{whole:.0f} s with reading and writing, {len(rounds)} rounds of {np.mean(rounds):.2f} s, P@1 {precision}"
    print(
        f"\nself-learning, {WORDS} x {WORDS} x {WIDTH} from {SEEDS} pairs, {THREADS} threads: ours {own}; VecMap {theirs}: "
        f"{whole / ours:.1f}x{' at least' if precision == 'not known' else ''}"
    )


def test_precision_as_muse_counts_it(tmp_path):
    """MUSE's evaluation on our mapped vectors against ours on the same: CSLS and nearest neighbours, P@1, 5 and 10."""
    muse = peer("MUSE", "src/evaluation/word_translation.py")
    torch.set_num_threads(THREADS)
    x, y = clustered()
    method = params.Method(name="own", **PRESETS["xing_2015"])
    mapped, fixed = fit(normalise(x), normalise(y), np.stack([np.arange(1000)] * 2, axis=1), method).apply(normalise(x), normalise(y))
    asked = np.arange(WORDS - 2000, WORDS)
    np.savez(tmp_path / "spaces.npz", x=mapped, y=fixed)
    (tmp_path / "test.txt").write_text("".join(f"a{i} b{i}\n" for i in asked))
    (tmp_path / "theirs.py").write_text(MUSE)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, tmp_path / "theirs.py", muse, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(THREADS)},
    )
    whole = time.perf_counter() - started
    theirs = {
        line.split()[0]: [float(value) for value in line.split()[1:]]
        for line in done.stdout.splitlines()
        if line.startswith(("nn ", "csls "))
    }
    started = time.perf_counter()
    a, b = map(torch.from_numpy, (mapped, fixed))
    ours = {}
    for name, price in (("nn", None), ("csls", csls(b, a, 10))):
        best = nearest(a[asked], b, 10, price)[1].numpy() == asked[:, None]
        ours[name] = [100 * best[:, :k].any(axis=1).mean() for k in (1, 5, 10)]
    own = time.perf_counter() - started
    print(f"\nP@1, 5, 10 of {len(asked)} queries: ours {ours} in {own:.1f} s, MUSE's {theirs} in {whole:.1f} s")
    for name, figures in theirs.items():
        np.testing.assert_allclose(ours[name], figures, atol=1e-9)


MUSE = """
import sys
from pathlib import Path
import numpy as np, torch
sys.path.insert(0, sys.argv[1])
from src.evaluation.word_translation import get_word_translation_accuracy
spaces = np.load(Path(sys.argv[2], "spaces.npz"))
x, y = torch.from_numpy(spaces["x"]), torch.from_numpy(spaces["y"])
ids = [{f"{side}{i}": i for i in range(len(rows))} for side, rows in (("a", x), ("b", y))]
for method in ("nn", "csls_knn_10"):
    found = get_word_translation_accuracy("xx", ids[0], x, "yy", ids[1], y, method, str(Path(sys.argv[2], "test.txt")))
    print(method.split("_")[0], *(value for _, value in found))
"""


def test_csls_lookups():
    """Lookups a second, the prices of all targets among them, against an exact search by faiss with numpy for the prices."""
    faiss = pytest.importorskip("faiss", reason="pip install faiss-cpu, the peer")
    torch.set_num_threads(THREADS)
    faiss.omp_set_num_threads(THREADS)
    x, y = (unit(side) for side in clustered())
    queries = x[:5000]

    def own() -> np.ndarray:
        a, b = map(torch.from_numpy, (x, y))
        return nearest(a[:5000], b, 10, csls(b, a, 10))[1].numpy()

    def theirs() -> np.ndarray:
        crowded = faiss.IndexFlatIP(WIDTH)
        crowded.add(x)
        price = crowded.search(y, 10)[0].mean(axis=1) / 2
        index = faiss.IndexFlatIP(WIDTH + 1)  # a target's price as one more dimension
        index.add(np.hstack([y, -price[:, None]]).astype(np.float32))
        return index.search(np.hstack([queries, np.ones((len(queries), 1), np.float32)]), 10)[1]

    seconds, found = {}, {}
    for _ in range(2):
        for name, side in (("own", own), ("faiss", theirs)):
            started = time.perf_counter()
            found[name] = side()
            seconds[name] = min(seconds.get(name, 1e9), time.perf_counter() - started)
    agree = (found["own"] == found["faiss"]).mean()
    print(
        f"\nCSLS of 5000 words among {WORDS}: {5000 / seconds['own']:,.0f} lookups/s, "
        f"{seconds['faiss'] / seconds['own']:.2f}x of faiss-flat and numpy ({5000 / seconds['faiss']:,.0f}); {agree:.4f} the same"
    )
