"""Inverse problems: pairs that are easy to generate in one direction and hard to solve in the other, and the check of an answer.

Integrals follow the backward generation of Lample and Charton (2020, section 4.1): a random function is differentiated by sympy; the
derivative is the problem, the function the solution. Both are words in prefix notation, `mul x cos x`, with integers as a sign and
digits, `int+ 1 2`. Here trees are sampled by splitting their number of operators at random, not uniformly over all trees.
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
"""Largest integer that is sampled; derivatives have larger ones."""
POWERS = (2, 3)
LONGEST = 40
"""Maximum words of a problem or a solution; longer ones are left out."""
TRIES = 2000
"""Attempts in a row without a new problem before giving up: few operators give few functions."""
POINTS = np.array([0.37 + 0.21j, 1.13 - 0.44j, 0.81 + 0.93j, 1.71 + 0.29j])
"""Points at which two functions are compared: off the real axis, where logarithms and roots are defined, too."""
ONE_IN = 10
"""One problem in so many is held out."""


def open_files(source: params.SyntheticSource) -> Iterator[SourceFile]:
    """Two parallel files, problems and solutions. Raise SesameError if there are too few problems."""
    pairs = list(generate_pairs(source))
    for name, side in (("problems", 0), ("solutions", 1)):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        yield SourceFile(f"{source.shown}: {name}", lambda content=content: BytesIO(content))


def generate_pairs(source: params.SyntheticSource) -> Iterator[tuple[str, str]]:
    """(problem, solution), each problem once. A hash of the problem decides whether it is held out, so the two parts share none."""
    rng, seen, tried = np.random.default_rng(source.seed), set(), 0
    while len(seen) < source.pairs:
        if (tried := tried + 1) > TRIES:
            raise SesameError(
                f"{source.shown}: no new problem in {TRIES:,} tries after {len(seen):,} of {source.pairs:,}; "
                "ask for fewer pairs or for more operators"
            )
        # of all antiderivatives the one without an additive constant
        _, solution = random_function(rng, int(rng.integers(1, source.operators + 1))).as_independent(X, as_Add=True)
        try:
            problem, answer = to_words(sympy.diff(solution, X)), to_words(solution)
        except KeyError:  # an infinity, the number e
            continue
        held_out = int.from_bytes(hashlib.sha256(problem.encode()).digest()[:4]) % ONE_IN == 0
        if problem in seen or held_out != (source.part == "held_out") or max(len(text.split()) for text in (problem, answer)) > LONGEST:
            continue
        if solves(problem, answer):  # false if values are too large to be compared
            seen.add(problem)
            tried = 0
            yield problem, answer


def random_function(rng: np.random.Generator, operators: int) -> sympy.Expr:
    """A random function of x with a number of operators."""
    if not operators:
        return X if rng.random() < 0.7 else sympy.Integer(int(rng.integers(1, LARGEST + 1)))
    kind = rng.choice(["unary", "power", "add", "mul"], p=[0.35, 0.15, 0.25, 0.25])
    if kind == "unary":
        return UNARY[rng.choice(list(UNARY))](random_function(rng, operators - 1))
    if kind == "power":
        return random_function(rng, operators - 1) ** int(rng.choice(POWERS))
    left = int(rng.integers(operators))
    return BINARY[kind](random_function(rng, left), random_function(rng, operators - 1 - left))


def to_words(expression: sympy.Expr) -> str:
    """An expression as words. Raise KeyError if a part has no word."""
    if expression == X:
        return "x"
    if isinstance(expression, sympy.Integer):
        return " ".join(["int+" if expression >= 0 else "int-", *str(abs(int(expression)))])
    if isinstance(expression, sympy.Rational):
        return f"div {to_words(sympy.Integer(expression.p))} {to_words(sympy.Integer(expression.q))}"
    name = {sympy.Add: "add", sympy.Mul: "mul", sympy.Pow: "pow"}.get(expression.func)
    if name:
        return reduce(lambda one, other: f"{name} {one} {other}", map(to_words, expression.args))
    return f"{ {function: name for name, function in UNARY.items()}[expression.func] } {to_words(expression.args[0])}"


def from_words(text: str) -> sympy.Expr:
    """The expression of words. Raise ValueError if they are not one."""
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

    expression = operand()
    if words:
        raise ValueError(f"{' '.join(words)!r} stands behind the end")
    return expression


def solves(problem: str, answer: str) -> bool:
    """Whether an answer in any form solves a problem: its derivative has the problem's values."""
    try:
        derivative, target = (
            sympy.lambdify(X, expression, "numpy") for expression in (sympy.diff(from_words(answer), X), from_words(problem))
        )
        with np.errstate(all="ignore"):
            one, other = (np.asarray(evaluate(POINTS), complex) * np.ones(len(POINTS)) for evaluate in (derivative, target))
    except (ValueError, TypeError, ArithmeticError, AttributeError, NameError, RecursionError):
        return False  # not a function, or undefined
    return bool(np.isfinite(one).all() and np.isfinite(other).all() and np.allclose(one, other, rtol=1e-6, atol=1e-9))
