"""A model on a task over the seeds: what the stages `finetune`, `adapt` and `transfer` have in common."""

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
from components.finetune.bench import Bench, Ready, judged, readable
from components.finetune.data import Encoded
from components.models import store
from components.tasks import Example, metrics


@dataclass
class Arm:
    """The runs from one kind of start, pre-trained or random weights."""

    init: str
    splits: list[str]
    """Predicted: those that are judged, and from pre-trained weights those that are submitted, too."""
    scores: dict[str, list[dict]]
    """Of each judged split, a dictionary of metrics for each seed."""
    seconds: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    memory_mib: float = 0.0
    tokens: int = 0
    flops: int = 0
    outside: dict[str, list[float]] = field(default_factory=dict)
    """Of each split that is judged, for each seed the share of answers that were none; empty where none can be."""
    calibration: dict[str, list[dict]] = field(default_factory=dict)
    """Of each split that is judged, for each seed how far probabilities are to be believed; empty where nothing has any."""
    predictions: list[dict] = field(default_factory=list)

    @property
    def costs(self) -> dict[str, float]:
        """Of one training, on average."""
        return {"seconds": statistics.fmean(self.seconds), "epochs": statistics.fmean(self.epochs), "memory_mib": self.memory_mib}


class Reader:
    """Inputs of the splits, made once for as many trainings as they are the same for."""

    def __init__(self, bench: Bench):
        self.bench, self.encoded, self.read, self.read_from = bench, {}, {}, None
        self.seconds = 0.0
        """That the reading of the training split took; each training would have to."""

    def inputs(self, ready: Ready, folder: Path, arm: Arm, seed: int) -> dict[str, Encoded]:
        """Of the training examples that the seed draws, and of the splits that the arm predicts."""
        rows, again = self.bench.of_seed(seed).rows, not self.encoded or ready.kind.drawn
        encoded = ready.encode(rows if again else {"train": rows["train"]})
        for split, texts in encoded.items():
            if texts.cut and (again or self.bench.draws):
                lost = f"{texts.lost:,} lost their answer or a marked word"
                print(f"{split}: {texts.cut:,} of {len(texts):,} examples cut, {lost}", flush=True)
        self.encoded |= encoded
        started = time.perf_counter()
        train = ready.module.inputs(self.encoded["train"], self.bench.fabric)
        self.seconds = time.perf_counter() - started
        arm.flops += train.flops
        # the same frozen weights make the same features of the same inputs for every seed, but for parts that each seed draws
        drawn = arm.init == "random" or ready.kind.drawn or ready.module.model.absent
        if (folder, arm.init) != self.read_from or drawn:
            self.read = {split: ready.module.inputs(self.encoded[split], self.bench.fabric) for split in arm.splits}
            self.read_from = folder, arm.init
            arm.flops += sum(texts.flops for texts in self.read.values())
        return {"train": train, **self.read}


def over_seeds(
    all_params: params.Params, model_name: str, folders: Mapping[int, Path], task_name: str, recipe: params.Recipe, inits: Sequence[str],
    scores_folder: Path, run: Run, tags: Mapping[str, str],
) -> dict:  # fmt: skip
    """Adapt a model to a task from each of `inits` over the seeds; write the predictions, return the metrics.

    `folders` has the model's folder for each seed; `tags` go onto the ledger's run of each training.
    """
    bench = Bench.of(all_params, task_name)
    task, reader, arms = bench.task, Reader(bench), []
    folder = next(iter(folders.values()))
    readable(folder, recipe)
    for init in inits:
        labelled = [split for split, block in task.splits.items() if block.labelled and split != "train"]
        splits = [split for split in task.splits if split != "train" and (split in labelled or init == "pretrained")]
        arm = Arm(init, splits, {split: [] for split in labelled})
        for seed, folder in folders.items():
            own = recipe.of_start(init)
            ready = bench.ready(folder, own, seed, init)
            inputs = reader.inputs(ready, folder, arm, seed)
            about = {"model": model_name, "task": task_name, "init": init, "seed": str(seed), "method": own.method, **tags}
            with run.child(f"{model_name}-{task_name} {own.method} {init} {seed}", about, own.model_dump(mode="json")) as child:
                fitted = one(bench, arm, ready, inputs, own, seed, child)
            if init == inits[0]:
                trainable = fitted.trained_parameters, ready.parameters + store.count_parameters(ready.module.head)
            arm.seconds.append(reader.seconds + fitted.seconds)
        arm.memory_mib = peak_memory(bench.fabric)
        arms.append(arm)
    write_predictions(scores_folder, [row for arm in arms for row in arm.predictions], list(bench.rows))
    return {
        "model": model_name, "derived": store.about(folder).derived_by, "task": task_name, "method": recipe.method,
        "metric": task.metric, "split": judged(task), "pair": recipe.pair if bench.pair else None, "protocol": bench.protocol(recipe),
        "trainable_parameters": trainable[0], "trainable_share": trainable[0] / trainable[1],
        "costs": {arm.init: arm.costs for arm in arms},
        "cut": {split: texts.cut for split, texts in reader.encoded.items()},
        "lost": {split: texts.lost for split, texts in reader.encoded.items()},
        **ready.kind.counts(reader.encoded),
        **({"outside": {arm.init: arm.outside for arm in arms}} if ready.kind.outside is not None else {}),
        **({"calibration": {arm.init: summaries(arm.calibration) for arm in arms}} if ready.kind.outputs_are_labels else {}),
        **{arm.init: summaries(arm.scores) for arm in arms},
        "cost": {"tokens": sum(arm.tokens for arm in arms), "flops": sum(arm.flops for arm in arms), "gpus": int(bench.on_gpu)},
    }  # fmt: skip


def summaries(scores: dict[str, list[dict]]) -> dict[str, dict]:
    """Of each split, over the seeds."""
    return {split: metrics.summary(own) for split, own in scores.items()}


def one(bench: Bench, arm: Arm, ready: Ready, inputs: dict[str, Encoded], recipe: params.Recipe, seed: int, child: Run) -> loop.Fitted:
    """One training: fit, predict, score; what came of it goes into its arm and onto its run of the ledger."""
    task = bench.task
    fitted = loop.fit(
        bench.fabric, ready.module, ready.kind, inputs["train"], recipe, seed, lambda epoch, loss: child.log({"train_loss": loss}, epoch),
        bench.judge(), inputs["dev"],
    )  # fmt: skip
    logits = {}
    for split in arm.splits:
        before, rows = ready.kind.outside, bench.rows[split]
        values, logits[split] = fitted.predict(inputs[split])
        if before is not None and split in arm.scores:
            arm.outside.setdefault(split, []).append((ready.kind.outside - before) / len(values))
        arm.predictions += predicted(arm.init, seed, split, rows, values)
        if split in arm.scores:
            arm.scores[split].append(metrics.evaluate(task, split, rows, values))
    if ready.kind.outputs_are_labels:
        believed(bench, arm, logits, recipe)
    arm.epochs.append(fitted.epochs)
    arm.tokens += fitted.tokens
    arm.flops += fitted.flops
    newest = {split: scores[-1] for split, scores in arm.scores.items()}
    child.log(newest | {"score": newest[judged(task)].get(task.metric), "seconds": fitted.seconds})
    shown = ", ".join(
        f"{split} {' '.join(f'{name} {metrics.shown(value)}' for name, value in scores.items())}" for split, scores in newest.items()
    )
    if arm.outside:
        shown += f"; no answer to the task {', '.join(f'{split} {shares[-1]:.1%}' for split, shares in arm.outside.items())}"
    print(f"{arm.init} seed {seed}: {shown}; {fitted.epochs} epochs in {fitted.seconds:.1f} s", flush=True)
    return fitted


def believed(bench: Bench, arm: Arm, logits: dict[str, np.ndarray], recipe: params.Recipe) -> None:
    """Give the newest predictions their probabilities, and judge these."""
    labels = {split: calibration.gold(bench.task, bench.rows[split]) for split in arm.scores}
    likely, temperature = calibration.of_splits(logits, labels["dev"], recipe.temperature_scaling)
    newest = arm.predictions[-sum(map(len, likely.values())) :]
    for row, own in zip(newest, itertools.chain(*(likely[split] for split in arm.splits)), strict=True):
        row["probabilities"] = list(map(float, own))  # every digit: bins of the calibration error are told from these
    for split in arm.scores:
        own = calibration.evaluate(likely[split], labels[split])
        arm.calibration.setdefault(split, []).append(own | {"temperature": temperature})


def predicted(init: str, seed: int | None, split: str, examples: Sequence[Example], predictions: Sequence[Any]) -> list[dict]:
    """A run's predictions as lines of `predictions.jsonl`; `seed` is None where nothing is drawn."""
    return [
        {"init": init, "seed": seed, "split": split, "id": example.id, "prediction": value, "label": example.label}
        for example, value in zip(examples, predictions, strict=True)
    ]  # fmt: skip


def write_predictions(folder: Path, predictions: list[dict], splits: list[str]) -> None:
    """Every prediction, a line each, split by split."""
    predictions.sort(key=lambda row: splits.index(row["split"]))
    with storage.output(folder) as target:
        target.mkdir(parents=True)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in predictions]
        (target / "predictions.jsonl").write_text("".join(lines), encoding="utf-8")


def peak_memory(fabric: Fabric) -> float:
    """MiB: of the accelerator, or on a CPU of the process."""
    if fabric.device.type == "cuda":
        return torch.cuda.max_memory_allocated(fabric.device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
