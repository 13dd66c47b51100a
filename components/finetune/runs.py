"""A model on a task over the seeds: what the stages `finetune`, `adapt` and `transfer` have in common."""

import json
import resource
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from lightning import Fabric

from components import compute, models, params, stage, tasks, tokenizer
from components.errors import SesameError
from components.finetune import kinds, loop
from components.finetune.data import Encoded
from components.finetune.methods import METHODS
from components.tasks import Example, metrics
from components.tokenizer import Tokenizer
from components.tracking import Run


def machine(config: params.Finetune) -> Fabric:
    """Where and in which precision to train. Raises SesameError where that is not to be had."""
    compute.prepare(config.threads)
    try:
        return Fabric(accelerator=config.accelerator, devices=1, precision=compute.precision(config.precision, config.accelerator))
    except RuntimeError as error:
        raise SesameError(f"finetune.accelerator {config.accelerator}: {str(error).splitlines()[0]}") from None


def selection(recipe: params.Recipe) -> str:
    """Which weights count, for every table."""
    if recipe.patience is None:
        return f"last of {recipe.epochs} epochs, nothing selected on dev"
    return f"best of up to {recipe.epochs} epochs on dev (patience {recipe.patience})"


def examples(all_params: params.Params, name: str) -> dict[str, list[Example]]:
    """The examples of every split: the subset that is learned from, those that are judged, and all that are submitted.

    Raises SesameError where those to classify from have one label only.
    """
    config, task, folder = all_params.finetune, all_params.tasks[name], Path("data/tasks", name)
    rows = {}
    for split, block in task.splits.items():
        size = config.train_examples if split == "train" else config.eval_examples if block.labelled else None
        rows[split] = tasks.subset(tasks.read(folder, split), size, all_params.seed)
    if task.kind == "classification" and len({row.label for row in rows["train"]}) == 1:
        raise SesameError(f"the {len(rows['train'])} training examples drawn from {name} have one label only; raise finetune.train_examples")
    return rows


def judged(task: params.Task) -> str:
    """The split that tables show: test where it has labels, else dev."""
    return "test" if task.test and task.test.labelled else "dev"


def compare(
    all_params: params.Params, model_name: str, folders: Mapping[int, Path], task_name: str, recipe: params.Recipe, inits: list[str], scores_folder: Path,
    run: Run, tags: Mapping[str, str],
) -> dict:  # fmt: skip
    """Adapt a model to a task from each of `inits` over the seeds; write the predictions, return the metrics.

    `folders` has the model's folder for each seed; `tags` go onto the ledger's run of each training.
    """
    task = all_params.tasks[task_name]
    fabric, rows = machine(all_params.finetune), examples(all_params, task_name)
    folder = next(iter(folders.values()))
    tokens = readable(folder, recipe)
    encoded: dict[str, Encoded] = {}
    scores: dict[str, dict[str, list]] = {}
    costs: dict[str, dict[str, float]] = {}
    predictions, flops, trained = [], 0, 0
    for init in inits:
        scores[init] = {split: [] for split, block in task.splits.items() if block.labelled and split != "train"}
        wanted = [split for split, block in task.splits.items() if block.labelled or init == "pretrained"]  # of these predictions are submitted
        read, read_from, reading, seconds, epochs = {}, None, 0.0, [], []
        for seed, folder in folders.items():
            torch.manual_seed(seed)
            model, _ = models.load(folder, pretrained=init == "pretrained")
            kind = kinds.build(task, recipe)
            pair = rows["train"][0].text_b is not None
            whole = models.count_parameters(model)
            module = fabric.to_device(METHODS[recipe.method](model, tokens, recipe, kind, pair))
            if not encoded:
                encoded = {split: kind.encode(part, tokens, module.joined) for split, part in rows.items()}
                for split, part in encoded.items():
                    if part.cut:
                        print(f"{split}: {part.cut:,} of {len(part):,} examples cut, {part.lost:,} lost their answer or a marked word", flush=True)
            if folder != read_from or init == "random":  # what the same frozen weights make of the texts is the same for every seed
                started = time.perf_counter()
                read, read_from = {"train": module.inputs(encoded["train"], fabric)}, folder
                reading = time.perf_counter() - started
                read |= {split: module.inputs(encoded[split], fabric) for split in wanted if split != "train"}
                flops += sum(texts.flops for texts in read.values())
            about = {"model": model_name, "task": task_name, "init": init, "seed": str(seed), "method": recipe.method, **tags}
            with run.child(f"{model_name}-{task_name} {recipe.method} {init} {seed}", about, recipe.model_dump(mode="json")) as child:
                fitted = loop.fit(
                    fabric, module, kind, read["train"], recipe, seed, lambda epoch, loss, child=child: child.log({"train_loss": loss}, epoch),
                    lambda found: metrics.evaluate(task, "dev", rows["dev"], found)[task.metric], read["dev"],
                )  # fmt: skip
                for split in [split for split in wanted if split != "train"]:
                    found = fitted.predict(read[split])
                    predictions += [
                        {"init": init, "seed": seed, "split": split, "id": example.id, "prediction": value, "label": example.label}
                        for example, value in zip(rows[split], found, strict=True)
                    ]
                    if split in scores[init]:
                        scores[init][split].append(metrics.evaluate(task, split, rows[split], found))
                score = scores[init][judged(task)][-1].get(task.metric)
                child.log({split: found[-1] for split, found in scores[init].items()} | {"score": score, "seconds": fitted.seconds})
            flops += fitted.flops
            trained += fitted.tokens
            seconds.append(reading + fitted.seconds)
            epochs.append(fitted.epochs)
            shown = ", ".join(f"{split} {' '.join(f'{name} {metrics.shown(value)}' for name, value in found[-1].items())}" for split, found in scores[init].items())
            print(f"{init} seed {seed}: {shown}; {fitted.epochs} epochs in {fitted.seconds:.1f} s", flush=True)
        costs[init] = {"seconds": statistics.fmean(seconds), "epochs": statistics.fmean(epochs), "memory_mib": peak_memory(fabric)}
    predictions.sort(key=lambda row: list(rows).index(row["split"]))
    with stage.output(scores_folder) as target:
        target.mkdir(parents=True)
        (target / "predictions.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in predictions), encoding="utf-8")
    protocol = metrics.protocol(judged(task), selection(recipe), len(rows["train"]), len(rows[judged(task)]))
    return {
        "model": model_name, "intermediate": models.intermediate(folder), "task": task_name, "method": recipe.method,
        "metric": task.metric, "split": judged(task), "protocol": protocol,
        "trainable_parameters": fitted.trained_parameters, "trainable_share": fitted.trained_parameters / (whole + models.count_parameters(module.head)),
        "costs": costs, "cut": {split: part.cut for split, part in encoded.items()}, "lost": {split: part.lost for split, part in encoded.items()},
        **{init: {split: metrics.summary(found) for split, found in splits.items()} for init, splits in scores.items()},
        "cost": {"tokens": trained, "flops": flops, "gpus": int(fabric.device.type == "cuda")},
    }  # fmt: skip


def readable(folder: Path, recipe: params.Recipe) -> Tokenizer:
    """A model's tokenizer. Raises SesameError where the recipe's inputs are longer than what the model reads."""
    longest = models.architecture(folder).max_length
    if recipe.max_length > longest:
        raise SesameError(f"max_length {recipe.max_length} of the recipe is more than the {longest} tokens that {folder.name} reads")
    return tokenizer.load(folder)


def peak_memory(fabric: Fabric) -> float:
    """MiB: of the accelerator, or on a CPU of the process."""
    if fabric.device.type == "cuda":
        return torch.cuda.max_memory_allocated(fabric.device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
