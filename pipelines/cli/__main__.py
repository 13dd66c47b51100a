"""`python -m pipelines.cli`, as a worktree run starts it."""

from pipelines.cli import app

app()
