"""`python -m components.labs.tickets.rounds MODEL-TASK-SEED`: data/models/<model>, data/tasks/<task> ->
data/tickets/<model>/<task>/<seed>/.

Round by round: train, prune the smallest weights, set the rest back to where they began; and beside each ticket its controls.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import loop
from components.finetune.runs import prediction_rows, write_predictions
from components.finetune.task_setup import TaskSetup, check_max_length, reported_split
from components.labs.tickets import FOLDER, masks
from components.labs.tickets.masks import Masks
from components.models import sparse
from components.stages import stage
from components.tasks import metrics

KINDS = ("ticket", "random", "worst", "reinitialised")
"""The ticket; as many weights anywhere; as many of those that were pruned, once these are enough; the ticket's places with weights of the
layers drawn again, under the pre-trained embeddings."""


@dataclass
class Trained:
    """What came of one training."""

    weights: list[Tensor]
    """Of the layers' matrices."""
    scores: dict[str, float]
    """On dev and on the judged split, and what it took."""
    predictions: list[dict]
    fitted: loop.FitResult


def folder_of(name: str) -> Path:
    """Where MODEL-TASK-SEED is written."""
    return FOLDER.joinpath(*name.split("-"))


def rounds(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.tickets
    if name not in config.runs:
        raise SesameError(f"no such run in tickets of {params.STUDIES} (there are: {', '.join(config.runs)})")
    model, task, seed = config.runs[name]
    recipe, start = all_params.finetune.recipes[model], Path("data/models", model)
    check_max_length(start, recipe)
    split = reported_split(all_params.tasks[task])
    judged_sizes = {part: all_params.finetune.evaluated(part) for part in ("dev", split)}
    setup = TaskSetup.load(all_params, task, {"train": config.train_examples, **judged_sizes})
    about = {"stage": "tickets", "model": model, "task": task, "seed": str(seed)}
    run.tag(**about)
    lines, tokens, flops = [], 0, 0
    with storage.output(folder_of(name)) as target:
        for number, kind, own in trainings(config, Tuning(setup, start, recipe, seed)):
            with run.child(
                f"{name} {kind} {number}", about | {"kind": kind, "round": str(number)}, recipe.model_dump(mode="json")
            ) as child:
                child.log(own.scores)
            kept = {"round": number, "kind": kind, **own.scores}
            lines.append(kept)
            write_predictions(target / f"{kind}-{number}", own.predictions, [split])
            tokens, flops = tokens + own.fitted.tokens, flops + own.fitted.flops
            print(f"round {number}: {kind}, {kept['sparsity']:.0%} zero, {split} {kept['judged']:.3f}", flush=True)
        pd.DataFrame(lines).to_csv(target / "scores.csv", index=False, float_format="%.6g", lineterminator="\n")
        cost = {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)}
    return {"metric": setup.task.metric, "split": split, "protocol": setup.protocol(recipe), "cost": cost}


@dataclass(frozen=True)
class Tuning:
    """What all trainings of one seed share."""

    setup: TaskSetup
    start: Path
    recipe: params.Recipe
    seed: int

    def train(self, kept: Masks | None = None, pretrained: bool = True) -> Trained:
        """Tune the model, of which only some weights are kept, from where it begins: the same head, in the same order. Without
        `pretrained` the matrices of its layers begin as drawn.

        Raises SesameError where the loss is not a number.
        """
        prepared = self.setup.prepare(self.start, self.recipe, self.seed)
        matrices = sparse.matrices(prepared.module.model)
        if not pretrained:
            masks.copy(matrices, sparse.matrices(self.setup.prepare(self.start, self.recipe, self.seed, "random").module.model))
        if kept:
            masks.put_on(matrices, kept)
            sparse.keep_zeros(prepared.module.model)
        zero = sparse.sparsity(prepared.module.model)
        inputs = {split: prepared.module.inputs(texts, self.setup.fabric) for split, texts in prepared.encode(self.setup.examples).items()}
        fitted = loop.fit(
            self.setup.fabric, prepared.module, prepared.kind, inputs["train"], self.recipe, self.seed, lambda epoch, loss: None,
            self.setup.dev_score(), inputs["dev"],
        )  # fmt: skip
        said = {split: fitted.predict(inputs[split]).values for split in inputs if split != "train"}
        task, split = self.setup.task, reported_split(self.setup.task)
        scores = {own: metrics.evaluate(task, own, self.setup.examples[own], said[own])[task.metric] for own in said}
        rows = prediction_rows("pretrained", self.seed, split, self.setup.examples[split], said[split])
        defined = {own: nan if score is None else score for own, score in scores.items()}  # a few weights may say the same of everything
        figures = {"sparsity": zero, "dev": defined["dev"], "judged": defined[split], "seconds": fitted.seconds}
        return Trained([matrix.detach().cpu().clone() for matrix in matrices], figures, rows, fitted)


def trainings(config: params.Tickets, tuning: Tuning) -> Iterator[tuple[int, str, Trained]]:
    """(round, kind, what came of it): the whole model from either start, then each round's ticket and its controls."""
    whole = own = tuning.train()
    yield 0, "ticket", whole
    yield 0, "reinitialised", tuning.train(pretrained=False)
    kept = [torch.ones_like(weight, dtype=torch.bool) for weight in whole.weights]
    for number in range(1, config.rounds + 1):
        kept = masks.pruned(kept, own.weights, config.prune)
        own = tuning.train(kept)
        yield number, "ticket", own
        yield number, "random", tuning.train(masks.drawn(kept, 1000 * tuning.seed + number))
        if 2 * masks.kept(kept) <= sum(mask.numel() for mask in kept):
            yield number, "worst", tuning.train(masks.worst(kept, whole.weights))  # of a ticket's own the pruned ones are zero, all alike
        yield number, "reinitialised", tuning.train(kept, pretrained=False)


if __name__ == "__main__":
    stage.main("tickets", rounds, metrics_file=lambda _, name: folder_of(name) / "metrics.json")
