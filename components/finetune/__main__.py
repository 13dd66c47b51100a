"""`python -m components.finetune MODEL-TASK`: data/models/<model>, data/tasks/<task> -> data/scores/<model>/<task>/."""

from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import runs
from components.stages import stage


def finetune(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.finetune
    pairs = {f"{model}-{task}": (model, task) for model in config.models for task in config.tasks}
    if name not in pairs:
        raise SesameError(f"{name} is not in finetune of params.yaml (there are: {', '.join(pairs)})")
    model, task = pairs[name]
    run.tag(model=model, task=task, method=config.recipes[model].method)
    folders, scores = runs.weights_of_seeds(all_params, model), Path("data/scores", model, task)
    tags = {"stage": "finetune", "recipe": model}
    return runs.run_seeds(all_params, model, folders, task, config.recipes[model], config.inits, scores, run, tags)


if __name__ == "__main__":
    stage.main("finetune", finetune)
