"""`python -m components.studies.transfer STUDY-VARIANT-SEED`: fine-tune and evaluate one seed of a variant ->
data/studies/<study>/<variant>/<seed>/.

It is fine-tuned with the same seed on every task of the study, and so is its model at each milestone. The predictions are in
<task>/<milestone>/, the answers in <evaluation>/<milestone>/items.csv.
"""

from pathlib import Path

import numpy as np

from components.core import compute, storage
from components.core.tracking import Run
from components.evaluations import evaluate
from components.finetune import runs
from components.params import Member, Params, tuned
from components.stages import stage
from components.studies import folders
from components.studies.folders import LAST


def transfer(all_params: Params, name: str, run: Run) -> dict:
    member = folders.member(all_params, name)
    all_params = all_params.of_study(member.study)
    study, source = all_params.studies[member.study], folders.weights_folder(all_params, member)
    variant, recipe, results = study.variants[member.variant], tuned(study, member.variant), {}
    if variant.train_examples:
        fewer = all_params.finetune.model_copy(update={"train_examples": variant.train_examples})
        all_params = all_params.model_copy(update={"finetune": fewer})
    compute.prepare(all_params.finetune.threads)
    about = {"study": member.study, "variant": member.variant, "model": study.model}
    with storage.output(folders.transferred_folder(member)) as target:
        for milestone in (*map(str, study.milestones), LAST):
            models = {member.seed: source / ("" if milestone == LAST else milestone)}
            label = member.variant if milestone == LAST else f"{member.variant} at {milestone}"
            for task in study.tasks:
                print(f"{task}, {milestone}", flush=True)
                scores, tags = target / task / milestone, {"stage": "transfer", "milestone": milestone, **about}
                result = runs.run_seeds(all_params, label, models, task, recipe, [variant.init], scores, run, tags)
                results.setdefault(task, {})[milestone] = result
        evaluations = _evaluate(all_params, member, target)
    run.tag(**about)
    costs = [result["cost"] for milestones in results.values() for result in milestones.values()]
    total = {key: sum(cost[key] for cost in costs) for key in ("tokens", "flops")}
    return {"tasks": results, "evaluations": evaluations, "cost": total | {"gpus": max((cost["gpus"] for cost in costs), default=0)}}


def _evaluate(all_params: Params, member: Member, target: Path) -> dict[str, dict[str, dict]]:
    """evaluation -> milestone -> protocol, measure, score and those of references; the items are written to the target folder."""
    study, weights, results = all_params.studies[member.study], folders.weights_folder(all_params, member), {}
    seed = member.seed if study.variants[member.variant].init == "random" else None
    for evaluation in study.evaluations:
        for milestone in (*map(str, study.milestones), LAST):
            folder = weights / ("" if milestone == LAST else milestone)
            answers = evaluate.evaluate_model(all_params.evaluations[evaluation].kind, evaluation, folder, seed)
            (target / evaluation / milestone).mkdir(parents=True)
            evaluate.write_items(target / evaluation / milestone / "items.csv", answers)
            known = np.isfinite(answers.values)
            score = float(np.average(answers.values[known], weights=answers.weights[known]))
            results.setdefault(evaluation, {})[milestone] = {
                "protocol": answers.protocol, "measure": answers.measure, "score": score,
                "references": answers.figures.get("references", {}),
            }  # fmt: skip
            print(f"{evaluation}, {milestone}: {answers.measure} {score:.3f}", flush=True)
    return results


def metrics_file(all_params: Params, name: str) -> Path:
    """Next to the predictions: data/metrics belongs to the root pipeline."""
    return folders.transferred_folder(folders.member(all_params, name)) / "metrics.json"


if __name__ == "__main__":
    stage.main("transfer", transfer, metrics_file=metrics_file)
