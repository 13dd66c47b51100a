"""The training of a stage by params.yaml, from which its time and memory are estimated: the model, and how many
tokens."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from components import params
from components.stages.outputs import last_metrics

FILL = 0.55
"""Share of a recipe's `max_length` that an example takes, as in the default tasks."""
UNSEEN = {"train": 10_000, "dev": 1000, "test": 1000}
"""Examples of a task that was never made."""


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
        """Tokens, counted in full training passes: a forward pass alone counts a third."""
        passes = 1 / 3 if self.recipe.method in params.FROZEN else self.recipe.epochs
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
    def where(self) -> tuple[str, str, int | None]:
        """Accelerator, precision, threads."""
        machine = self.tuning and self.tuning.machine
        if machine:
            return machine.accelerator, machine.precision, machine.threads
        return self.model.run.accelerator, self.model.trainer.precision, self.model.trainer.threads

    @property
    def devices(self) -> int:
        """Devices that share a batch."""
        run = self.model.run
        return 1 if self.tuning else run.num_nodes * (run.devices if isinstance(run.devices, int) else 1)

    @property
    def rows(self) -> float:
        """Rows of a micro-batch on one device, in rows of the model's full length."""
        if self.tuning:
            return self.tuning.recipe.batch_size * self.tuning.recipe.max_length / self.model.architecture.max_length
        return self.batch / math.lcm(self.model.trainer.accumulate, self.devices)  # micro-batches are those of all devices

    @property
    def batch(self) -> float:
        """Rows of a step of pre-training, of the phase that has most."""
        return max(rows for _, rows in self._phases)

    @property
    def step_tokens(self) -> float:
        """Tokens of a step with full rows, on average over the phases."""
        return self.model.architecture.max_length * sum(share * rows for share, rows in self._phases)

    @property
    def _phases(self) -> list[tuple[float, float]]:
        """The share of each phase in the budget, and the rows of its steps, in rows of the model's full length; the last one included."""
        model, longest = self.model, self.model.architecture.max_length
        phases = [(each.share, (each.batch_size or model.batch_size) * (each.max_length or longest) / longest) for each in model.phases]
        return [*phases, (1 - sum(share for share, _ in phases), model.batch_size)]

    @property
    def shape(self) -> tuple:
        """Trainings of one shape take the same time for a token, and the same memory."""
        trainer = self.model.trainer
        where = (*self.where, self.devices, self.model.run.strategy, trainer.compile, trainer.recompute)
        recipe = self.tuning and self.tuning.recipe.model_dump(include={"method", "batch_size", "max_length", "hidden_size", "head"})
        settings = recipe or (
            self.model.objective, self.model.batch_size, tuple(map(repr, self.model.phases)), trainer.accumulate,
        )  # fmt: skip
        return self.model.architecture, self.vocab_size, where, settings

    def tokens(self, flops: float, per_step: float) -> float | None:
        """Read in all; None for a budget in minutes. `flops` are those of a token, `per_step` the tokens of a step."""
        budget = self.model.budget
        if self.tuning:
            return self.runs * self.tuning.tokens
        if budget.minutes:
            return None
        return self.runs * (budget.tokens or (budget.steps * per_step if budget.steps else budget.flops / flops))


def of(stage_name: str, all_params: params.Params) -> Training | None:
    """What a stage trains; None for one that trains no language model of the params."""
    kind, _, name = stage_name.partition("@")
    config, adapt = all_params.finetune, all_params.adapt
    if kind == "pretrain" and name in all_params.models:
        return _training(all_params, all_params.models[name], len(all_params.models[name].seeds))
    if kind == "derive" and name in all_params.derived:
        return _derived(all_params, all_params.derived[name])
    if model := params.trained_on_text(all_params.models, all_params.studies, kind, name):
        return _training(all_params, model, 1)
    if member := _member(kind, name, all_params):
        study, all_params = all_params.studies[member.study], all_params.of_study(member.study)
        model = params.varied(all_params.models, study, member.variant, member.seed)
        if kind == "intermediate":
            return _tuned_first(all_params, model, study.variants[member.variant].intermediate, study.variants[member.variant].by)
        if (recipe := params.tuned(study, member.variant)) is None:
            return None  # nothing is tuned, only asked
        examples = study.variants[member.variant].train_examples or all_params.finetune.train_examples
        return _tuned(all_params, model, study.tasks, recipe, len(study.milestones) + 1, examples)
    pairs = {f"{model}-{task}": (model, task, config.recipes[model], len(config.inits)) for model in config.models for task in config.tasks}
    ways = {
        f"{model}-{way}-{task}": (model, task, adapt.recipes[way], 1)
        for model in adapt.models
        for way in adapt.methods
        for task in adapt.tasks
    }
    curve = all_params.learning_curve
    if kind == "learning_curve" and name in {f"{model}-{task}" for model in curve.models for task in curve.tasks}:
        model, _, task = name.rpartition("-")
        recipe, sizes = config.recipes[model], curve.train_examples
        # as many examples as would take the same passes under the recipe's own epochs
        examples = statistics.fmean(size * curve.lengthened(recipe, size).epochs / recipe.epochs for size in sizes)
        return _tuned(all_params, model, [task], recipe, len(config.seeds) * len(config.inits) * len(sizes), round(examples))
    chosen = {"finetune": pairs, "adapt": ways}.get(kind, {}).get(name)
    if chosen is None:
        return None
    model, task, recipe, inits = chosen
    return _tuned(all_params, model, [task], recipe, len(config.seeds) * inits, config.train_examples)


def _member(kind: str, name: str, all_params: params.Params) -> params.Member | None:
    """The training of a study that a stage fine-tunes; None for another stage."""
    if kind not in ("intermediate", "transfer"):
        return None
    return next((member for member in params.members(all_params.studies) if member.name == name), None)


def workload(stage_name: str, all_params: params.Params) -> tuple | None:
    """What a stage that trains nothing asks of models: its kind, their family, the evaluations, and how often. Where it is the same, stages
    take about the same time. None for another stage, and for a model from elsewhere."""
    kind, _, name = stage_name.partition("@")
    if kind == "evaluate":
        model, _, evaluation = name.rpartition("-")
        block = all_params.models.get(model)
        return block and (kind, block.architecture.name, (evaluation,), block.pretrainings)
    member = _member(kind, name, all_params)
    if member is None or kind != "transfer" or (study := all_params.studies[member.study]).tasks:
        return None
    model = params.varied(all_params.models, study, member.variant, member.seed)
    return kind, model.architecture.name, tuple(study.evaluations), len(study.milestones) + 1


def of_kinds(workload: tuple, all_params: params.Params) -> tuple:
    """The same workload with the kinds of its evaluations in place of their names: what an evaluation that is new takes, others of its kind
    took about."""
    kind, family, evaluations, times = workload
    blocks = (all_params.evaluations.get(name) for name in evaluations)
    return kind, family, tuple(block and f"of kind {block.kind}" for block in blocks), times


def past(
    stage_name: str, settings: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]], now: Training, all_params: params.Params
) -> Training | None:  # fmt: skip
    """What a stage trained when its settings were these and those of the models these; None where they do not fit any more.

    Where it ran is not known of it, and taken for where it runs now.
    """
    kind, _, name = stage_name.partition("@")
    try:
        if kind in ("pretrain", "variant", "rate_trial", "variant_at_rate", "further"):
            block = {key: value for key, value in settings.items() if key in params.Model.model_fields}
            return replace(now, model=_as_now(block, now), runs=block.get("pretrainings", 1))
        if kind not in ("finetune", "adapt", "transfer"):
            return None
        root = all_params.root(name.partition("-")[0])
        model = _as_now(models[root], now) if kind != "transfer" and root in models else now.model
        common = {key: settings[key] for key in ("train_examples", "eval_examples", "precision", "threads")}
        then = all_params.model_copy(update={"finetune": now.tuning.machine.model_copy(update=common)})
        tasks = list(settings.get("tasks", [name.rpartition("-")[2]]))
        if kind == "transfer":
            runs = len(settings["milestones"]) + 1
        else:
            runs = len(settings["seeds"]) * len(settings.get("inits", ["pretrained"]))
        return _tuned(then, model, tasks, params.Recipe.model_validate(settings["recipe"]), runs, settings["train_examples"])
    except (ValidationError, KeyError):
        return None


def _as_now(block: Mapping[str, Any], now: Training) -> params.Model:
    """The block of a model as it was, run where it runs now."""
    return params.Model.model_validate({**block, "run": now.model.run})


def _derived(all_params: params.Params, derived: params.Derived) -> Training | None:
    if derived.tasks:
        return _tuned_first(all_params, derived.start, derived.tasks, derived.by)
    if not isinstance(derived.by, params.Training):
        return None  # seconds
    architecture = all_params.architecture(derived.start)
    fields = {key: getattr(derived.by, key) for key in params.Training.model_fields}
    model = params.Model.model_construct(**fields, encoding=derived.on.partition("/")[2], architecture=architecture)
    return _training(all_params, model, 1)


def _tuned_first(
    all_params: params.Params, model: str | params.Model, tasks: Sequence[str], by: params.Tuned | params.MultiTask
) -> Training | None:
    """Before other tasks come."""
    return _tuned(all_params, model, tasks, by.recipe, 1, {task: by.examples_of(task) for task in tasks})


def _training(all_params: params.Params, model: params.Model, runs: int, tuning: Tuning | None = None) -> Training:
    return Training(model, all_params.tokenizers[all_params.encodings[model.encoding].tokenizer].most_ids, runs, tuning)


def _tuned(
    all_params: params.Params, model: str | params.Model, tasks: Sequence[str], recipe: params.Recipe, runs: int,
    limit: int | None | Mapping[str, int | None],
) -> Training | None:  # fmt: skip
    if isinstance(model, str):
        if (root := all_params.root(model)) not in all_params.models:
            return None  # a checkpoint from elsewhere
        model = all_params.models[root].model_copy(update={"architecture": all_params.architecture(model)})
    config, examples, judged = all_params.finetune, [], []
    for task in tasks:
        counts = last_metrics("task", task).get("examples", UNSEEN)
        most = limit[task] if isinstance(limit, Mapping) else limit
        examples.append(min(most or counts["train"], counts["train"]))
        judged.append(sum(min(config.evaluated(split) or count, count) for split, count in counts.items() if split != "train"))
    return _training(
        all_params, model, runs * len(tasks), Tuning(recipe, statistics.fmean(examples), statistics.fmean(judged), config)
    )
