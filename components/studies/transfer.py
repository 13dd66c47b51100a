"""`python -m components.studies.transfer STUDY-VARIANT-SEED`: fine-tune one seed of a variant -> data/studies/<study>/<variant>/<seed>/.

It is tuned with the same seed on every task of the study; so is each model kept on the way. The predictions are in <task>/<milestone>/.
"""

from pathlib import Path

from components.core import storage
from components.core.tracking import Run
from components.finetune import runs
from components.params import Params, tuned
from components.stages import stage
from components.studies import folders
from components.studies.folders import LAST


def transfer(all_params: Params, name: str, run: Run) -> dict:
    member = folders.member(all_params, name)
    study, source = all_params.ablations[member.study], folders.weights_folder(all_params, member)
    variant, recipe, results = study.variants[member.variant], tuned(study, member.variant), {}
    if variant.train_examples:
        fewer = all_params.finetune.model_copy(update={"train_examples": variant.train_examples})
        all_params = all_params.model_copy(update={"finetune": fewer})
    about = {"study": member.study, "variant": member.variant, "model": study.model}
    with storage.output(folders.transferred_folder(member)) as target:
        for milestone in (*map(str, study.milestones), LAST):
            models = {member.seed: source / ("" if milestone == LAST else milestone)}
            label = member.variant if milestone == LAST else f"{member.variant} at {milestone}"
            for task in study.tasks:
                print(f"{task}, {milestone}", flush=True)
                scores, tags = target / task / milestone, {"stage": "transfer", "milestone": milestone, **about}
                result = runs.over_seeds(all_params, label, models, task, recipe, [variant.init], scores, run, tags)
                results.setdefault(task, {})[milestone] = result
    run.tag(**about)
    spent = [result["cost"] for milestones in results.values() for result in milestones.values()]
    total = {key: sum(cost[key] for cost in spent) for key in ("tokens", "flops")} | {"gpus": max(cost["gpus"] for cost in spent)}
    return {"tasks": results, "cost": total}


def metrics_file(all_params: Params, name: str) -> Path:
    """Beside the predictions: data/metrics is the root pipeline's."""
    return folders.transferred_folder(folders.member(all_params, name)) / "metrics.json"


if __name__ == "__main__":
    stage.main("transfer", transfer, metrics_file=metrics_file)
