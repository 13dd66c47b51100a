"""What a benchmark found, printed and kept in `.sesame/bench.json`: name, ours, theirs, ratio, unit, and what the other side is."""

import json
import time
from collections.abc import Callable
from pathlib import Path

FILE = Path(__file__).parents[2] / ".sesame/bench.json"


def best(*sides: Callable[[], object], rounds: int = 6) -> list[float]:
    """Seconds of each side, the best of alternating rounds after one to warm up: these machines are noisy."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for side, found in zip(sides, times, strict=True):
            started = time.perf_counter()
            side()
            found.append(time.perf_counter() - started)
    return [min(found[1:]) for found in times]


def record(name: str, ours: float, theirs: float, unit: str, peer: str) -> None:
    """`ours` and `theirs` in `unit`, of which more is better."""
    print(f"\n{name}: {ours:,.4g} {unit}, {ours / theirs:.2f} x {peer} ({theirs:,.4g})", flush=True)
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[name] = {"ours": ours, "theirs": theirs, "ratio": round(ours / theirs, 3), "unit": unit, "peer": peer}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
