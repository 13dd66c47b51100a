"""`python -m components.finetune.learning_curve MODEL-TASK`: scores with fewer labelled examples
-> data/learning_curves/<model>/<task>/<examples>/.

The lectures' question: what if we have small training data? The model is fine-tuned from pre-trained and from random weights with the
recipe of `finetune`, next to baselines. With few examples an epoch has too few steps (Mosbach et al. 2021), so `min_steps` adds epochs.
"""

from pathlib import Path

from components import params, tasks
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import runs
from components.finetune.baseline import fit, usable
from components.finetune.task_setup import TaskSetup, reported_split
from components.stages import stage


def learning_curve(all_params: params.Params, name: str, run: Run) -> dict:
    config, block = all_params.finetune, all_params.learning_curve
    declared = {f"{model}-{task}": (model, task) for model in block.models for task in block.tasks}
    if name not in declared:
        raise SesameError(f"{name} is not in learning_curve of params.yaml (there are: {', '.join(declared) or 'none'})")
    model, task_name = declared[name]
    run.tag(model=model, task=task_name, method=config.recipes[model].method)
    folders, points, cost = runs.weights_of_seeds(all_params, model), {}, {"tokens": 0, "flops": 0}
    rows = len(tasks.read(Path("data/tasks", task_name), "train"))
    for size in dict.fromkeys(min(size, rows) for size in block.train_examples):  # a point larger than the task is the whole task
        print(f"{size:,} of {rows:,} examples", flush=True)
        smaller = all_params.model_copy(update={"finetune": config.model_copy(update={"train_examples": size})})
        recipe = block.lengthened(config.recipes[model], size)
        scores, tags = Path("data/learning_curves", model, task_name, str(size)), {"stage": "learning_curve", "train_examples": str(size)}
        measured = runs.run_seeds(smaller, model, folders, task_name, recipe, config.inits, scores, run, tags)
        split, metric = measured["split"], measured["metric"]
        points[str(size)] = {init: measured[init][split][metric] for init in config.inits} | {"epochs": recipe.epochs}
        setup = TaskSetup.load(smaller, task_name)
        longer = all_params.baselines.model_copy(update={"recipe": block.lengthened(all_params.baselines.recipe, size)})
        for method in usable(block.baselines, setup):
            fitted = fit(smaller.model_copy(update={"baselines": longer}), setup, method)
            points[str(size)][method] = fitted.score(setup, split)[metric]
            cost = {"tokens": cost["tokens"] + fitted.tokens, "flops": cost["flops"] + fitted.flops}
        cost = {key: value + measured["cost"][key] for key, value in cost.items()}
    return {
        "model": model, "derived": measured["derived"], "task": task_name, "method": measured["method"], "metric": metric,
        "split": reported_split(setup.task), "points": points, "cost": cost | {"gpus": int(setup.on_gpu)},
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("learning_curve", learning_curve)
