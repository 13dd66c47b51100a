"""Integrals, by the backward generation of Lample and Charton (2020, section 4.1): a random function is differentiated by
sympy; the derivative is the problem, the function the solution.

Both are words in prefix notation, `mul x cos x`, with integers as a sign and digits, `int+ 1 2`. Here trees are sampled
by splitting their number of operators at random, not uniformly over all trees.
"""

from functools import lru_cache, reduce

import numpy as np
import sympy

X = sympy.Symbol("x")
UNARY = {"sin": sympy.sin, "cos": sympy.cos, "exp": sympy.exp, "log": sympy.log}
BINARY = {"add": sympy.Add, "mul": sympy.Mul, "pow": sympy.Pow, "div": lambda a, b: a / b}
LARGEST = 9
"""Largest integer that is sampled; derivatives have larger ones."""
POWERS = (2, 3)
POINTS = np.array([0.37 + 0.21j, 1.13 - 0.44j, 0.81 + 0.93j, 1.71 + 0.29j])
"""Points at which two functions are compared: off the real axis, where logarithms and roots are defined, too."""


def pair(rng: np.random.Generator, operators: int) -> tuple[str, str] | None:
    """A derivative and a function that it is of, with a number of operators; None where one can't be written."""
    # of all antiderivatives the one without an additive constant
    _, solution = random_function(rng, operators).as_independent(X, as_Add=True)
    try:
        return to_words(derivative(solution)), to_words(solution)
    except KeyError:  # an infinity, the number e
        return None


@lru_cache(2**16)  # small functions are drawn again and again, and each is checked after it was drawn
def derivative(function: sympy.Expr) -> sympy.Expr:
    return sympy.diff(function, X)


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
        both = derivative(from_words(answer)), from_words(problem)
        with np.errstate(all="ignore"):
            one, other = (values(expression) * np.ones(len(POINTS)) for expression in both)
    except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError, RecursionError):
        return False  # not a function, or undefined
    return bool(np.isfinite(one).all() and np.isfinite(other).all() and np.allclose(one, other, rtol=1e-6, atol=1e-9))


VALUES = {sympy.sin: np.sin, sympy.cos: np.cos, sympy.exp: np.exp, sympy.log: np.log, sympy.Pow: np.power}


def values(expression: sympy.Expr) -> np.ndarray:
    """The values of an expression at POINTS, complex. `lambdify` would compile a function of Python for each. Raises
    KeyError for a function that is none of these."""
    if expression == X:
        return POINTS
    if not expression.args:  # a number
        return np.complex128(complex(expression))
    arguments = [values(argument) for argument in expression.args]
    if expression.func in (sympy.Add, sympy.Mul):
        return reduce(np.add if expression.func is sympy.Add else np.multiply, arguments)
    return VALUES[expression.func](*arguments)
