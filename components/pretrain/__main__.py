"""`python -m components.pretrain NAME`: data/encoded/<encoding> -> data/models/<name>, data/curves/<name>.csv."""

from pathlib import Path

from components.core.tracking import Run
from components.params import Params
from components.pretrain import repeats
from components.pretrain.training import pretrain, write_curve
from components.stages import stage


def previous_run(params: Params, name: str) -> str | None:
    """The ledger's run of a killed attempt."""
    block = params.models[name]
    if not Path("data/encoded", block.encoding, "meta.json").exists():
        return None
    return repeats.previous_run(block, name)


def train(params: Params, name: str, run: Run) -> dict:
    block, folder = params.models[name], Path("data/models", name)
    if block.pretrainings > 1:
        made = repeats.pretrain_each(block, name, folder, run)
    else:
        trained = pretrain(block, name, folder, run)
        made = trained and (trained.metrics, trained.curve)
    if made is None:  # a rank that is not the first
        return {}
    metrics, curve = made
    write_curve(curve_path(name, name in params.of_studies("models")), curve)
    return metrics


def curve_path(name: str, of_studies: bool) -> Path:
    """A row a validation. The report depends on data/curves as a whole, so models of studies have theirs elsewhere."""
    return Path("data/study_curves" if of_studies else "data/curves", f"{name}.csv")


def reads(params: Params, name: str) -> list[Path]:
    return [Path("data/encoded", params.models[name].encoding)]


if __name__ == "__main__":
    stage.main("pretrain", train, resumes=previous_run, reads=reads)
