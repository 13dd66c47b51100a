"""`python -m components.studies.rate_trial STUDY-VARIANT-FACTOR`: pre-train a variant at one of the learning rates that its study tries
-> data/variants/<study>/<variant>/rates/<factor>.json. The loss is kept, and the model is not."""

import shutil
from pathlib import Path

from components import params
from components.core import storage
from components.core.errors import Diverged
from components.core.tracking import Run
from components.pretrain.training import checkpoint_folder, pretrain
from components.stages import stage
from components.studies import folders


def previous_run(all_params: params.Params, name: str) -> str | None:
    """The MLflow run of a killed attempt."""
    block = params.tried(all_params.models, all_params.studies, folders.rate_trial(all_params, name))
    if not Path("data/encoded", block.encoding, "meta.json").exists():
        return None
    noted = checkpoint_folder(block, name) / "run_id"
    return noted.read_text() if noted.exists() else None


def try_rate(all_params: params.Params, name: str, run: Run) -> dict:
    """Return the metrics of the training; those of one that diverged have no loss."""
    trial = folders.rate_trial(all_params, name)
    block = params.tried(all_params.models, all_params.studies, trial)
    run.tag(study=trial.study, variant=trial.variant, model=all_params.studies[trial.study].model, rate_factor=f"{trial.factor:g}")
    model = storage.STATE / "rate_trials" / name
    try:
        trained = pretrain(block, name, model, run)
    except Diverged as error:
        # a rate that is too high is a result: the others are compared without it
        print(f"{name}: {error}", flush=True)
        shutil.rmtree(checkpoint_folder(block, name), ignore_errors=True)
        return {"factor": trial.factor, "loss": None, "cost": error.cost}
    if trained is None:  # a rank that is not the first
        return {}
    shutil.rmtree(model)
    return trained.metrics | {"factor": trial.factor}


def metrics_file(all_params: params.Params, name: str) -> Path:
    trial = folders.rate_trial(all_params, name)
    return folders.rate_trials(trial.study, trial.variant) / f"{trial.label}.json"


if __name__ == "__main__":
    stage.main("rate_trial", try_rate, resumes=previous_run, metrics_file=metrics_file)
