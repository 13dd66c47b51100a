"""`python -m pipelines.cli`, as a worktree run starts it."""

import signal

from pipelines.cli import app

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    # `components` has taken Ctrl-C for the imports of a stage; a flow that it killed would stay "Running" in Prefect
    signal.signal(signal.SIGINT, signal.default_int_handler)
app()
