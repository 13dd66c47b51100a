"""Lottery tickets (Frankle and Carbin 2019): `python -m components.labs.tickets.rounds MODEL-TASK-SEED` prunes a
model round by round and trains
the rest and its controls, `python -m components.labs.tickets` compares them.

`masks` says which weights are kept: those of the ticket, and of the controls as many.
"""

from pathlib import Path

FOLDER = Path("data/tickets")
