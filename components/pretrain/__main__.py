"""`python -m components.pretrain NAME`: data/encoded/<encoding> -> data/models/<name>, data/curves/<name>.csv."""

from pathlib import Path

from components.core.tracking import Run
from components.params import Params
from components.pretrain.training import checkpoint_folder, pretrain, write_curve
from components.stages import stage


def previous_run(params: Params, name: str) -> str | None:
    """The ledger's run of a killed attempt."""
    if not Path("data/encoded", params.models[name].encoding, "meta.json").exists():
        return None
    noted = checkpoint_folder(params.models[name], name) / "run_id"
    return noted.read_text() if noted.exists() else None


def train(params: Params, name: str, run: Run) -> dict:
    folder = Path("data/models", name)
    trained = pretrain(params.models[name], name, folder, run)
    if trained is None:
        return {}
    write_curve(curve_path(name, name in params.of_studies("models")), trained.curve)
    return trained.metrics


def curve_path(name: str, of_studies: bool) -> Path:
    """A row a validation. The report depends on data/curves as a whole, so models of studies have theirs elsewhere."""
    return Path("data/study_curves" if of_studies else "data/curves", f"{name}.csv")


def reads(params: Params, name: str) -> list[Path]:
    return [Path("data/encoded", params.models[name].encoding)]


if __name__ == "__main__":
    stage.main("pretrain", train, resumes=previous_run, reads=reads)
