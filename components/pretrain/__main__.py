"""`python -m components.pretrain NAME`: data/encoded/<encoding> -> data/models/<name>, data/curves/<name>.csv, data/samples/<name>.json."""

from pathlib import Path

from components import stage
from components.params import Params
from components.pretrain.training import checkpoint_folder, pretrain, write_curve
from components.tracking import Run


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
    write_curve(Path("data/curves", f"{name}.csv"), trained.curve)
    stage.write_json(Path("data/samples", f"{name}.json"), trained.samples(params.models[name].prompts))
    run.artifact(Path("data/samples", f"{name}.json"))
    return trained.metrics


def reads(params: Params, name: str) -> list[Path]:
    return [Path("data/encoded", params.models[name].encoding)]


if __name__ == "__main__":
    stage.main("pretrain", train, "models", previous_run, reads=reads)
