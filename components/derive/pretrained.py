"""Continued pre-training on other text: of a domain or a task (Gururangan et al. 2020), or ULMFiT's second step (Howard and Ruder 2018)."""

from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.models import store
from components.pretrain.training import TrainingResult, checkpoint_folder, pretrain, write_curve


def _start(all_params: params.Params, name: str) -> Path:
    return Path("data/models", all_params.derived[name].start)


def _block(all_params: params.Params, name: str) -> params.Model:
    """The settings of the continuation as those of a pre-training, with the architecture of the start."""
    derived = all_params.derived[name]
    training = {key: getattr(derived.by, key) for key in params.Training.model_fields}
    architecture = store.about(_start(all_params, name)).architecture
    try:
        derived.by.check_phases(derived.start, architecture.max_length)
    except ValueError as error:
        raise SesameError(f"derived.{name}.by: {error}") from None
    return params.Model.model_construct(**training, encoding=derived.on.partition("/")[2], architecture=architecture)


def run_id_file(all_params: params.Params, name: str) -> Path | None:
    """The file with the MLflow run of a killed attempt; None while inputs are missing."""
    block = all_params.derived[name]
    if not (_start(all_params, name) / "config.json").exists() or not Path("data", block.on, "meta.json").exists():
        return None
    return checkpoint_folder(_block(all_params, name), name, start=_start(all_params, name)) / "run_id"


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Continue the pre-training of a model; the curve is in its folder."""
    block = _block(all_params, name)
    trained = pretrain(block, name, folder, run, start=_start(all_params, name))
    if trained is None:  # a rank that is not the first
        return {}
    save_curve(trained, folder)
    return trained.metrics


def save_curve(trained: TrainingResult, folder: Path) -> None:
    """Next to the model, where tables of derived models read it."""
    write_curve(folder / "curve.csv", trained.curve)
