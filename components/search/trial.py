"""One trial: a model tuned on a task with a drawn recipe, its score on dev after each epoch, and what it cost."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lightning import Fabric

from components import models, params, stage, tasks
from components.errors import SesameError
from components.finetune import kinds, loop, runs
from components.finetune.methods import METHODS
from components.tasks import Example, metrics


@dataclass
class Trial:
    """What came of it."""

    state: str = "complete"
    """`complete`; `pruned`: stopped after an epoch; `failed`: the loss is not a number, or the score undefined."""
    score: float | None = None
    """On dev, of the weights that count by the recipe; only a complete trial has one."""
    scores: list[float | None] = field(default_factory=list)
    """On dev after each epoch that was trained."""
    note: str = ""
    """Why it failed."""
    tokens: int = 0
    """Read in training, padding not counted; 0 as the FLOPs where training broke off in an epoch."""
    flops: int = 0
    seconds: float = 0.0
    """Wall clock of all of it: loading, reading frozen features, training, dev."""
    hours: float = 0.0
    """Of CPU, all threads added up; of GPU where it ran on one."""
    kwh: float = 0.0
    """Estimated."""


@dataclass(frozen=True)
class Bench:
    """What all trials of a search share."""

    all_params: params.Params
    model: str
    task: params.Task
    metric: str
    rows: dict[str, list[Example]]
    """Of train and dev."""
    fabric: Fabric

    @classmethod
    def of(cls, all_params: params.Params, model: str, task: str) -> "Bench":
        """Read the examples. Raises SesameError where the machine or the data are not there."""
        search, block, folder = all_params.search, all_params.tasks[task], Path("data/tasks", task)
        sizes = {"train": search.train_examples, "dev": all_params.finetune.eval_examples}
        rows = {split: tasks.subset(tasks.read(folder, split), size, all_params.seed) for split, size in sizes.items()}
        return cls(all_params, model, block, search.metric or block.metric, rows, runs.machine(all_params.finetune))

    @property
    def device(self) -> str:
        return "GPU" if self.fabric.device.type == "cuda" else "CPU"

    def run(self, recipe: params.Recipe, seed: int, stop: Callable[[int, float | None], bool], report: Callable[[int, dict], None]) -> Trial:
        """Train and score; `stop(epoch, score)` may end it after an epoch, `report(epoch, figures)` sees each."""
        trial, started, busy = Trial(), time.perf_counter(), cpu_seconds()
        self._train(trial, recipe, seed, stop, report)
        trial.seconds = time.perf_counter() - started
        busy, gpus = cpu_seconds() - busy, int(self.device == "GPU")
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kibibytes on Linux
        trial.hours = (trial.seconds if gpus else busy) / 3600
        trial.kwh = stage.energy_kwh(self.all_params.energy, trial.seconds, busy, gib, gpus)
        return trial

    def _train(self, trial: Trial, recipe: params.Recipe, seed: int, stop: Callable, report: Callable) -> None:
        folder, pair = Path("data/models", self.model), self.rows["train"][0].text_b is not None
        tokens = runs.readable(folder, recipe)
        torch.manual_seed(seed)
        model, _ = models.load(folder, pretrained=self.all_params.search.init == "pretrained")
        kind = kinds.build(self.task, recipe)
        module = self.fabric.to_device(METHODS[recipe.method](model, tokens, recipe, kind, pair))
        read = {split: module.inputs(kind.encode(rows, tokens, module.joined), self.fabric) for split, rows in self.rows.items()}

        def judge(found: list) -> float | None:
            return metrics.evaluate(self.task, "dev", self.rows["dev"], found)[self.metric]

        def watch(epoch: int, score: float | None) -> bool:
            trial.scores.append(score)
            report(epoch, {"score": score})
            if stop(epoch, score) and epoch < recipe.epochs:
                trial.state = "pruned"
            return trial.state == "pruned"

        try:
            fitted = loop.fit(
                self.fabric, module, kind, read["train"], recipe, seed, lambda epoch, loss: report(epoch, {"train_loss": loss}), judge, read["dev"], watch
            )  # fmt: skip
        except SesameError as error:  # a diverged trial is a result of the search, not the end of it
            trial.state, trial.note = "failed", str(error)
            return
        trial.tokens, trial.flops = fitted.tokens, fitted.flops + sum(texts.flops for texts in read.values())
        if trial.state == "complete":
            trial.score = trial.scores[fitted.epochs - 1]
        if trial.state == "complete" and trial.score is None:
            trial.state, trial.note = "failed", f"{self.metric} is undefined: constant predictions"


def cpu_seconds() -> float:
    """That this process has used on all cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
