"""Inverse problems: pairs that are easy to make one way and hard to find the other way, and how an answer is checked.

Integrals are made as Lample and Charton (2020, section 4.1) make them backward: a function is drawn and differentiated by sympy; the
derivative is the problem, the function the solution. Both are words in prefix notation, `mul x cos x`, integers digit by digit behind
their sign, `int+ 1 2`. Here trees are drawn by splitting the number of their operators at random, not uniformly over all trees.
"""

import hashlib
from collections.abc import Iterator
from functools import reduce
from io import BytesIO

import numpy as np
import sympy

from components import params
from components.core.errors import SesameError
from components.text.sources.file import SourceFile

X = sympy.Symbol("x")
UNARY = {"sin": sympy.sin, "cos": sympy.cos, "exp": sympy.exp, "log": sympy.log}
BINARY = {"add": sympy.Add, "mul": sympy.Mul, "pow": sympy.Pow, "div": lambda a, b: a / b}
LARGEST = 9
"""Integer that is drawn; derivatives have larger ones."""
POWERS = (2, 3)
LONGEST = 40
"""Words of a problem or a solution; longer ones are left out."""
TRIES = 2000
"""In a row without a problem that is new: a small number of operators has only so many functions."""
PLACES = np.array([0.37 + 0.21j, 1.13 - 0.44j, 0.81 + 0.93j, 1.71 + 0.29j])
"""Where two functions are compared: off the real axis, where logarithms and roots have values, too."""
ONE_IN = 10
"""Problem in so many that is held out."""


def open_files(source: params.SyntheticSource) -> Iterator[SourceFile]:
    """Two files of as many lines, problems and solutions. Raises SesameError where there are not so many problems."""
    pairs = list(drawn(source))
    for name, side in (("problems", 0), ("solutions", 1)):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        yield SourceFile(f"{source.shown}: {name}", lambda content=content: BytesIO(content))


def drawn(source: params.SyntheticSource) -> Iterator[tuple[str, str]]:
    """(problem, solution), each problem once. Whether one is held out is in its text, so that the two parts share none."""
    rng, seen, tried = np.random.default_rng(source.seed), set(), 0
    while len(seen) < source.pairs:
        if (tried := tried + 1) > TRIES:
            raise SesameError(
                f"{source.shown}: no new problem in {TRIES:,} tries after {len(seen):,} of {source.pairs:,}; "
                "ask for fewer pairs or for more operators"
            )
        # of all antiderivatives the one without a constant behind it
        _, solution = function(rng, int(rng.integers(1, source.operators + 1))).as_independent(X, as_Add=True)
        try:
            problem, answer = written(sympy.diff(solution, X)), written(solution)
        except KeyError:  # an infinity, the number e
            continue
        held_out = int.from_bytes(hashlib.sha256(problem.encode()).digest()[:4]) % ONE_IN == 0
        if problem in seen or held_out != (source.part == "held_out") or max(len(text.split()) for text in (problem, answer)) > LONGEST:
            continue
        if right(problem, answer):  # not where values are too large to be compared
            seen.add(problem)
            tried = 0
            yield problem, answer


def function(rng: np.random.Generator, operators: int) -> sympy.Expr:
    """A function of x with so many operators, drawn."""
    if not operators:
        return X if rng.random() < 0.7 else sympy.Integer(int(rng.integers(1, LARGEST + 1)))
    kind = rng.choice(["unary", "power", "add", "mul"], p=[0.35, 0.15, 0.25, 0.25])
    if kind == "unary":
        return UNARY[rng.choice(list(UNARY))](function(rng, operators - 1))
    if kind == "power":
        return function(rng, operators - 1) ** int(rng.choice(POWERS))
    left = int(rng.integers(operators))
    return BINARY[kind](function(rng, left), function(rng, operators - 1 - left))


def written(expression: sympy.Expr) -> str:
    """In words. Raises KeyError for what these have no word for."""
    if expression == X:
        return "x"
    if isinstance(expression, sympy.Integer):
        return " ".join(["int+" if expression >= 0 else "int-", *str(abs(int(expression)))])
    if isinstance(expression, sympy.Rational):
        return f"div {written(sympy.Integer(expression.p))} {written(sympy.Integer(expression.q))}"
    name = {sympy.Add: "add", sympy.Mul: "mul", sympy.Pow: "pow"}.get(expression.func)
    if name:
        return reduce(lambda one, other: f"{name} {one} {other}", map(written, expression.args))
    return f"{ {function: name for name, function in UNARY.items()}[expression.func] } {written(expression.args[0])}"


def read(text: str) -> sympy.Expr:
    """Back from words. Raises ValueError for what is no function."""
    words = text.split()

    def operand() -> sympy.Expr:
        if not words:
            raise ValueError("the text ends in the middle")
        word = words.pop(0)
        if word == "x":
            return X
        if word in ("int+", "int-"):
            digits = ""
            while words and words[0].isdigit():
                digits += words.pop(0)
            return sympy.Integer((-1 if word == "int-" else 1) * int(digits))
        if word in UNARY:
            return UNARY[word](operand())
        if word in BINARY:
            return BINARY[word](operand(), operand())
        raise ValueError(f"{word!r} is no word of these")

    made = operand()
    if words:
        raise ValueError(f"{' '.join(words)!r} stands behind the end")
    return made


def right(problem: str, answer: str) -> bool:
    """Whether an answer solves a problem, whatever form it has: its derivative has the problem's values."""
    try:
        found, asked = (sympy.lambdify(X, expression, "numpy") for expression in (sympy.diff(read(answer), X), read(problem)))
        with np.errstate(all="ignore"):
            one, other = (np.asarray(made(PLACES), complex) * np.ones(len(PLACES)) for made in (found, asked))
    except (ValueError, TypeError, ArithmeticError, AttributeError, NameError, RecursionError):
        return False  # no function, or one without values
    return bool(np.isfinite(one).all() and np.isfinite(other).all() and np.allclose(one, other, rtol=1e-6, atol=1e-9))
