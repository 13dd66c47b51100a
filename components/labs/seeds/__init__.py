"""Seeds as a choice of their own (Dodge et al. 2020): `python -m components.labs.seeds.row MODEL-TASK-SEED` tunes one
initialisation in every
order of the examples, `python -m components.labs.seeds` lays the rows beside each other.

`chance` is the arithmetic: how much each of the two brings, what the best of n is worth on other data, what it saves to stop early.
"""

from pathlib import Path

FOLDER = Path("data/seeds")
