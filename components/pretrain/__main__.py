"""`python -m components.pretrain NAME`: data/encoded/<encoding> -> data/models/<name>, data/curves/<name>.csv."""

from pathlib import Path

from components.core.tracking import Run
from components.params import Params
from components.pretrain import several_seeds
from components.pretrain.training import pretrain, write_curve
from components.stages import stage


def previous_run(params: Params, name: str) -> str | None:
    """Return the MLflow run of a killed attempt."""
    config = params.models[name]
    if not Path("data/encoded", config.encoding, "meta.json").exists():
        return None
    return several_seeds.previous_run(config, name)


def train(params: Params, name: str, run: Run) -> dict:
    config, folder = params.models[name], Path("data/models", name)
    if config.pretrainings > 1:
        result = several_seeds.pretrain_seeds(config, name, folder, run)
    else:
        trained = pretrain(config, name, folder, run)
        result = trained and (trained.metrics, trained.curve)
    if result is None:  # a rank other than the first
        return {}
    metrics, curve = result
    write_curve(curve_path(name, name in params.of_studies("models")), curve)
    return metrics


def curve_path(name: str, of_studies: bool) -> Path:
    """Return the path of the learning curve, a CSV with one row per validation.

    The report depends on the complete folder data/curves, so models of studies have a folder of their own.
    """
    return Path("data/study_curves" if of_studies else "data/curves", f"{name}.csv")


def reads(params: Params, name: str) -> list[Path]:
    return [Path("data/encoded", params.models[name].encoding)]


if __name__ == "__main__":
    stage.main("pretrain", train, resumes=previous_run, reads=reads)
