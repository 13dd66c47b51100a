"""What the stages do, room by room, from the ground up:

core -> params -> stages (how one runs), optimizers -> text -> models, tasks -> objectives, comparison -> pretrain, embeddings
-> evaluations, generate -> finetune -> derive, labs, studies, report.

A room's `stages.py` declares its stages; `config.py` files are settings. Nothing here imports Prefect or DVC: a stage is
`python -m components.ROOM.MODULE NAME`, as its block of dvc.yaml says.
"""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C in the seconds of a stage's imports ends it without forty lines; `stage.main` takes it back
    signal.signal(signal.SIGINT, signal.SIG_DFL)
