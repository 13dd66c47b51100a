"""`python -m components.labs.seeds.row MODEL-TASK-SEED`: data/models/<model>, data/tasks/<task> -> data/seeds/<model>/<task>/<seed>.csv.

One initialisation, in every order of the examples: a line each.
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
    """Where MODEL-TASK-SEED is written."""
    model, task, seed = name.split("-")
    return FOLDER / model / task / f"{seed}.csv"


def row(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.seed_grid
    if name not in config.runs:
        raise SesameError(f"no such row in seed_grid of {params.STUDIES} (there are: {', '.join(config.runs)})")
    model, task, seed = config.runs[name]
    recipe, folder = all_params.finetune.recipes[model], Path("data/models", model)
    check_max_length(folder, recipe)
    sizes = {split: all_params.finetune.evaluated(split) for split in ("dev", reported_split(all_params.tasks[task]))}
    setup = TaskSetup.load(all_params, task, {"train": config.train_examples, **sizes})
    about = {"stage": "seed_row", "model": model, "task": task, "init": config.init, "initialisation": str(seed)}
    run.tag(**about)
    lines, tokens, flops = [], 0, 0
    for order in config.orders:
        with run.child(f"{name} order {order}", about | {"order": str(order)}, recipe.model_dump(mode="json")) as child:
            own, spent = training(setup, folder, recipe, seed, order, config.init, child)
        lines.append({"initialisation": seed, "order": order, **own})
        tokens, flops = tokens + spent.tokens, flops + spent.flops
        print(f"order {order}: {' '.join(metrics.shown(own[key]) for key in own if key.startswith('epoch'))}", flush=True)
    with storage.output(file(name)) as temporary:
        pd.DataFrame(lines).to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    run.artifact(file(name))
    return {"protocol": setup.protocol(recipe, "dev"), "cost": {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)}}


def training(setup: TaskSetup, folder: Path, recipe: params.Recipe, seed: int, order: int, init: str, child: Run) -> tuple:
    """One training: dev after each epoch, dev and the judged split with the weights that count; and what it cost.

    Raises SesameError where the loss is not a number: a recipe that diverges is no matter of seeds.
    """
    prepared, scores = setup.prepare(folder, recipe, seed, init), {}
    inputs = {split: prepared.module.inputs(texts, setup.fabric) for split, texts in prepared.encode(setup.examples).items()}

    def watch(epoch: int, score: float | None) -> bool:
        scores[f"epoch_{epoch}"] = np.nan if score is None else score
        child.log({"score": score}, epoch)
        return False

    fitted = loop.fit(
        setup.fabric, prepared.module, prepared.kind, inputs["train"], recipe, order, lambda epoch, loss: child.log({"train_loss": loss}, epoch),
        setup.dev_score(), inputs["dev"], watch,
    )  # fmt: skip
    split = reported_split(setup.task)
    outside = metrics.evaluate(setup.task, split, setup.examples[split], fitted.predict(inputs[split]).values)[setup.task.metric]
    scores |= {"dev": scores[f"epoch_{fitted.epochs}"], "judged": np.nan if outside is None else outside, "seconds": fitted.seconds}
    child.log({"final_score": scores["dev"], "judged_score": scores["judged"], "seconds": fitted.seconds})
    return scores, fitted


if __name__ == "__main__":
    stage.main("seed_row", row, metrics_file=lambda _, name: file(name).with_suffix(".json"))
