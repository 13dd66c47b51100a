"""Multi-task fine-tuning: all weights are trained on several tasks, with a head for each (MT-DNN, Liu et al. 2019) or as text (T5)."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.optim import AdamW

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.core.tracking import Run
from components.derive.tuned import module_weights
from components.finetune import loop, methods
from components.finetune.data import Batch, Encoded, Texts, batches
from components.finetune.task_setup import PreparedModel, TaskSetup, check_max_length
from components.models import store
from components.optimizers import factor
from components.optimizers.config import OptimizerBlock
from components.tasks import metrics


class Tasks(nn.Module):
    """One model with the heads of several tasks."""

    def __init__(self, prepared: dict[str, PreparedModel]):
        super().__init__()
        self.tuned = nn.ModuleDict({task: model.module for task, model in prepared.items()})

    def forward(self, task: str, texts: Texts, segments: Tensor) -> Tensor:
        return self.tuned[task](texts, segments)


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Train and save the model without its heads. Raises SesameError when the loss is not finite."""
    block = all_params.derived[name]
    return tune(all_params, block.tasks, block.by, Path("data/models", block.start), folder)


def tune(all_params: params.Params, tasks: Sequence[str], by: params.MultiTask, start: Path, folder: Path) -> dict:
    """Fine-tune the model of a folder on several tasks and save it."""
    recipe = by.recipe
    check_max_length(start, recipe)
    sizes = {task: {"train": by.examples_of(task), "dev": all_params.finetune.evaluated("dev")} for task in tasks}
    setups = {task: TaskSetup.load(all_params, task, sizes[task]) for task in tasks}
    prepared = heads(setups, start, by)
    data = {task: model.encode(setups[task].examples) for task, model in prepared.items()}
    first, about = next(iter(prepared.values())), store.about(start)
    model, fabric = first.module.model, next(iter(setups.values())).fabric
    drawn = {name: module_weights(model, name) for name in model.absent}
    module, tokens, flops, seen = fit(fabric, prepared, {task: splits["train"] for task, splits in data.items()}, by)

    module.eval()
    dev = {}
    for task, setup in setups.items():
        predictions = loop.predict(fabric, partial(module, task), prepared[task].kind, data[task]["dev"]).values
        dev[task] = metrics.evaluate(setup.task, "dev", setup.examples["dev"], predictions)
        print(f"{task}: dev {' '.join(f'{metric} {metrics.shown(value)}' for metric, value in dev[task].items())}", flush=True)
    absent = [name for name, before in drawn.items() if all(map(torch.equal, before, module_weights(model, name)))]
    step = {"by": "multitask", "on": " + ".join(tasks), "method": recipe.method, "tokens": tokens, "flops": flops}
    with storage.output(folder) as target:
        store.save(target, model.state_dict(), about.architecture, first.tokens, absent, [*about.lineage, step])
    gpus = int(next(iter(setups.values())).on_gpu)
    protocols = {task: setup.protocol(recipe, "dev", each_seed_draws=False) for task, setup in setups.items()}
    cost = {"tokens": tokens, "flops": flops, "gpus": gpus}
    return {"tasks": list(tasks), "dev": dev, "protocol": protocols, "examples": seen, "cost": cost}


def heads(setups: dict[str, TaskSetup], start: Path, by: params.MultiTask) -> dict[str, PreparedModel]:
    """A module for each task, all with the same model."""
    prepared: dict[str, PreparedModel] = {}
    for task, setup in setups.items():
        if not prepared:
            prepared[task] = setup.prepare(start, by.recipe, by.seed)
            continue
        first, kind = next(iter(prepared.values())), methods.build_kind(setup.task, by.recipe, task)
        module = methods.build(first.module.model, first.tokens, by.recipe, kind, setup.pair)
        prepared[task] = PreparedModel(setup.fabric.to_device(module), kind, first.tokens, by.seed)
    return prepared


def order(examples: dict[str, int], by: params.MultiTask, epoch: int, rng: np.random.Generator) -> list[str]:
    """The tasks of an epoch's steps: as many steps as one pass over all examples needs."""
    steps = {task: -(-count // by.recipe.batch_size) for task, count in examples.items()}
    counts, epochs = np.array([min(count, by.cap or count) for count in examples.values()], dtype=float), by.recipe.epochs
    if by.sampling == "proportional" and by.cap is None and by.temperature == 1:  # each example exactly once
        return rng.permutation([task for task, count in steps.items() for _ in range(count)]).tolist()
    powers = {"uniform": 0.0, "annealed": 1 - 0.8 * epoch / max(1, epochs - 1), "proportional": 1 / by.temperature}
    weights = counts ** powers[by.sampling]
    return rng.choice(list(examples), sum(steps.values()), p=weights / weights.sum()).tolist()


def endless(data: Encoded, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches of a task without end, in a new order after each pass."""
    while True:
        yield from batches(data, size, rng)


def fit(
    fabric: Fabric, prepared: dict[str, PreparedModel], data: dict[str, Encoded], by: params.MultiTask
) -> tuple[nn.Module, int, int, dict[str, int]]:  # fmt: skip
    """Train; returns the module of all tasks, the number of tokens, the FLOPs, and the examples seen of each task. Raises SesameError when
    a loss is not finite."""
    recipe, rng = by.recipe, np.random.default_rng([by.seed, 1])
    for task, model in prepared.items():
        model.kind.prepare_targets(data[task])
    first, *others = (model.module for model in prepared.values())
    groups = loop.optimizer_groups(first, recipe)
    for module in others:
        groups += loop.optimizer_groups(module.head, recipe)  # the model's weights are in the first group
    module, optimizer = fabric.setup(Tasks(prepared), AdamW(groups, fused=True))
    schedule = OptimizerBlock(learning_rate=recipe.learning_rate, warmup=recipe.warmup, schedule=recipe.schedule)
    streams = {
        task: endless(split, recipe.batch_size, np.random.default_rng([by.seed, 2, i])) for i, (task, split) in enumerate(data.items())
    }
    examples = {task: len(split) for task, split in data.items()}
    steps = recipe.epochs * sum(-(-count // recipe.batch_size) for count in examples.values())
    tokens, flops, flops_per_token, step, all_seen = 0, 0.0, {}, 0, Counter()

    for epoch in range(recipe.epochs):
        started, total, seen = time.perf_counter(), dict.fromkeys(examples, 0.0), dict.fromkeys(examples, 0)
        module.train()
        for task in order(examples, by, epoch, rng):
            batch = next(streams[task])
            for group in optimizer.param_groups:
                group["lr"] = group["full_lr"] * factor(schedule, (step + 0.5) / steps)
            texts, segments = fabric.to_device((batch.texts, batch.segments))
            padded = sum(text.shape[0] * text.shape[1] for text, _ in texts)
            with flop_counter() if task not in flops_per_token else nullcontext() as counter:
                loss = prepared[task].kind.loss(module(task, texts, segments).float(), data[task], batch)
                fabric.backward(loss)
            if counter:
                flops_per_token[task] = counter.get_total_flops() / padded
            flops += flops_per_token[task] * padded
            tokens += sum(int(lengths.sum()) for _, lengths in batch.texts)
            fabric.clip_gradients(module, optimizer, max_norm=1.0, error_if_nonfinite=False)  # the check below names the epoch
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total[task] += float(loss.detach()) * len(batch.index)
            seen[task] += len(batch.index)
            step += 1
        if not np.isfinite(sum(total.values())):
            raise SesameError(f"the loss is not a number in epoch {epoch + 1} of multi-task tuning; lower the recipe's learning_rate")
        all_seen.update(seen)
        losses = ", ".join(f"{task} {total[task] / max(1, seen[task]):.4f}" for task in examples)
        print(f"epoch {epoch + 1}: loss {losses}; {time.perf_counter() - started:.1f} s", flush=True)
    return module, tokens, int(flops), dict(all_seen)
