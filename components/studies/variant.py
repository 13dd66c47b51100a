"""`python -m components.studies.variant STUDY-VARIANT-SEED`: pre-train a variant with one seed
-> data/variants/<study>/<variant>/<seed>/."""

from pathlib import Path

from components import params
from components.core import storage
from components.core.tracking import Run
from components.params import Member, Params
from components.pretrain.training import checkpoint_folder, pretrain, write_curve
from components.stages import stage
from components.stages.outputs import read_json
from components.studies import folders


def previous_run(all_params: Params, name: str) -> str | None:
    """The MLflow run of a killed attempt."""
    member = folders.member(all_params, name)
    study, start = all_params.studies[member.study], folders.start_folder(all_params, member)
    if params.tries_rates(study, member.variant) and not folders.chosen_rate(member.study, member.variant).exists():
        return None
    block = folders.training_block(all_params, member)
    if not Path("data/encoded", block.encoding, "meta.json").exists() or (start and not (start / "config.json").exists()):
        return None
    noted = checkpoint_folder(block, name, study.milestones, start) / "run_id"
    return noted.read_text() if noted.exists() else None


def train(all_params: Params, name: str, run: Run) -> dict:
    member = folders.member(all_params, name)
    study, folder, start = all_params.studies[member.study], folders.pretrained_folder(member), folders.start_folder(all_params, member)
    block = folders.training_block(all_params, member)
    run.tag(study=member.study, variant=member.variant, model=study.model, seed=str(member.seed))
    trained = pretrain(block, name, folder, run, study.milestones, start)
    if trained is None:  # a rank that is not the first
        return {}
    write_curve(folder / "curve.csv", trained.curve)
    cost = trained.metrics["cost"]
    figures = trained.metrics | {"seconds": trained.seconds, "flops": cost["flops"], "gpus": cost["gpus"]}
    if start:  # the cost of a model is that of all its trainings
        before = read_json(start / "figures.json")
        figures |= {key: before[key] + figures[key] for key in ("tokens", "steps", "flops", "seconds")}
    storage.write_json(folder / "figures.json", figures)
    return trained.metrics


def metrics_file(all_params: Params, name: str) -> Path:
    """Next to the model: data/metrics belongs to the root pipeline."""
    member: Member = folders.member(all_params, name)
    return folders.pretrained_folder(member) / "metrics.json"


if __name__ == "__main__":
    stage.main("variant", train, resumes=previous_run, metrics_file=metrics_file)
