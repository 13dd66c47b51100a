"""Fine-tuning of a model on a task over the seeds, for the stages `finetune`, `adapt`, `learning_curve` and `transfer`."""

import itertools
import json
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Fabric

from components import params
from components.comparison import calibration
from components.core import storage
from components.core.tracking import Run
from components.finetune import loop
from components.finetune.data import Encoded
from components.finetune.task_setup import PreparedModel, TaskSetup, check_max_length, reported_split
from components.models import store
from components.models.pretrainings import pretrainings
from components.tasks import Example, metrics


@dataclass
class InitRuns:
    """The runs of all seeds from one init: pre-trained or random weights, or token vectors alone."""

    init: str
    splits: list[str]
    """The splits to predict: those with labels, and from pre-trained weights also those for submission."""
    scores: dict[str, list[dict]]
    """Split -> the metrics of each seed."""
    seconds: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    tokens: int = 0
    flops: int = 0
    invalid: dict[str, list[float]] = field(default_factory=dict)
    """Split -> for each seed the share of invalid answers; empty where all are valid."""
    calibration: dict[str, list[dict]] = field(default_factory=dict)
    """Split -> for each seed the calibration metrics; empty where there are no probabilities."""
    predictions: list[dict] = field(default_factory=list)

    @property
    def costs(self) -> dict[str, float]:
        """Averages over the trainings."""
        return {"seconds": statistics.fmean(self.seconds), "epochs": statistics.fmean(self.epochs)}


class InputCache:
    """The encoded splits, computed once and shared by the trainings for which they are the same."""

    def __init__(self, setup: TaskSetup):
        self.setup, self.encoded, self.features, self.features_of = setup, {}, {}, None
        self.seconds = 0.0
        """Time of the forward pass over the training split, which each training would need."""

    def inputs(self, prepared: PreparedModel, folder: Path, runs: InitRuns, seed: int) -> dict[str, Encoded]:
        """The training examples that the seed draws, and the splits that `runs` predicts."""
        examples = self.setup.for_seed(seed).examples
        encode_all = not self.encoded or prepared.kind.depends_on_seed
        encoded = prepared.encode(examples if encode_all else {"train": examples["train"]})
        for split, texts in encoded.items():
            if texts.cut and (encode_all or self.setup.samples_train):
                lost = f"{texts.lost:,} lost their answer or a marked word"
                print(f"{split}: {texts.cut:,} of {len(texts):,} examples cut, {lost}", flush=True)
        self.encoded |= encoded
        started = time.perf_counter()
        train = prepared.module.inputs(self.encoded["train"], self.setup.fabric)
        self.seconds = time.perf_counter() - started
        runs.flops += train.flops
        # frozen weights give the same features for every seed, unless some modules or the inputs are drawn by the seed
        seeded = runs.init == "random" or prepared.kind.depends_on_seed or prepared.module.model.absent
        if (folder, runs.init) != self.features_of or seeded:
            self.features = {split: prepared.module.inputs(self.encoded[split], self.setup.fabric) for split in runs.splits}
            self.features_of = folder, runs.init
            runs.flops += sum(texts.flops for texts in self.features.values())
        return {"train": train, **self.features}


def weights_of_seeds(all_params: params.Params, model: str) -> dict[int, Path]:
    """The model's folder for each seed of `finetune`. A model with several pre-trainings has another one for each seed in turn, so that the
    deviation over seeds includes that of pre-training."""
    return dict(zip(all_params.finetune.seeds, itertools.cycle(pretrainings(Path("data/models", model)))))


def run_seeds(
    all_params: params.Params, model_name: str, folders: Mapping[int, Path], task_name: str, recipe: params.Recipe, inits: Sequence[str],
    scores_folder: Path, run: Run, tags: Mapping[str, str],
) -> dict:  # fmt: skip
    """Fine-tune a model on a task from each of `inits` with each seed; write the predictions, return the metrics.

    `folders` has the model's folder for each seed; `tags` are set on the MLflow run of each training.
    """
    setup = TaskSetup.load(all_params, task_name)
    task = setup.task
    cache = InputCache(setup)
    all_runs = []
    folder = next(iter(folders.values()))
    check_max_length(folder, recipe)
    labelled = [split for split, config in task.splits.items() if config.labelled and split != "train"]
    for init in inits:
        splits = [split for split in task.splits if split != "train" and (split in labelled or init == "pretrained")]
        runs = InitRuns(init, splits, {split: [] for split in labelled})
        init_recipe = recipe.of_start(init)
        for seed, folder in folders.items():
            prepared = setup.prepare(folder, init_recipe, seed, init)
            inputs = cache.inputs(prepared, folder, runs, seed)
            about = {"model": model_name, "task": task_name, "init": init, "seed": str(seed), "method": init_recipe.method, **tags}
            title = f"{model_name}-{task_name} {init_recipe.method} {init} {seed}"
            with run.child(title, about, init_recipe.model_dump(mode="json")) as child:
                result = run_training(setup, runs, prepared, inputs, init_recipe, seed, child)
            if init == inits[0]:
                trainable = result.trained_parameters
                parameters = store.count_parameters(prepared.module)
            runs.seconds.append(cache.seconds + result.seconds)
        all_runs.append(runs)
    write_predictions(scores_folder, [row for runs in all_runs for row in runs.predictions], list(setup.examples))
    kind = prepared.kind
    return {
        "model": model_name, "derived": store.about(folder).derived_by, "task": task_name, "method": recipe.method,
        "metric": task.metric, "split": reported_split(task), "pair": recipe.pair if setup.pair else None,
        "protocol": setup.protocol(recipe), "pretrainings": len(set(folders.values())),
        "trainable_parameters": trainable, "trainable_share": trainable / parameters,
        "costs": {runs.init: runs.costs for runs in all_runs},
        "memory_mib": peak_memory(setup.fabric),  # of all starts, since the peak of a process never falls
        "cut": {split: texts.cut for split, texts in cache.encoded.items()},
        "lost": {split: texts.lost for split, texts in cache.encoded.items()},
        **kind.extra_counts(cache.encoded),
        **({"outside": {runs.init: runs.invalid for runs in all_runs}} if kind.invalid is not None else {}),
        **({"calibration": {runs.init: summaries(runs.calibration) for runs in all_runs}} if kind.outputs_are_labels else {}),
        **{runs.init: summaries(runs.scores) for runs in all_runs},
        "cost": {"tokens": sum(runs.tokens for runs in all_runs), "flops": sum(runs.flops for runs in all_runs), "gpus": int(setup.on_gpu)},
    }  # fmt: skip


def summaries(scores: dict[str, list[dict]]) -> dict[str, dict]:
    """Split -> mean and deviation of each metric over the seeds."""
    return {split: metrics.summary(by_seed) for split, by_seed in scores.items()}


def run_training(
    setup: TaskSetup, runs: InitRuns, prepared: PreparedModel, inputs: dict[str, Encoded], recipe: params.Recipe, seed: int, child: Run
) -> loop.FitResult:  # fmt: skip
    """Fit, predict and score once; the results are added to `runs` and to the MLflow run `child`."""
    kind = prepared.kind
    result = loop.fit(
        setup.fabric, prepared.module, kind, inputs["train"], recipe, seed, lambda epoch, loss: child.log({"train_loss": loss}, epoch),
        setup.dev_score(), inputs["dev"],
    )  # fmt: skip
    logits = {}
    for split in runs.splits:
        invalid_before = kind.invalid
        examples = setup.examples[split]
        values, logits[split] = result.predict(inputs[split])
        if invalid_before is not None and split in runs.scores:
            runs.invalid.setdefault(split, []).append((kind.invalid - invalid_before) / len(values))
        runs.predictions += prediction_rows(runs.init, seed, split, examples, values)
        if split in runs.scores:
            runs.scores[split].append(metrics.evaluate(setup.task, split, examples, values))
    if kind.outputs_are_labels:
        calibrate(setup, runs, logits, recipe)
    runs.epochs.append(result.epochs)
    runs.tokens += result.tokens
    runs.flops += result.flops
    newest = {split: scores[-1] for split, scores in runs.scores.items()}
    child.log(newest | {"score": newest[reported_split(setup.task)].get(setup.task.metric), "seconds": result.seconds})
    shown = ", ".join(
        f"{split} {' '.join(f'{name} {metrics.shown(value)}' for name, value in scores.items())}" for split, scores in newest.items()
    )
    if runs.invalid:
        shown += f"; invalid answers {', '.join(f'{split} {shares[-1]:.1%}' for split, shares in runs.invalid.items())}"
    print(f"{runs.init} seed {seed}: {shown}; {result.epochs} epochs in {result.seconds:.1f} s", flush=True)
    return result


def calibrate(setup: TaskSetup, runs: InitRuns, logits: dict[str, np.ndarray], recipe: params.Recipe) -> None:
    """Add the probabilities to the newest predictions, and their calibration metrics to `runs`."""
    labels = {split: calibration.label_indices(setup.task, setup.examples[split]) for split in runs.scores}
    probabilities, temperature = calibration.split_probabilities(logits, labels["dev"], recipe.temperature_scaling)
    newest = runs.predictions[-sum(map(len, probabilities.values())) :]
    for row, values in zip(newest, itertools.chain(*(probabilities[split] for split in runs.splits)), strict=True):
        row["probabilities"] = list(map(float, values))  # every digit: the bins of the calibration error are computed from these
    for split in runs.scores:
        scores = calibration.evaluate(probabilities[split], labels[split])
        runs.calibration.setdefault(split, []).append(scores | {"temperature": temperature})


def prediction_rows(init: str, seed: int | None, split: str, examples: Sequence[Example], predictions: Sequence[Any]) -> list[dict]:
    """The predictions of a run as lines of `predictions.jsonl`; `seed` is None for a run without randomness."""
    return [
        {"init": init, "seed": seed, "split": split, "id": example.id, "prediction": value, "label": example.label}
        for example, value in zip(examples, predictions, strict=True)
    ]  # fmt: skip


def write_predictions(folder: Path, predictions: list[dict], splits: list[str]) -> None:
    """Write every prediction as a line of JSON, split by split."""
    predictions.sort(key=lambda row: splits.index(row["split"]))
    with storage.output(folder) as target:
        target.mkdir(parents=True)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in predictions]
        (target / "predictions.jsonl").write_text("".join(lines), encoding="utf-8")


def peak_memory(fabric: Fabric) -> float:
    """Peak memory in MiB, of the accelerator, or on a CPU of the process."""
    if fabric.device.type == "cuda":
        return torch.cuda.max_memory_allocated(fabric.device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
