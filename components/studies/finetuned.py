"""Fine-tunes one seed of a variant on the tasks of its study."""

from pathlib import Path

from components.core.tracking import Run
from components.finetune import runs
from components.params import Member, Params, tuned
from components.studies import folders
from components.studies.folders import LAST


def finetune(all_params: Params, member: Member, target: Path, run: Run) -> dict[str, dict[str, dict]]:
    """task -> milestone -> the results of `runs.run_seeds`; the predictions are written to the target folder."""
    all_params = all_params.of_study(member.study)
    study, source = all_params.studies[member.study], folders.weights_folder(all_params, member)
    variant, recipe, results = study.variants[member.variant], tuned(study, member.variant), {}
    if variant.train_examples:
        fewer = all_params.finetune.model_copy(update={"train_examples": variant.train_examples})
        all_params = all_params.model_copy(update={"finetune": fewer})
    about = {"stage": "transfer", "study": member.study, "variant": member.variant, "model": study.model}
    for milestone in (*map(str, study.milestones), LAST):
        models = {member.seed: source / ("" if milestone == LAST else milestone)}
        label = member.variant if milestone == LAST else f"{member.variant} at {milestone}"
        for task in study.tasks:
            print(f"{task}, {milestone}", flush=True)
            scores, tags = target / task / milestone, about | {"milestone": milestone}
            result = runs.run_seeds(all_params, label, models, task, recipe, [variant.init], scores, run, tags)
            results.setdefault(task, {})[milestone] = result
    return results
