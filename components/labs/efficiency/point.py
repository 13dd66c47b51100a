"""`python -m components.labs.efficiency.point POINT-TASK`: tune a point on a task over the seeds -> data/efficiency/<point>/<task>/.

In it `all/predictions.jsonl` (where layers are left out a folder for each threshold), `train_logits.npy` (seeds, examples, labels) for
points that this one teaches, and of the first seed `module.safetensors`, which the page runs.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
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
from components.finetune.methods.early_exit import EarlyExit
from components.finetune.task_setup import PreparedModel, TaskSetup, check_max_length, reported_split
from components.labs.efficiency import exits, factorised, measure, quantised
from components.stages import stage
from components.tasks import metrics

FOLDER = Path("data/efficiency")


def label(point: str, threshold: float | None) -> str:
    """As tables call a point, or one left at a threshold."""
    return point if threshold is None else f"{point} at {threshold:g}"


def predictions(folder: Path, threshold: float | None) -> Path:
    """Where those of a point stand."""
    return folder / ("all" if threshold is None else f"{threshold:g}")


class Taught(Classification):
    """The labels beside what a teacher makes of the examples (Hinton et al. 2015, section 2): the gradient of soft targets is of the order
    1 / temperature², which is made up for."""

    def __init__(self, task: params.Task, recipe: params.Recipe, logits: np.ndarray, point: params.Point):
        super().__init__(task, recipe)
        self.logits, self.point = Tensor(logits), point

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        heat, weight = self.point.teacher_temperature, self.point.teacher_weight
        theirs = softmax(self.logits[batch.index].to(output.device) / heat, 1)
        soft = kl_div(log_softmax(output / heat, 1), theirs, reduction="batchmean") * heat**2
        return weight * soft + (1 - weight) * super().loss(output, data, batch)


@dataclass(frozen=True)
class Setting:
    """A point on a task."""

    point: str
    own: params.Point
    recipe: params.Recipe
    setup: TaskSetup

    @classmethod
    def of(cls, all_params: params.Params, point: str, task: str) -> "Setting":
        block = all_params.efficiency
        recipe = block.tuned(point)
        check_max_length(Path("data/models", block.points[point].model), recipe)
        return cls(point, block.points[point], recipe, TaskSetup.load(all_params, task))

    def prepare(self, seed: int) -> PreparedModel:
        """The model as it is tuned: with thin matrices, and weights rounded in training, where a point asks for that."""
        made = self.setup.prepare(Path("data/models", self.own.model), self.recipe, seed, self.own.init)
        if self.own.factorised:
            factorised.factorise(made.module, self.own.factorised)
        if self.own.quantised and self.own.quantised.trained:
            quantised.begin(made.module, self.own.quantised)
        return made


@dataclass
class Outcome:
    """What the runs of a point came to, at one threshold."""

    scores: dict[str, list[dict]]
    calibration: dict[str, list[dict]]
    """Calibrated on dev, and before."""
    rows: list[dict]
    exits: list[list[float]]
    """Of each seed the share of the judged examples that each exit has answered; empty where there is one."""


def point(all_params: params.Params, name: str, run: Run) -> dict:
    """Tune over the seeds, write what they say; the scores, how far to be believed, and the cost."""
    declared = all_params.efficiency.runs
    if name not in declared:
        raise SesameError(f"no point {name!r} in efficiency of {params.STUDIES} (there are: {', '.join(declared) or 'none'})")
    point_name, task = declared[name]
    setting, seeds = Setting.of(all_params, point_name, task), all_params.finetune.seeds
    own, recipe, setup, folder = setting.own, setting.recipe, setting.setup, FOLDER / point_name / task
    run.tag(model=own.model, task=task, method=recipe.method, point=point_name)
    splits = [split for split, block in setup.task.splits.items() if block.labelled and split != "train"]
    early, outcomes, taught, temperatures, tokens, flops, seconds = recipe.method == "early_exit", {}, [], [], 0, 0, []
    teacher = np.load(FOLDER / own.teacher / task / "train_logits.npy") if own.teacher else None
    with storage.output(folder) as target:
        target.mkdir(parents=True)
        for i, seed in enumerate(seeds):
            prepared = setting.prepare(seed)
            kind = prepared.kind if teacher is None else Taught(setup.task, recipe, teacher[i], own)
            encoded = prepared.encode(setup.examples)
            started = time.perf_counter()
            inputs = {split: prepared.module.inputs(encoded[split], setup.fabric) for split in ("train", "dev")}
            reading = time.perf_counter() - started
            fitted = loop.fit(
                setup.fabric, prepared.module, kind, inputs["train"], recipe, seed, lambda epoch, loss: None, setup.dev_score(), inputs["dev"],
            )  # fmt: skip
            module = prepared.module.cpu().eval()  # answers are those of the CPU that they are timed on
            if i == 0:
                save_model(module, str(target / "module.safetensors"))
            answer = measure.answering(quantised.end(module, own.quantised).eval() if own.quantised else module)
            size = 1 if quantised.by_batch(own.quantised) else 4 * measure.TOGETHER
            logits = {split: measure.logits(answer, encoded[split], size) for split in splits}
            temperatures.append(_temperatures(setup, logits["dev"]))
            given = {
                threshold: {split: _left(exits.Leaving(temperatures[-1], threshold or 1), own) for split, own in logits.items()}
                for threshold in (all_params.efficiency.thresholds if early else [None])
            }
            if not early:
                taught.append(measure.logits(answer, encoded["train"], size)[:, 0])
            for threshold, by_split in given.items():
                outcome = outcomes.setdefault(threshold, Outcome({split: [] for split in splits}, {split: [] for split in splits}, [], []))
                _judge(setup, outcome, own.init, seed, by_split)
            tokens, flops = tokens + fitted.tokens, flops + fitted.flops + sum(own.flops for own in inputs.values())
            seconds.append(reading + fitted.seconds)
            last = next(reversed(outcomes.values()))
            print(f"{point_name} seed {seed}: {task} {reported_split(setup.task)} {metrics.shown(_newest(setup, last))}", flush=True)
        for threshold, outcome in outcomes.items():
            runs.write_predictions(predictions(target, threshold), outcome.rows, list(setup.examples))
        if taught:
            np.save(target / "train_logits.npy", np.stack(taught))
    return {
        "point": point_name, "task": task, "metric": setup.task.metric, "split": reported_split(setup.task), "protocol": setup.protocol(recipe),
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


def _temperatures(setup: TaskSetup, dev: np.ndarray) -> list[float]:
    """One for each exit, on dev (examples, exits, labels)."""
    labels = calibration.label_indices(setup.task, setup.examples["dev"])
    return [calibration.fitted_temperature(dev[:, exit], labels) for exit in range(dev.shape[1])]


class Given(NamedTuple):
    """Answers to a split."""

    logits: np.ndarray
    """Of each example, as they came, (examples, labels)."""
    calibrated: np.ndarray
    """Divided by the temperature of their exit."""
    shares: list[float]
    """Of the answers that each exit gave."""


def _left(leaving: exits.Leaving, logits: np.ndarray) -> Given:
    """What is answered by a rule, by the logits of all exits (examples, exits, labels)."""
    at = leaving.left(logits)
    own, shares = logits[np.arange(len(at)), at], np.bincount(at, minlength=logits.shape[1]) / len(at)
    return Given(own, own / np.array(leaving.temperatures)[at, None], shares.tolist())


def _judge(setup: TaskSetup, outcome: Outcome, init: str, seed: int, by_split: dict[str, Given]) -> None:
    """Score a run's answers, and where they were given, into its outcome."""
    for split, (logits, calibrated, shares) in by_split.items():
        rows, labels = setup.examples[split], calibration.label_indices(setup.task, setup.examples[split])
        values = [setup.task.labels[i] for i in logits.argmax(1)]
        outcome.rows += runs.prediction_rows(init, seed, split, rows, values)
        outcome.scores[split].append(metrics.evaluate(setup.task, split, rows, values))
        believed = {
            key: calibration.evaluate(calibration.probabilities(own), labels) for key, own in (("", calibrated), ("_before", logits))
        }
        outcome.calibration[split].append({f"{name}{key}": value for key, own in believed.items() for name, value in own.items()})
        if len(shares) > 1 and split == reported_split(setup.task):
            outcome.exits.append(shares)


def _newest(setup: TaskSetup, outcome: Outcome) -> float | None:
    return outcome.scores[reported_split(setup.task)][-1][setup.task.metric]


@dataclass(frozen=True)
class Made:
    """The first seed's module, to be run on the CPU."""

    answers: dict[str, measure.Answer]
    """As tables call it -> what answers."""
    split: Encoded
    """Inputs of the split that is judged."""
    parameters: int
    bytes: int
    flops: dict[str, float]


def made(all_params: params.Params, point_name: str, task: str, measured: dict) -> Made:
    """Build a point again from its weights, round them as it did, and count what it takes."""
    setting = Setting.of(all_params, point_name, task)
    prepared = setting.prepare(all_params.finetune.seeds[0])
    load_model(prepared.module, str(FOLDER / point_name / task / "module.safetensors"))
    split = prepared.encode(setting.setup.examples)[reported_split(setting.setup.task)]
    module = prepared.module.cpu().eval()
    used = measure.weights(module, split)
    size = quantised.size(used, module, setting.own.quantised)
    answers = dict(_answers(all_params, setting, module, measured))
    # FLOPs are of the plain module: the counter is blind to products of integers, and those are as many
    spent = {name: measure.flops(answer, split, all_params.efficiency.examples) for name, answer in answers.items()}
    if setting.own.quantised:
        rounded = quantised.end(module, setting.own.quantised).eval()
        answers = {point_name: measure.answering(rounded)}
    return Made(answers, split, sum(part.numel() for part in used), size, spent)


def _answers(all_params: params.Params, setting: Setting, module: nn.Module, measured: dict) -> Iterator[tuple[str, measure.Answer]]:
    """A point once, or at each threshold."""
    if not isinstance(module, EarlyExit):
        yield setting.point, measure.answering(module)
        return
    for threshold in all_params.efficiency.thresholds:
        leaving = exits.Leaving(measured["temperatures"][0], threshold)
        yield label(setting.point, threshold), lambda texts, segments, leaving=leaving: module.predict_until(leaving.enough, texts, segments)


def metrics_file(all_params: params.Params, name: str) -> Path:
    """Beside the predictions: data/metrics is the root pipeline's."""
    return FOLDER.joinpath(*all_params.efficiency.runs[name], "metrics.json")


if __name__ == "__main__":
    stage.main("point", point, metrics_file=metrics_file)
