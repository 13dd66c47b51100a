"""Inverse problems: pairs that are easy to generate in one direction and hard to solve in the other, and the check of an
answer.

One more problem is one new file `<problem>.py` with `pair(rng, operators) -> (problem, solution) | None` and
`solves(problem, answer) -> bool`, and its name in `SyntheticSource.problem`. It may have `is_new(solution) -> bool`, of
solutions that only the part `new_combinations` has, and a `LONGEST` of its own.
"""

import hashlib
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from time import monotonic
from types import ModuleType

import numpy as np

from components import params
from components.core.errors import SesameError
from components.text.sources.file import SourceFile

LONGEST = 40
"""Maximum words of a problem or a solution; longer ones are left out."""
TRIES = 2000
"""Attempts in a row without a new problem before giving up: few operators give few problems."""
ONE_IN = 10
"""One problem in so many is held out."""
SECONDS_PER_LINE = 20.0
"""How often it is said how many problems there are: sympy differentiates some 200 functions a second."""


def load(problem: str) -> ModuleType:
    """The module of a problem."""
    return import_module(f"components.text.sources.synthetic.{problem}")


def open_files(source: params.SyntheticSource) -> Iterator[SourceFile]:
    """Two parallel files, problems and solutions. Raise SesameError if there are too few problems."""
    pairs, next_line = [], monotonic() + SECONDS_PER_LINE
    for pair in generate_pairs(source):
        pairs.append(pair)
        if monotonic() > next_line:
            print(f"{source.shown}: {len(pairs):,} of {source.pairs:,} problems", flush=True)
            next_line = monotonic() + SECONDS_PER_LINE
    for name, side in (("problems", 0), ("solutions", 1)):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        yield SourceFile(f"{source.shown}: {name}", lambda content=content: BytesIO(content))


def generate_pairs(source: params.SyntheticSource) -> Iterator[tuple[str, str]]:
    """(problem, solution), each problem once. A hash of the problem decides whether it is held out, so the two parts
    share none."""
    kind, rng, seen, tried = load(source.problem), np.random.default_rng(source.seed), set(), 0
    longest, is_new = getattr(kind, "LONGEST", LONGEST), getattr(kind, "is_new", lambda _: False)
    while len(seen) < source.pairs:
        if (tried := tried + 1) > TRIES:
            raise SesameError(
                f"{source.shown}: no new problem in {TRIES:,} tries after {len(seen):,} of {source.pairs:,}; "
                "ask for fewer pairs or for more operators"
            )
        pair = kind.pair(rng, int(rng.integers(1, source.operators + 1)))
        if pair is None or pair[0] in seen or max(len(text.split()) for text in pair) > longest:
            continue
        held_out = int.from_bytes(hashlib.sha256(pair[0].encode()).digest()[:4]) % ONE_IN == 0
        part = "new_combinations" if is_new(pair[1]) else "held_out" if held_out else "training"
        if part != source.part:
            continue
        if kind.solves(*pair):  # of integrals: false if values are too large to be compared
            seen.add(pair[0])
            tried = 0
            yield pair
