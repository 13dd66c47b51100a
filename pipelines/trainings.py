"""What a stage trains, and on how much of it, as params.yaml says: what its time and memory follow from."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from components import params, stage

FILL = 0.55
"""Share of a recipe's `max_length` that an example takes, as in the default tasks."""
UNSEEN = {"train": 10_000, "dev": 1000, "test": 1000}
"""Examples of a task that was never made."""
FROZEN = ("features", "mix", "linear_probe")
"""Methods that read the texts through the model once, and never backward."""


class Tuning(NamedTuple):
    """A fine-tuning."""

    recipe: params.Recipe
    examples: float
    """Of a task, in an epoch."""
    judged: float
    """Of the other splits."""
    machine: params.Finetune

    @property
    def tokens(self) -> float:
        """As many as take a forward and a backward pass in the time that all takes."""
        passes = 1 / 3 if self.recipe.method in FROZEN else self.recipe.epochs
        return (self.examples * passes + self.judged / 3) * FILL * self.recipe.max_length


@dataclass(frozen=True)
class Training:
    """What a stage trains."""

    model: params.Model
    vocab_size: int
    runs: int
    """Trainings, one after the other."""
    tuning: Tuning | None = None

    @property
    def settings(self) -> params.Trainer | params.Finetune:
        """Where it is trained: accelerator, precision, threads."""
        return self.tuning.machine if self.tuning else self.model.trainer

    @property
    def devices(self) -> int:
        """That share a batch."""
        trainer = self.model.trainer
        return 1 if self.tuning else trainer.num_nodes * (trainer.devices if isinstance(trainer.devices, int) else 1)

    @property
    def rows(self) -> float:
        """Of a micro-batch on one device, each as long as the model reads at most."""
        if self.tuning:
            return self.tuning.recipe.batch_size * self.tuning.recipe.max_length / self.model.architecture.max_length
        return self.model.batch_size / self.model.trainer.accumulate / self.devices

    @property
    def shape(self) -> tuple:
        """Trainings of one shape take the same time for a token, and the same memory."""
        where = self.settings.model_dump(include={"accelerator", "devices", "num_nodes", "strategy", "precision", "threads", "compile"})
        recipe = self.tuning and self.tuning.recipe.model_dump(include={"method", "batch_size", "max_length", "hidden_size", "head"})
        own = recipe or (self.model.objective, self.model.batch_size, self.model.trainer.accumulate)
        return self.model.architecture, self.vocab_size, where, own

    def tokens(self, flops: float, per_step: float) -> float | None:
        """Read in all; None for a budget in minutes. `flops` are those of a token, `per_step` the tokens of a step."""
        budget = self.model.budget
        if self.tuning:
            return self.runs * self.tuning.tokens
        if budget.minutes:
            return None
        return self.runs * (budget.tokens or (budget.steps * per_step if budget.steps else budget.flops / flops))


def of(stage_name: str, all_params: params.Params) -> Training | None:
    """What a stage trains; None for one that trains no language model of params.yaml."""
    kind, _, name = stage_name.partition("@")
    config, adapt = all_params.finetune, all_params.adapt
    if kind == "pretrain" and name in all_params.models:
        return _training(all_params, all_params.models[name], 1)
    if kind == "intermediate" and name in all_params.intermediate:
        block = all_params.intermediate[name]
        return _tuned(all_params, block.model, [block.task], block.recipe, 1, block.train_examples)
    if kind in ("variant", "transfer") and name in all_params.variants:
        variant = all_params.variants[name]
        study = all_params.ablations[variant.study]
        model = params.varied(all_params.models, study, variant, study.seeds[0])
        if kind == "variant":
            return _training(all_params, model, len(study.seeds))
        runs = len(study.seeds) * (len(study.checkpoints) + 1)
        return _tuned(all_params, model, study.tasks, params.tuned(study, variant), runs, config.train_examples)
    pairs = {f"{model}-{task}": (model, task, config.recipes[model], len(config.inits)) for model in config.models for task in config.tasks}
    ways = {
        f"{model}-{way}-{task}": (model, task, adapt.recipes[way], 1)
        for model in adapt.models
        for way in adapt.methods
        for task in adapt.tasks
    }
    chosen = {"finetune": pairs, "adapt": ways}.get(kind, {}).get(name)
    if chosen is None:
        return None
    model, task, recipe, inits = chosen
    return _tuned(all_params, model, [task], recipe, len(config.seeds) * inits, config.train_examples)


def _training(all_params: params.Params, model: params.Model, runs: int, tuning: Tuning | None = None) -> Training:
    return Training(model, all_params.tokenizers[all_params.encodings[model.encoding].tokenizer].vocab_size, runs, tuning)


def _tuned(
    all_params: params.Params, model: str | params.Model, tasks: Sequence[str], recipe: params.Recipe, runs: int, limit: int | None
) -> Training | None:  # fmt: skip
    while isinstance(model, str):
        if model not in all_params.intermediate and model not in all_params.models:
            return None  # a checkpoint from elsewhere
        model = all_params.intermediate[model].model if model in all_params.intermediate else all_params.models[model]
    evaluated, examples, judged = all_params.finetune.eval_examples, [], []
    for task in tasks:
        path = stage.metrics_path("task", task)
        counts = stage.read_json(path)["examples"] if path.exists() else UNSEEN
        examples.append(min(limit or counts["train"], counts["train"]))
        judged.append(sum(min(evaluated or count, count) for split, count in counts.items() if split != "train"))
    return _training(
        all_params, model, runs * len(tasks), Tuning(recipe, statistics.fmean(examples), statistics.fmean(judged), all_params.finetune)
    )
