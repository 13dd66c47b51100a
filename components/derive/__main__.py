"""`python -m components.derive NAME`: data/models/<start> and other inputs -> data/models/<name>."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from components import params
from components.core.tracking import Run
from components.stages import stage


def method(all_params: params.Params, name: str) -> ModuleType:
    """The module that derives a model."""
    return import_module(f"components.derive.{all_params.derived[name].by.name}")


def previous_run(all_params: params.Params, name: str) -> str | None:
    """The MLflow run of a killed attempt, for methods that can resume."""
    if name not in all_params.derived or not hasattr(method(all_params, name), "run_id_file"):
        return None
    file = method(all_params, name).run_id_file(all_params, name)
    return file.read_text() if file and file.exists() else None


def derive(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.derived[name]
    run.tag(model=block.start, method=block.by.name, on=block.on)
    metrics = method(all_params, name).derive(all_params, name, Path("data/models", name), run)
    return {"model": block.start, "by": block.by.name, "on": block.on, **metrics} if metrics else {}


if __name__ == "__main__":
    stage.main("derive", derive, resumes=previous_run)
