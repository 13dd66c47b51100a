"""`python -m components.labs.efficiency.point POINT-TASK`: fine-tune a point on a task over the seeds -> data/efficiency/<point>/<task>/.

It has `all/predictions.jsonl` (with early exits a folder per threshold), `train_logits.npy` (seeds, examples, labels) for points
with this one as teacher, and `module.safetensors` of the first seed, which the page measures.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, softmax

from components import params
from components.comparison import calibration
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import loop, runs
from components.finetune.data import Batch, Encoded
from components.finetune.kinds import Classification
from components.finetune.methods import lora
from components.finetune.methods.early_exit import EarlyExit
from components.finetune.task_setup import PreparedModel, TaskSetup, check_max_length, reported_split
from components.labs.efficiency import exits, factorised, measure, quantised
from components.stages import stage
from components.stages.outputs import reading
from components.tasks import metrics

FOLDER = Path("data/efficiency")


def label(point: str, threshold: float | None) -> str:
    """The name of a point in tables, with its threshold."""
    return point if threshold is None else f"{point} at {threshold:g}"


def predictions_folder(folder: Path, threshold: float | None) -> Path:
    """The folder of a point's predictions."""
    return folder / ("all" if threshold is None else f"{threshold:g}")


class DistilledClassification(Classification):
    """The loss on the labels plus that on a teacher's outputs (Hinton et al. 2015, section 2): the gradient of soft targets is
    proportional to 1 / temperature², which is compensated."""

    def __init__(self, task: params.Task, recipe: params.Recipe, logits: np.ndarray, point: params.Point):
        super().__init__(task, recipe)
        self.logits, self.point = Tensor(logits), point

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        temperature, weight = self.point.teacher_temperature, self.point.teacher_weight
        targets = softmax(self.logits[batch.index].to(output.device) / temperature, 1)
        soft = kl_div(log_softmax(output / temperature, 1), targets, reduction="batchmean") * temperature**2
        return weight * soft + (1 - weight) * super().loss(output, data, batch)


@dataclass(frozen=True)
class PointSetup:
    """A point on a task."""

    point: str
    settings: params.Point
    recipe: params.Recipe
    setup: TaskSetup

    @classmethod
    def load(cls, all_params: params.Params, point: str, task: str) -> "PointSetup":
        block = all_params.efficiency
        recipe = block.tuned(point).of_start(block.points[point].init)
        check_max_length(Path("data/models", block.points[point].model), recipe)
        return cls(point, block.points[point], recipe, TaskSetup.load(all_params, task))

    def prepare(self, seed: int) -> PreparedModel:
        """The model to train: factorised, and with simulated quantisation, if the point is so."""
        prepared = self.setup.prepare(Path("data/models", self.settings.model), self.recipe, seed, self.settings.init)
        if self.settings.factorised:
            factorised.factorise(prepared.module, self.settings.factorised)
        if self.settings.quantised and self.settings.quantised.trained:
            quantised.simulate(prepared.module, self.settings.quantised)
        return prepared

    def answering(self, module: nn.Module) -> nn.Module:
        """The trained module as it answers: on the CPU whose time is measured, low-rank updates within their weights."""
        module = module.cpu().eval()
        if self.recipe.method == "lora":
            lora.merge(module)
        return module


@dataclass
class Outcome:
    """The results of a point at one threshold, over the seeds."""

    scores: dict[str, list[dict]]
    calibration: dict[str, list[dict]]
    """After calibration on dev, and before."""
    rows: list[dict]
    exits: list[list[float]]
    """For each seed the share of examples of the reported split that took each exit; empty with a single exit."""


def point(all_params: params.Params, name: str, run: Run) -> dict:
    """Fine-tune over the seeds and write the predictions; returns the scores, their calibration, and the cost."""
    declared = all_params.efficiency.runs
    if name not in declared:
        raise SesameError(f"no point {name!r} in efficiency of {params.STUDIES} (there are: {', '.join(declared) or 'none'})")
    point_name, task = declared[name]
    point_setup = PointSetup.load(all_params, point_name, task)
    settings, recipe, setup, folder = point_setup.settings, point_setup.recipe, point_setup.setup, FOLDER / point_name / task
    run.tag(model=settings.model, task=task, method=recipe.method, point=point_name)
    splits = [split for split, config in setup.task.splits.items() if config.labelled and split != "train"]
    thresholds = all_params.efficiency.thresholds if recipe.method == "early_exit" else [None]
    outcomes = {threshold: Outcome({split: [] for split in splits}, {split: [] for split in splits}, [], []) for threshold in thresholds}
    train_logits, temperatures, tokens, flops, seconds = [], [], 0, 0, []
    teacher = _taught(settings.teacher, task) if settings.teacher else None
    with storage.output(folder) as target:
        target.mkdir(parents=True)
        for i, seed in enumerate(all_params.finetune.seeds):
            prepared = point_setup.prepare(seed)
            kind = prepared.kind if teacher is None else DistilledClassification(setup.task, recipe, teacher[i], settings)
            encoded = prepared.encode(setup.for_seed(seed).examples)
            started = time.perf_counter()
            inputs = {split: prepared.module.inputs(encoded[split], setup.fabric) for split in ("train", "dev")}
            seconds.append(time.perf_counter() - started)
            result = loop.fit(
                setup.fabric, prepared.module, kind, inputs["train"], recipe, seed, lambda epoch, loss: None,
                setup.dev_score(), inputs["dev"],
            )  # fmt: skip
            if i == 0:
                save_model(prepared.module, str(target / "module.safetensors"))
            module = point_setup.answering(prepared.module)
            answer = measure.answering(quantised.convert(module, settings.quantised).eval() if settings.quantised else module)
            size = 1 if quantised.depends_on_batch(settings.quantised) else 4 * measure.TOGETHER
            logits = {split: measure.logits(answer, encoded[split], size) for split in splits}
            temperatures.append(_temperatures(setup, logits["dev"]))
            for threshold, outcome in outcomes.items():
                rule = exits.ExitRule(temperatures[-1], threshold or 1)
                _score(setup, outcome, settings.init, seed, {split: _answers(rule, values) for split, values in logits.items()})
            if recipe.method != "early_exit":
                train_logits.append(measure.logits(answer, encoded["train"], size)[:, 0])
            tokens, flops = tokens + result.tokens, flops + result.flops + sum(data.flops for data in inputs.values())
            seconds[-1] += result.seconds
            print(f"{point_name} seed {seed}: {task} {reported_split(setup.task)} {metrics.shown(_newest(setup, outcome))}", flush=True)
        for threshold, outcome in outcomes.items():
            runs.write_predictions(predictions_folder(target, threshold), outcome.rows, list(setup.examples))
        if train_logits:
            np.save(target / "train_logits.npy", np.stack(train_logits))
    return {
        "point": point_name, "task": task, "metric": setup.task.metric, "split": reported_split(setup.task),
        "protocol": setup.protocol(recipe),
        "temperatures": temperatures, "seconds": seconds,
        "scores": {
            label(point_name, threshold): {
                "threshold": threshold, "calibration": runs.summaries(outcome.calibration), "exits": outcome.exits,
                **runs.summaries(outcome.scores),
            }
            for threshold, outcome in outcomes.items()
        },
        "cost": {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)},
    }  # fmt: skip


def _taught(teacher: str, task: str) -> np.ndarray:
    """The teacher's logits of the training examples, (seeds, examples, labels)."""
    with reading(logits := FOLDER / teacher / task / "train_logits.npy"):
        return np.load(logits)


def _temperatures(setup: TaskSetup, dev: np.ndarray) -> list[float]:
    """The temperature of each exit, fitted on dev (examples, exits, labels)."""
    labels = calibration.label_indices(setup.task, setup.examples["dev"])
    return [calibration.fitted_temperature(dev[:, exit], labels) for exit in range(dev.shape[1])]


class Answers(NamedTuple):
    """The answers to a split."""

    logits: np.ndarray
    """(examples, labels)."""
    calibrated: np.ndarray
    """Divided by the temperature of their exit."""
    shares: list[float]
    """The share of answers of each exit."""


def _answers(rule: exits.ExitRule, logits: np.ndarray) -> Answers:
    """The answers by a rule, given the logits of all exits (examples, exits, labels)."""
    taken = rule.exits(logits)
    answers, shares = logits[np.arange(len(taken)), taken], np.bincount(taken, minlength=logits.shape[1]) / len(taken)
    return Answers(answers, answers / np.array(rule.temperatures)[taken, None], shares.tolist())


def _score(setup: TaskSetup, outcome: Outcome, init: str, seed: int, by_split: dict[str, Answers]) -> None:
    """Add the scores of a run, and the shares of its exits, to its outcome."""
    for split, (logits, calibrated, shares) in by_split.items():
        examples, labels = setup.examples[split], calibration.label_indices(setup.task, setup.examples[split])
        values = [setup.task.labels[i] for i in logits.argmax(1)]
        outcome.rows += runs.prediction_rows(init, seed, split, examples, values)
        outcome.scores[split].append(metrics.evaluate(setup.task, split, examples, values))
        outcome.calibration[split].append({
            f"{name}{suffix}": value
            for suffix, scaled in (("", calibrated), ("_before", logits))
            for name, value in calibration.evaluate(calibration.probabilities(scaled), labels).items()
        })  # fmt: skip
        if len(shares) > 1 and split == reported_split(setup.task):
            outcome.exits.append(shares)


def _newest(setup: TaskSetup, outcome: Outcome) -> float | None:
    return outcome.scores[reported_split(setup.task)][-1][setup.task.metric]


@dataclass(frozen=True)
class BuiltPoint:
    """The module of the first seed, to be run on the CPU."""

    answers: dict[str, measure.Answer]
    """Name in tables -> the function to measure."""
    split: Encoded
    """Inputs of the reported split."""
    parameters: int
    bytes: int
    flops: dict[str, float]


def build(all_params: params.Params, point_name: str, task: str, measured: dict) -> BuiltPoint:
    """Rebuild a point from its weights, quantise it, and count its operations and bytes."""
    point_setup = PointSetup.load(all_params, point_name, task)
    first = all_params.finetune.seeds[0]
    prepared = point_setup.prepare(first)
    load_model(prepared.module, str(FOLDER / point_name / task / "module.safetensors"))
    split = prepared.encode(point_setup.setup.for_seed(first).examples)[reported_split(point_setup.setup.task)]
    module = point_setup.answering(prepared.module)
    used = measure.weights(module, split)
    size = quantised.size(used, module, point_setup.settings.quantised)
    answers = dict(_measured(all_params, point_setup, module, measured))
    # FLOPs are those of the module before quantisation: the counter does not count integer products, which are as many
    flops = {name: measure.flops(answer, split, all_params.efficiency.examples) for name, answer in answers.items()}
    if point_setup.settings.quantised:
        converted = quantised.convert(module, point_setup.settings.quantised).eval()
        answers = {point_name: measure.answering(converted)}
    return BuiltPoint(answers, split, sum(parameter.numel() for parameter in used), size, flops)


def _measured(
    all_params: params.Params, point_setup: PointSetup, module: nn.Module, measured: dict
) -> Iterator[tuple[str, measure.Answer]]:
    """A point once, or at each threshold."""
    if not isinstance(module, EarlyExit):
        yield point_setup.point, measure.answering(module)
        return
    for threshold in all_params.efficiency.thresholds:
        rule = exits.ExitRule(measured["temperatures"][0], threshold)
        yield label(point_setup.point, threshold), partial(module.predict_until, rule.confident)


def metrics_file(all_params: params.Params, name: str) -> Path:
    """Next to the predictions: data/metrics belongs to the root pipeline."""
    return FOLDER.joinpath(*all_params.efficiency.runs[name], "metrics.json")


if __name__ == "__main__":
    stage.main("point", point, metrics_file=metrics_file)
