"""`python -m components.derive NAME`: data/models/<start> and what it is done on -> data/models/<name>, a model like others."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from components import params
from components.core.tracking import Run
from components.stages import stage


def way(all_params: params.Params, name: str) -> ModuleType:
    """How a model is derived."""
    return import_module(f"components.derive.{all_params.derived[name].by.name}")


def previous_run(all_params: params.Params, name: str) -> str | None:
    """The ledger's run of a killed attempt, where this way can go on with it."""
    if name not in all_params.derived or not hasattr(way(all_params, name), "note"):
        return None
    noted = way(all_params, name).note(all_params, name)
    return noted.read_text() if noted and noted.exists() else None


def derive(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.derived[name]
    run.tag(model=block.start, method=block.by.name, on=block.on)
    made = way(all_params, name).derive(all_params, name, Path("data/models", name), run)
    return {"model": block.start, "by": block.by.name, "on": block.on, **made} if made else {}


if __name__ == "__main__":
    stage.main("derive", derive, resumes=previous_run)
