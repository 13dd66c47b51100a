"""`python -m components.evaluations NAME`: the items of an evaluation -> data/evaluations/NAME."""

from importlib import import_module
from pathlib import Path

from components.core import storage
from components.core.tracking import Run
from components.evaluations.contract import check_size
from components.params import Params
from components.stages import stage


def evaluation(params: Params, name: str, run: Run) -> dict:
    """Prepare the evaluation `name`; returns its figures. Raises SesameError where it has too few items."""
    block = params.evaluations[name]
    with storage.output(Path("data/evaluations", name)) as folder:
        folder.mkdir()
        kind = import_module(f"components.evaluations.{block.kind}.evaluation")
        # a task's files are fetched here once more, since DVC knows no dependency that only some entries have
        task = (params.tasks[block.task], params.seed) if hasattr(block, "task") else ()
        return check_size(kind.prepare(folder, block, *task))


if __name__ == "__main__":
    stage.main("evaluation", evaluation)
