"""Captions of pictures: coloured shapes are drawn on a grid, and the picture is the problem, a caption the solution.

A picture is a word for each pixel, line by line: `. . r r r .`. Of a red square with a blue ring under it both `a red square above a
blue ring` and `a blue ring below a red square` are true, and so is every other caption that names all shapes, each with its
place beside the one before. Some colours of shapes occur in the part `new_combinations` alone: who has learned what red is and what
a ring is can describe a red ring (Lake and Baroni 2018 ask this of commands).
"""

import re
from itertools import product

import numpy as np

SIDE, SIZE = 8, 3
"""Pixels of a picture's side, and of a shape's."""
LONGEST = SIDE**2
"""Words of a picture."""
COLOURS = {"red": "r", "green": "g", "blue": "b", "yellow": "y"}
BLANK = "."
SHAPES = {
    "square": ("###", "###", "###"),
    "ring": ("###", "#.#", "###"),
    "cross": (".#.", "###", ".#."),
    "star": ("#.#", ".#.", "#.#"),
    "corner": ("#..", "#..", "###"),
}
CELLS = {
    name: [(row, column) for row, line in enumerate(lines) for column, cell in enumerate(line) if cell == "#"]
    for name, lines in SHAPES.items()
}
"""The pixels of each shape, (row, column) from its top left."""
NEW = {("red", "ring"), ("green", "cross"), ("blue", "star"), ("yellow", "corner")}
"""The combinations that no other part has."""
RELATIONS = {
    "above": lambda one, other: one[0] + SIZE <= other[0],
    "below": lambda one, other: other[0] + SIZE <= one[0],
    "left of": lambda one, other: one[1] + SIZE <= other[1],
    "right of": lambda one, other: other[1] + SIZE <= one[1],
}
"""Whether a shape whose top left pixel is at one place is so beside one at another place."""
THING = f"a ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
CAPTION = re.compile(f"{THING}( ({'|'.join(RELATIONS)}) {THING})*")

Place = tuple[int, int]


def pair(rng: np.random.Generator, operators: int) -> tuple[str, str] | None:
    """A picture of so many shapes and a caption. None where the drawn places do not have room for all."""
    things = [(str(rng.choice(list(COLOURS))), str(rng.choice(list(SHAPES)))) for _ in range(operators)]
    places: list[Place] = [tuple(place) for place in rng.integers(0, SIDE - SIZE + 1, (operators, 2)).tolist()]
    if not all(_relations(one, other) for i, one in enumerate(places) for other in places[:i]):
        return None
    said = [f"a {colour} {shape}" for colour, shape in things]
    beside = [str(rng.choice(_relations(*both))) for both in zip(places, places[1:], strict=False)]
    caption = " ".join([said[0], *(f"{relation} {thing}" for relation, thing in zip(beside, said[1:], strict=True))])
    return draw(things, places), caption


def _relations(one: Place, other: Place) -> list[str]:
    """All that hold; none for shapes that would touch in both directions."""
    return [name for name, holds in RELATIONS.items() if holds(one, other)]


def draw(things: list[tuple[str, str]], places: list[Place]) -> str:
    """The picture of some (colour, shape), each with its top left pixel."""
    pixels = [BLANK] * SIDE**2
    for (colour, shape), (top, left) in zip(things, places, strict=True):
        for row, column in CELLS[shape]:
            pixels[(top + row) * SIDE + left + column] = COLOURS[colour]
    return " ".join(pixels)


def is_new(solution: str) -> bool:
    """Whether a caption has a combination of colour and shape that is in no other part."""
    return any(thing in NEW for thing in re.findall(THING, solution))


def solves(problem: str, answer: str) -> bool:
    """Whether a caption is true of a picture and names all of its shapes: shapes that stand so make this picture."""
    if not CAPTION.fullmatch(answer):
        return False
    things, beside, pixels = re.findall(THING, answer), re.findall("|".join(RELATIONS), answer), problem.split()
    if len(things) > SIDE**2 // SIZE**2:  # no picture has room for so many
        return False
    free = range(SIDE - SIZE + 1)
    fitting = [
        [place for place in product(free, free) if all(_pixel(pixels, place, cell) == COLOURS[colour] for cell in CELLS[shape])]
        for colour, shape in things
    ]
    return any(
        draw(things, list(places)) == problem
        and all(RELATIONS[said](*both) for said, *both in zip(beside, places, places[1:], strict=False))
        for places in product(*fitting)
    )


def _pixel(pixels: list[str], place: Place, cell: Place) -> str:
    return pixels[(place[0] + cell[0]) * SIDE + place[1] + cell[1]]
