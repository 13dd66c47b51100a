"""Programs from examples, as in DeepCoder (Balog et al. 2017): a random program is run on random lists; what went in and
came out is the problem, the program the solution.

`in 3 1 2 out 2 4 6 in 5 0 out 0 10` is solved by `sort double`, and by every other program that does so. Of DeepCoder's
functions these are the ones that make a list of one list, so a program is their names in the order in which they run.
"""

from collections.abc import Callable
from itertools import accumulate

import numpy as np

FUNCTIONS: dict[str, Callable[[list[int]], list[int]]] = {
    "sort": sorted,
    "reverse": lambda numbers: numbers[::-1],
    "tail": lambda numbers: numbers[1:],
    "sums": lambda numbers: list(accumulate(numbers)),
    "increment": lambda numbers: [n + 1 for n in numbers],
    "decrement": lambda numbers: [n - 1 for n in numbers],
    "double": lambda numbers: [2 * n for n in numbers],
    "halve": lambda numbers: [n // 2 for n in numbers],
    "negate": lambda numbers: [-n for n in numbers],
    "square": lambda numbers: [n * n for n in numbers],
    "evens": lambda numbers: [n for n in numbers if n % 2 == 0],
    "odds": lambda numbers: [n for n in numbers if n % 2],
    "positives": lambda numbers: [n for n in numbers if n > 0],
}
EXAMPLES = 3
SIZES = (3, 6)
"""The shortest list that goes in, and one more than the longest."""
LARGEST = 9
"""Largest number that goes in."""
BOUND = 99
"""Largest absolute number that comes out."""


def pair(rng: np.random.Generator, operators: int) -> tuple[str, str] | None:
    """Examples and a program of a number of functions; None where an output is empty or has numbers that are too
    large."""
    program = rng.choice(list(FUNCTIONS), operators).tolist()
    inputs = [rng.integers(0, LARGEST + 1, rng.integers(*SIZES)).tolist() for _ in range(EXAMPLES)]
    outputs = [run(program, numbers) for numbers in inputs]
    if any(not numbers or max(map(abs, numbers)) > BOUND for numbers in outputs) or inputs == outputs:
        return None
    examples = (f"in {_words(numbers)} out {_words(results)}" for numbers, results in zip(inputs, outputs, strict=True))
    return " ".join(examples), " ".join(program)


def run(program: list[str], numbers: list[int]) -> list[int]:
    """The list that a program makes of a list. Raises KeyError if a word is no function."""
    for name in program:
        numbers = FUNCTIONS[name](numbers)
    return numbers


def solves(problem: str, answer: str) -> bool:
    """Whether a program makes every output of its input."""
    program = answer.split()
    if not all(name in FUNCTIONS for name in program):
        return False
    examples = [example.partition(" out ") for example in f" {problem}".split(" in ")[1:]]
    return all(run(program, _numbers(given)) == _numbers(result) for given, _, result in examples)


def _words(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split()]
