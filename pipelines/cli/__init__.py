"""Sesame, a declarative lab for language-model pre-training.

The `sesame` command: a file for each group of subcommands.
"""

import typer

from pipelines.cli import build, cost, experiments, machine, models, results  # noqa: F401  (each adds its subcommands)
from pipelines.cli.command import app


@app.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """Sesame, a declarative lab for language-model pre-training."""
    if context.invoked_subcommand is None:
        from pipelines import terminal

        terminal.table(["", ""], [[f"sesame {name}", text] for name, text in FIRST.items()])
        terminal.say("all commands: sesame --help; the options of one: sesame run --help")


FIRST = {
    "doctor": "check whether this machine has what a run needs",
    "try": "pre-train one small model in two minutes, and look at it",
    "run": "build what params.yaml declares; what is unchanged is skipped",
    "plan": "list what a run would do, with time and memory",
    "study NAME": "compare variants of a pre-training, each with several seeds",
    "exp run": "try other params in a worktree, and `sesame exp diff` compares",
    "up": "start the pages of Prefect and MLflow",
}
"""The commands that `sesame` alone shows."""
