"""`python -m components.finetune.adapt MODEL-METHOD-TASK`: one way to adapt a pre-trained model
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
    ways = itertools.product(config.models, config.methods, config.tasks)
    declared = {"-".join(way): way for way in ways}
    if name not in declared:
        raise SesameError(f"no such way in adapt of params.yaml (there are: {', '.join(declared) or 'none'})")
    model, method, task = declared[name]
    run.tag(model=model, task=task, method=config.recipes[method].method)
    folders, scores = dict.fromkeys(all_params.finetune.seeds, Path("data/models", model)), Path("data/adapted", model, method, task)
    tags = {"stage": "adapt", "recipe": method}
    return runs.over_seeds(all_params, model, folders, task, config.recipes[method], ["pretrained"], scores, run, tags) | {"recipe": method}


if __name__ == "__main__":
    stage.main("adapt", adapt)
