"""Seeds as a choice of their own (Dodge et al. 2020): `python -m components.labs.seeds.row MODEL-TASK-SEED` tunes one
initialisation in every
order of the examples, `python -m components.labs.seeds` compares the rows.

`chance` is the arithmetic: the effect of each of the two, the score of the best of n on other data, the savings of
stopping early.
"""

from pathlib import Path

FOLDER = Path("data/seeds")
