"""`python -m components.pretrain NAME`: data/encoded/<encoding> -> data/models/<name>, data/curves/<name>.csv, data/samples/<name>.json."""

from pathlib import Path

import torch

from components import stage
from components.params import Params
from components.pretrain.training import Trained, checkpoint_folder, pretrain, write_curve
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
    show_samples(name, trained, params.models[name].prompts)
    run.artifact(folder, "files")
    run.artifact(Path("data/samples", f"{name}.json"))
    run.model(trained.model)
    return trained.metrics


def show_samples(name: str, trained: Trained, prompts: list[str]) -> None:
    """What the trained model makes of the prompts: printed, and kept in data/samples/<name>.json."""
    trained.model.eval()
    with torch.no_grad():
        samples = trained.objective.samples(trained.model, trained.text, prompts)
    stage.write_json(Path("data/samples", f"{name}.json"), samples)
    for sample in samples:
        print(f"  {sample['prompt']}  ->  {sample['output']}", flush=True)


if __name__ == "__main__":
    stage.main("pretrain", train, "models", previous_run)
