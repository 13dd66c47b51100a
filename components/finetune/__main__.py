"""`python -m components.finetune MODEL-TASK`: data/models/<model>, data/tasks/<task> -> data/scores/<model>/<task>/."""

import itertools
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import runs
from components.models.pretrainings import pretrainings
from components.stages import stage


def finetune(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.finetune
    pairs = {f"{model}-{task}": (model, task) for model in config.models for task in config.tasks}
    if name not in pairs:
        raise SesameError(f"{name} is not in finetune of params.yaml (there are: {', '.join(pairs)})")
    model, task = pairs[name]
    run.tag(model=model, task=task, method=config.recipes[model].method)
    # each seed starts from another pre-training where there are several, so that the deviation includes that of pre-training
    folders = dict(zip(config.seeds, itertools.cycle(pretrainings(Path("data/models", model)))))
    scores, tags = Path("data/scores", model, task), {"stage": "finetune", "recipe": model}
    result = runs.run_seeds(all_params, model, folders, task, config.recipes[model], config.inits, scores, run, tags)
    return result | {"pretrainings": len(set(folders.values()))}


if __name__ == "__main__":
    stage.main("finetune", finetune)
