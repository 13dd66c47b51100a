"""`python -m components.studies.transfer STUDY-VARIANT-SEED`: fine-tune and evaluate one seed of a variant ->
data/studies/<study>/<variant>/<seed>/.

It is fine-tuned with the same seed on every task of the study, and so is its model at each milestone. The predictions
are in <task>/<milestone>/, the answers in <evaluation>/<milestone>/items.csv.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from components.core import compute, storage
from components.core.tracking import Run
from components.params import Params
from components.stages import stage
from components.studies import folders


def transfer(all_params: Params, name: str, run: Run) -> dict:
    member = folders.member(all_params, name)
    study = all_params.studies[member.study]
    compute.prepare(all_params.finetune.threads)
    # each is imported where it is used, so that a change of fine-tuning makes no study stale that only evaluates
    with storage.output(folders.transferred_folder(member)) as target:
        tasks = _module("finetuned").finetune(all_params, member, target, run) if study.tasks else {}
        evaluations = _module("evaluated").evaluate(all_params, member, target) if study.evaluations else {}
    run.tag(study=member.study, variant=member.variant, model=study.model)
    costs = [result["cost"] for milestones in tasks.values() for result in milestones.values()]
    total = {key: sum(cost[key] for cost in costs) for key in ("tokens", "flops")}
    cost = total | {"gpus": max((cost["gpus"] for cost in costs), default=0)}
    return {"tasks": tasks, "evaluations": evaluations, "cost": cost}


def _module(name: str) -> Any:
    return import_module(f"components.studies.{name}")


def metrics_file(all_params: Params, name: str) -> Path:
    """Next to the predictions: data/metrics belongs to the root pipeline."""
    return folders.transferred_folder(folders.member(all_params, name)) / "metrics.json"


if __name__ == "__main__":
    stage.main("transfer", transfer, metrics_file=metrics_file)
