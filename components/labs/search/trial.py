"""One trial: a model tuned on a task with a drawn recipe, its score on dev after each epoch, and what it cost."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.finetune import loop
from components.finetune.task_setup import TaskSetup, check_max_length
from components.stages.cost import energy_kwh


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
class Trials:
    """What all trials of a search share."""

    all_params: params.Params
    model: str
    init: str
    metric: str
    setup: TaskSetup

    @classmethod
    def of(cls, all_params: params.Params, model: str, task: str, init: str) -> "Trials":
        """Read the examples. Raises SesameError where the machine or the data are not there."""
        search = all_params.search
        sizes = {"train": search.train_examples, "dev": all_params.finetune.evaluated("dev")}
        return cls(all_params, model, init, search.metric or all_params.tasks[task].metric, TaskSetup.load(all_params, task, sizes))

    @property
    def device(self) -> str:
        return "GPU" if self.setup.on_gpu else "CPU"

    def run(
        self, recipe: params.Recipe, seed: int, stop: Callable[[int, float | None], bool], report: Callable[[int, dict], None]
    ) -> Trial:
        """Train and score; `stop(epoch, score)` may end it after an epoch, `report(epoch, figures)` sees each."""
        trial, started, busy = Trial(), time.perf_counter(), cpu_seconds()
        self._train(trial, recipe, seed, stop, report)
        trial.seconds = time.perf_counter() - started
        busy, gpus = cpu_seconds() - busy, int(self.setup.on_gpu)
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kibibytes on Linux
        trial.hours = (trial.seconds if gpus else busy) / 3600
        trial.kwh = energy_kwh(self.all_params.energy, trial.seconds, busy, gib, gpus)
        return trial

    def _train(self, trial: Trial, recipe: params.Recipe, seed: int, stop: Callable, report: Callable) -> None:
        folder = Path("data/models", self.model)
        check_max_length(folder, recipe)
        prepared = self.setup.prepare(folder, recipe, seed, self.init)
        inputs = {split: prepared.module.inputs(texts, self.setup.fabric) for split, texts in prepared.encode(self.setup.examples).items()}

        def watch(epoch: int, score: float | None) -> bool:
            trial.scores.append(score)
            report(epoch, {"score": score})
            if stop(epoch, score) and epoch < recipe.epochs:
                trial.state = "pruned"
            return trial.state == "pruned"

        try:
            fitted = loop.fit(
                self.setup.fabric, prepared.module, prepared.kind, inputs["train"], recipe, seed,
                lambda epoch, loss: report(epoch, {"train_loss": loss}), self.setup.dev_score(self.metric), inputs["dev"], watch,
            )  # fmt: skip
        except SesameError as error:  # a diverged trial is a result of the search, not the end of it
            trial.state, trial.note = "failed", str(error)
            return
        trial.tokens, trial.flops = fitted.tokens, fitted.flops + sum(texts.flops for texts in inputs.values())
        if trial.state == "complete":
            trial.score = trial.scores[fitted.epochs - 1]
        if trial.state == "complete" and trial.score is None:
            trial.state, trial.note = "failed", f"{self.metric} is undefined: constant predictions"


def cpu_seconds() -> float:
    """That this process has used on all cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
