"""The effect of seeds (Dodge et al. 2020): `python -m components.labs.seeds.row MODEL-TASK-SEED` fine-tunes from one
initialisation with every order of the examples, `python -m components.labs.seeds` compares the rows.

`chance` has the statistics: the effects of initialisation and order, the expected score of the best of n on other data, and the
savings of early stopping.
"""

from pathlib import Path

FOLDER = Path("data/seeds")
