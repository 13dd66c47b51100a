"""Lottery tickets (Frankle and Carbin 2019): `python -m components.labs.tickets.rounds MODEL-TASK-SEED` prunes a
model round by round and trains the remaining weights and controls, `python -m components.labs.tickets` compares them.

`masks` has the weights to keep: those of the ticket, and as many for the controls.
"""

from pathlib import Path

FOLDER = Path("data/tickets")
