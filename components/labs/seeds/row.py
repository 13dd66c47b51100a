"""`python -m components.labs.seeds.row MODEL-TASK-SEED`: data/models/<model>, data/tasks/<task> -> data/seeds/<model>/<task>/<seed>.csv.

One initialisation with every order of the examples, one line each.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import loop
from components.finetune.task_setup import TaskSetup, check_max_length, reported_split
from components.labs.seeds import FOLDER
from components.stages import stage
from components.tasks import metrics


def file(name: str) -> Path:
    """The file of MODEL-TASK-SEED."""
    model, task, seed = name.split("-")
    return FOLDER / model / task / f"{seed}.csv"


def row(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.seed_grid
    if name not in config.runs:
        raise SesameError(f"{name} is not in seed_grid of {params.STUDIES} (there are: {', '.join(config.runs)})")
    model, task, seed = config.runs[name]
    recipe, folder = all_params.finetune.recipes[model].of_start(config.init), Path("data/models", model)
    check_max_length(folder, recipe)
    sizes = {split: all_params.finetune.evaluated(split) for split in ("dev", reported_split(all_params.tasks[task]))}
    setup = TaskSetup.load(all_params, task, {"train": config.train_examples, **sizes})
    about = {"stage": "seed_row", "model": model, "task": task, "init": config.init, "initialisation": str(seed)}
    run.tag(**about)
    lines, tokens, flops = [], 0, 0
    for order in config.orders:
        with run.child(f"{name} order {order}", about | {"order": str(order)}, recipe.model_dump(mode="json")) as child:
            scores, result = train(setup, folder, recipe, seed, order, config.init, child)
        lines.append({"initialisation": seed, "order": order, **scores})
        tokens, flops = tokens + result.tokens, flops + result.flops
        print(f"order {order}: {' '.join(metrics.shown(scores[key]) for key in scores if key.startswith('epoch'))}", flush=True)
    with storage.output(file(name)) as temporary:
        pd.DataFrame(lines).to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    run.artifact(file(name))
    cost = {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)}
    return {"protocol": setup.protocol(recipe, "dev", each_seed_draws=False), "cost": cost}


def train(
    setup: TaskSetup, folder: Path, recipe: params.Recipe, seed: int, order: int, init: str, child: Run
) -> tuple[dict[str, float], loop.FitResult]:
    """One training; returns its scores: on dev after each epoch, and on dev and the reported split with the selected weights.

    Raises SesameError where the loss is not a number: then the recipe is at fault, not the seed.
    """
    prepared, scores = setup.prepare(folder, recipe, seed, init), {}
    inputs = {split: prepared.module.inputs(texts, setup.fabric) for split, texts in prepared.encode(setup.examples).items()}

    def watch(epoch: int, score: float | None) -> bool:
        scores[f"epoch_{epoch}"] = np.nan if score is None else score
        child.log({"score": score}, epoch)
        return False

    result = loop.fit(
        setup.fabric, prepared.module, prepared.kind, inputs["train"], recipe, order,
        lambda epoch, loss: child.log({"train_loss": loss}, epoch), setup.dev_score(), inputs["dev"], watch,
    )  # fmt: skip
    split = reported_split(setup.task)
    score = metrics.evaluate(setup.task, split, setup.examples[split], result.predict(inputs[split]).values)[setup.task.metric]
    scores |= {"dev": scores[f"epoch_{result.epochs}"], "judged": np.nan if score is None else score, "seconds": result.seconds}
    child.log({"final_score": scores["dev"], "judged_score": scores["judged"], "seconds": result.seconds})
    return scores, result


if __name__ == "__main__":
    stage.main("seed_row", row, metrics_file=lambda _, name: file(name).with_suffix(".json"))
