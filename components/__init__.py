"""What the stages do. Imports neither Prefect nor DVC: each stage is `python -m components.<stage> [NAME]`."""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C in the seconds of a stage's imports ends it without forty lines; `stage.main` takes it back
    signal.signal(signal.SIGINT, signal.SIG_DFL)
