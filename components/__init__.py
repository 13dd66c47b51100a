"""The work of the stages, folder by folder, from the base up:

core -> params -> stages (how one runs), optimizers -> text -> models, tasks -> objectives, comparison -> pretrain, embeddings
-> evaluations, generate -> finetune -> derive, labs, studies, report.

A folder's `stages.py` declares its stages; `config.py` files are settings. Nothing here imports Prefect or DVC: a stage
is `python -m components.FOLDER.MODULE NAME`, as in its block of dvc.yaml.
"""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C in the seconds of a stage's imports ends it without forty lines; `stage.main` takes it back
    signal.signal(signal.SIGINT, signal.SIG_DFL)
