"""One trial: a model is fine-tuned with a sampled recipe; its score on dev after each epoch, and its cost."""

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
    """The result of a trial."""

    state: str = "complete"
    """`complete`; `pruned`: stopped after an epoch; `failed`: the loss is not a number, or the score undefined."""
    score: float | None = None
    """On dev, with the weights that the recipe selects; None if the trial is not complete."""
    scores: list[float | None] = field(default_factory=list)
    """On dev after each epoch."""
    note: str = ""
    """Why it failed."""
    tokens: int = 0
    """Read in training, without padding; 0, like the FLOPs, if training failed."""
    flops: int = 0
    seconds: float = 0.0
    """Wall clock: loading, frozen features, training, dev."""
    hours: float = 0.0
    """Of CPU, summed over threads; of GPU if there is one."""
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
    def load(cls, all_params: params.Params, model: str, task: str, init: str) -> "Trials":
        """Read the examples. Raises SesameError where accelerator or data are missing."""
        search = all_params.search
        sizes = {"train": search.train_examples, "dev": all_params.finetune.evaluated("dev")}
        return cls(all_params, model, init, search.metric or all_params.tasks[task].metric, TaskSetup.load(all_params, task, sizes))

    @property
    def device(self) -> str:
        return "GPU" if self.setup.on_gpu else "CPU"

    def run(
        self, recipe: params.Recipe, seed: int, stop: Callable[[int, float | None], bool], report: Callable[[int, dict], None]
    ) -> Trial:
        """Train and score; `stop(epoch, score)` may end it after an epoch, `report(epoch, figures)` receives each epoch."""
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
            result = loop.fit(
                self.setup.fabric, prepared.module, prepared.kind, inputs["train"], recipe, seed,
                lambda epoch, loss: report(epoch, {"train_loss": loss}), self.setup.dev_score(self.metric), inputs["dev"], watch,
            )  # fmt: skip
        except SesameError as error:  # a diverged trial is a result of the search
            trial.state, trial.note = "failed", str(error)
            return
        trial.tokens, trial.flops = result.tokens, result.flops + sum(texts.flops for texts in inputs.values())
        if trial.state == "complete":
            trial.score = trial.scores[result.epochs - 1]
        if trial.state == "complete" and trial.score is None:
            trial.state, trial.note = "failed", f"{self.metric} is undefined: constant predictions or labels"


def cpu_seconds() -> float:
    """CPU time of this process on all cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
