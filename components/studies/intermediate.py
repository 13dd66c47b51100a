"""`python -m components.studies.intermediate STUDY-VARIANT-SEED`: fine-tune a model of another variant on intermediate tasks (Phang et al.
2018; several at once, Liu et al. 2019) -> data/variants/<study>/<variant>/<seed>/."""

import time
from importlib import import_module

from components.core import storage
from components.core.tracking import Run
from components.params import Params
from components.stages import stage
from components.stages.outputs import read_json
from components.studies import folders
from components.studies.variant import metrics_file


def train(all_params: Params, name: str, run: Run) -> dict:
    """Write the model, and next to it the cost of all its trainings. Tokens, steps and losses stay those of pre-training."""
    member, started = folders.member(all_params, name), time.perf_counter()
    all_params = all_params.of_study(member.study)
    study, folder, start = all_params.studies[member.study], folders.pretrained_folder(member), folders.start_folder(all_params, member)
    variant = study.variants[member.variant]
    by = variant.by.model_copy(update={"seed": member.seed})
    run.tag(study=member.study, variant=member.variant, model=study.model, seed=str(member.seed))
    before = read_json(start / "figures.json")
    metrics = import_module(f"components.derive.{by.name}").tune(all_params, variant.intermediate, by, start, folder)
    cost = {"flops": before["flops"] + metrics["cost"]["flops"], "seconds": before["seconds"] + time.perf_counter() - started}
    storage.write_json(folder / "figures.json", before | cost)
    return metrics


if __name__ == "__main__":
    stage.main("intermediate", train, metrics_file=metrics_file)
