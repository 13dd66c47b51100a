"""`python -m components.finetune MODEL-TASK`: data/models/<model>, data/tasks/<task> -> data/scores/<model>/<task>/."""

import json
import time
from pathlib import Path

import torch
from lightning import Fabric

from components import compute, models, params, stage, tasks
from components.errors import SesameError
from components.finetune import data, loop, methods
from components.tasks import metrics
from components.tracking import Run

EVALUATED = ("dev", "test")


def finetune(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.finetune
    pairs = {f"{model}-{task}": (model, task) for model in config.models for task in config.tasks}
    if name not in pairs:
        raise SesameError(f"no such pair in finetune of params.yaml (there are: {', '.join(pairs)})")
    model_name, task_name = pairs[name]
    task = all_params.tasks[task_name]
    recipe = config.recipes[model_name]
    method = methods.METHODS[recipe.method]
    compute.prepare(config.threads)
    fabric = Fabric(accelerator=config.accelerator, devices=1, precision=compute.precision(config.precision, config.accelerator))
    folder = Path("data/tasks", task_name)
    rows = {"train": tasks.subset(tasks.read(folder, "train"), config.train_examples, all_params.seed)}
    rows |= {split: tasks.subset(tasks.read(folder, split), config.eval_examples, all_params.seed) for split in EVALUATED}
    model, tokens = models.load(Path("data/models", model_name))
    inputs = {split: data.encode(examples, task, tokens, recipe.max_length, method.joined) for split, examples in rows.items()}
    scores: dict[str, dict[str, list]] = {}
    predictions, flops = [], 0
    for init in ("pretrained", "random"):
        scores[init] = {split: [] for split in EVALUATED}
        read = {}
        for seed in config.seeds:
            torch.manual_seed(seed)
            model, _ = models.load(Path("data/models", model_name), pretrained=init == "pretrained")
            outputs = 1 if task.kind == "regression" else len(task.labels)
            module = fabric.to_device(method(model, recipe, outputs, pair=task.table.text_b is not None))
            if not read or init == "random":  # what frozen pre-trained weights make of the texts is the same for every seed
                read = {split: module.inputs(texts, fabric) for split, texts in inputs.items()}
                flops += sum(texts.flops for texts in read.values())
            tags = {"stage": "finetune", "model": model_name, "task": task_name, "init": init, "seed": str(seed), "method": recipe.method}
            with run.child(f"{name} {init} {seed}", tags, recipe.model_dump(mode="json")) as child:
                started = time.perf_counter()
                fitted = loop.fit(
                    fabric, module, read["train"], recipe, seed, task.kind == "regression",
                    lambda epoch, loss, child=child: child.log({"train_loss": loss}, epoch),
                )  # fmt: skip
                for split in EVALUATED:
                    found = fitted.predict(read[split]).tolist()
                    named = found if task.kind == "regression" else [task.labels[int(i)] for i in found]
                    gold = [example.label for example in rows[split]]
                    scores[init][split].append(metrics.evaluate(task, named, gold))
                    predictions += [
                        {"init": init, "seed": seed, "split": split, "id": example.id, "prediction": value, "label": example.label}
                        for example, value in zip(rows[split], named, strict=True)
                    ]
                flops += fitted.flops
                child.log({split: scores[init][split][-1] for split in EVALUATED})
                shown = " ".join(f"{split} {metrics.shown(scores[init][split][-1][task.metric])}" for split in EVALUATED)
                print(f"{init} seed {seed}: {task.metric} {shown} in {time.perf_counter() - started:.1f} s", flush=True)
    with stage.output(Path("data/scores", model_name, task_name)) as target:
        target.mkdir()
        (target / "predictions.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in predictions), encoding="utf-8")
    run.tag(model=model_name, task=task_name, method=recipe.method)
    trained = sum(len(text) for texts in inputs["train"].texts for text in texts) * recipe.epochs * len(config.seeds) * len(scores)
    return {
        "model": model_name, "task": task_name, "method": recipe.method, "metric": task.metric,
        "protocol": metrics.protocol(f"last of {recipe.epochs} epochs", len(rows["train"]), len(rows["test"])),
        "trainable_parameters": fitted.trained_parameters, "cut": inputs["train"].cut + inputs["test"].cut,
        **{init: {split: metrics.summary(found) for split, found in splits.items()} for init, splits in scores.items()},
        "cost": {"tokens": trained, "flops": flops},
    }  # fmt: skip


if __name__ == "__main__":
    stage.main("finetune", finetune)
