"""A model on a task over the seeds: what the stages `finetune` and `adapt` have in common."""

import json
import resource
import statistics
from pathlib import Path
from typing import Any

import torch
from lightning import Fabric

from components import compute, models, params, stage, tasks
from components.errors import SesameError
from components.finetune import kinds, loop
from components.finetune.data import Encoded
from components.finetune.methods import METHODS
from components.tasks import Example, metrics
from components.tokenizer import Tokenizer
from components.tracking import Run


def machine(config: params.Finetune) -> Fabric:
    """Where and in which precision to train."""
    compute.prepare(config.threads)
    return Fabric(accelerator=config.accelerator, devices=1, precision=compute.precision(config.precision, config.accelerator))


def examples(all_params: params.Params, name: str) -> dict[str, list[Example]]:
    """The examples of every split: the subset that is learned from, those that are judged, and all that are submitted."""
    config, task, folder = all_params.finetune, all_params.tasks[name], Path("data/tasks", name)
    rows = {}
    for split, block in task.splits.items():
        size = config.train_examples if split == "train" else config.eval_examples if block.labelled else None
        rows[split] = tasks.subset(tasks.read(folder, split), size, all_params.seed)
    return rows


def judged(task: params.Task) -> str:
    """The split that tables show: test where it has labels, else dev."""
    return "test" if task.test and task.test.labelled else "dev"


def compare(
    all_params: params.Params, model_name: str, task_name: str, recipe: params.Recipe, inits: list[str], scores_folder: Path, run: Run
) -> dict:
    """Adapt a model to a task from each of `inits` over the seeds; write the predictions, return the metrics."""
    config, task, folder = all_params.finetune, all_params.tasks[task_name], Path("data/models", model_name)
    fabric, rows = machine(config), examples(all_params, task_name)
    tokens = readable(folder, recipe)
    encoded: dict[bool, dict[str, Encoded]] = {}
    scores: dict[str, dict[str, list]] = {}
    predictions, seconds, epochs, flops, trained = [], [], [], 0, 0
    for init in inits:
        scores[init] = {split: [] for split, block in task.splits.items() if block.labelled and split != "train"}
        read = {}
        for seed in config.seeds:
            torch.manual_seed(seed)
            model, _ = models.load(folder, pretrained=init == "pretrained")
            kind = kinds.build(task, recipe)
            pair = rows["train"][0].text_b is not None
            whole = models.count_parameters(model)
            module = fabric.to_device(METHODS[recipe.method](model, tokens, recipe, kind, pair))
            if module.joined not in encoded:
                encoded[module.joined] = {split: kind.encode(part, tokens, module.joined) for split, part in rows.items()}
            if not read or init == "random":  # what frozen pre-trained weights make of the texts is the same for every seed
                read = {split: module.inputs(texts, fabric) for split, texts in encoded[module.joined].items()}
                flops += sum(texts.flops for texts in read.values())
            tags = {"stage": "finetune", "model": model_name, "task": task_name, "init": init, "seed": str(seed), "method": recipe.method}
            with run.child(f"{model_name}-{task_name} {recipe.method} {init} {seed}", tags, recipe.model_dump(mode="json")) as child:
                fitted = loop.fit(
                    fabric, module, kind, read["train"], recipe, seed, lambda epoch, loss, child=child: child.log({"train_loss": loss}, epoch),
                    lambda found: metrics.evaluate(task, "dev", rows["dev"], found)[task.metric], read["dev"],
                )  # fmt: skip
                for split in rows.keys() - {"train"}:
                    found = fitted.predict(read[split])
                    predictions += [
                        {"init": init, "seed": seed, "split": split, "id": example.id, "prediction": value, "label": example.label}
                        for example, value in zip(rows[split], found, strict=True)
                    ]
                    if split in scores[init]:
                        scores[init][split].append(metrics.evaluate(task, split, rows[split], found))
                child.log({split: found[-1] for split, found in scores[init].items()} | {"seconds": fitted.seconds})
            flops += fitted.flops
            seconds.append(fitted.seconds)
            epochs.append(fitted.epochs)
            trained += fitted.epochs * sum(len(text) for texts in encoded[module.joined]["train"].texts for text in texts)
            shown = ", ".join(f"{split} {' '.join(f'{name} {metrics.shown(value)}' for name, value in found[-1].items())}" for split, found in scores[init].items())
            print(f"{init} seed {seed}: {shown}; {fitted.epochs} epochs in {fitted.seconds:.1f} s", flush=True)
    predictions.sort(key=lambda row: list(rows).index(row["split"]))
    with stage.output(scores_folder) as target:
        target.mkdir(parents=True)
        (target / "predictions.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in predictions), encoding="utf-8")
    run.tag(model=model_name, task=task_name, method=recipe.method)
    texts = encoded[module.joined]
    selection = f"last of {recipe.epochs} epochs, nothing selected on dev"
    if recipe.patience is not None:
        selection = f"best of up to {recipe.epochs} epochs on dev (patience {recipe.patience})"
    return {
        "model": model_name, "intermediate": intermediate_tasks(all_params, model_name), "task": task_name, "method": recipe.method,
        "metric": task.metric, "split": judged(task), "protocol": metrics.protocol(judged(task), selection, len(rows["train"]), len(rows[judged(task)])),
        "trainable_parameters": fitted.trained_parameters, "trainable_share": fitted.trained_parameters / (whole + models.count_parameters(module.head)),
        "memory_mib": peak_memory(fabric), "seconds": statistics.fmean(seconds), "epochs": statistics.fmean(epochs),
        "cut": {split: part.cut for split, part in texts.items()}, "lost": {split: part.lost for split, part in texts.items()},
        **{init: {split: metrics.summary(found) for split, found in splits.items()} for init, splits in scores.items()},
        "cost": {"tokens": trained, "flops": flops},
    }  # fmt: skip


def readable(folder: Path, recipe: params.Recipe) -> Tokenizer:
    """A model's tokenizer. Raises SesameError where the recipe's inputs are longer than what the model reads."""
    model, tokens = models.load(folder)
    if recipe.max_length > model.max_length:
        raise SesameError(f"max_length {recipe.max_length} of the recipe is more than the {model.max_length} tokens that {folder.name} reads")
    return tokens


def intermediate_tasks(all_params: params.Params, model: str) -> list[str]:
    """The tasks that a model was tuned on before, first to last: to be named beside every score of it."""
    found: list[str] = []
    while model in all_params.intermediate:
        block = all_params.intermediate[model]
        found, model = [block.task, *found], block.model
    return found


def peak_memory(fabric: Fabric) -> float:
    """MiB: of the accelerator, or on a CPU of the process."""
    if fabric.device.type == "cuda":
        return torch.cuda.max_memory_allocated(fabric.device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def tune(all_params: params.Params, block: params.Intermediate) -> tuple[torch.nn.Module, Tokenizer, dict[str, Any]]:
    """A model tuned on one task with all its weights, and what that took."""
    if block.recipe.method != "full":
        raise SesameError(f"an intermediate task tunes all weights: method full, not {block.recipe.method}")
    task, fabric, folder = all_params.tasks[block.task], machine(all_params.finetune), Path("data/models", block.model)
    rows = {
        "train": tasks.subset(tasks.read(Path("data/tasks", block.task), "train"), block.train_examples, all_params.seed),
        "dev": tasks.subset(tasks.read(Path("data/tasks", block.task), "dev"), all_params.finetune.eval_examples, all_params.seed),
    }
    readable(folder, block.recipe)
    torch.manual_seed(block.seed)
    model, tokens = models.load(folder)
    kind = kinds.build(task, block.recipe)
    module = fabric.to_device(METHODS["full"](model, tokens, block.recipe, kind, rows["train"][0].text_b is not None))
    data = {split: kind.encode(part, tokens) for split, part in rows.items()}
    fitted = loop.fit(
        fabric, module, kind, data["train"], block.recipe, block.seed, lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.4f}", flush=True),
        lambda found: metrics.evaluate(task, "dev", rows["dev"], found)[task.metric], data["dev"],
    )  # fmt: skip
    scores = metrics.evaluate(task, "dev", rows["dev"], fitted.predict(data["dev"]))
    trained = fitted.epochs * sum(len(text) for texts in data["train"].texts for text in texts)
    return model, tokens, {"dev": scores, "cost": {"tokens": trained, "flops": fitted.flops}}
