"""`python -m components.finetune.adapt MODEL-METHOD-TASK`: fine-tune with one of the methods in `adapt`
-> data/adapted/<model>/<method>/<task>/."""

import itertools
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import runs
from components.stages import stage


def adapt(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.adapt
    declared = {"-".join(names): names for names in itertools.product(config.models, config.methods, config.tasks)}
    if name not in declared:
        raise SesameError(f"{name} is not in adapt of params.yaml (there are: {', '.join(declared) or 'none'})")
    model, method, task = declared[name]
    recipe = config.recipes[method]
    run.tag(model=model, task=task, method=recipe.method)
    folders, scores = runs.weights_of_seeds(all_params, model), Path("data/adapted", model, method, task)
    tags = {"stage": "adapt", "recipe": method}
    return runs.run_seeds(all_params, model, folders, task, recipe, ["pretrained"], scores, run, tags) | {"recipe": method}


if __name__ == "__main__":
    stage.main("adapt", adapt)
