"""`python -m components.labs.tickets.rounds MODEL-TASK-SEED`: data/models/<model>, data/tasks/<task> ->
data/tickets/<model>/<task>/<seed>/.

Round by round: train, prune the smallest weights, reset the others to their initial values; with controls for each ticket.
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
"""The ticket; random weights, as many; pruned weights, as many, once there are enough; the ticket's positions with random weights in the
layers, and pre-trained embeddings."""


@dataclass
class Trained:
    """The result of one training."""

    weights: list[Tensor]
    """Of the layers' matrices."""
    scores: dict[str, float]
    """On dev and on the reported split, with sparsity and time."""
    predictions: list[dict]
    result: loop.FitResult


def folder_of(name: str) -> Path:
    """The folder of MODEL-TASK-SEED."""
    return FOLDER.joinpath(*name.split("-"))


def rounds(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.tickets
    if name not in config.runs:
        raise SesameError(f"{name} is not in tickets of {params.STUDIES} (there are: {', '.join(config.runs)})")
    model, task, seed = config.runs[name]
    recipe, start = all_params.finetune.recipes[model], Path("data/models", model)
    check_max_length(start, recipe)
    split = reported_split(all_params.tasks[task])
    eval_sizes = {name: all_params.finetune.evaluated(name) for name in ("dev", split)}
    setup = TaskSetup.load(all_params, task, {"train": config.train_examples, **eval_sizes}).for_seed(seed)
    about = {"stage": "tickets", "model": model, "task": task, "seed": str(seed)}
    run.tag(**about)
    lines, tokens, flops = [], 0, 0
    with storage.output(folder_of(name)) as target:
        for number, kind, trained in trainings(config, TicketTraining(setup, start, recipe, seed)):
            with run.child(
                f"{name} {kind} {number}", about | {"kind": kind, "round": str(number)}, recipe.model_dump(mode="json")
            ) as child:
                child.log(trained.scores)
            lines.append({"round": number, "kind": kind, **trained.scores})
            write_predictions(target / f"{kind}-{number}", trained.predictions, [split])
            tokens, flops = tokens + trained.result.tokens, flops + trained.result.flops
            print(f"round {number}: {kind}, {lines[-1]['sparsity']:.0%} zero, {split} {lines[-1]['judged']:.3f}", flush=True)
        pd.DataFrame(lines).to_csv(target / "scores.csv", index=False, float_format="%.6g", lineterminator="\n")
        cost = {"tokens": tokens, "flops": flops, "gpus": int(setup.on_gpu)}
    return {"metric": setup.task.metric, "split": split, "protocol": setup.protocol(recipe), "cost": cost}


@dataclass(frozen=True)
class TicketTraining:
    """What all trainings of one seed share."""

    setup: TaskSetup
    start: Path
    recipe: params.Recipe
    seed: int

    def train(self, kept: Masks | None = None, pretrained: bool = True) -> Trained:
        """Train the model with the weights of the masks only, always with the same initial head and order of examples. Without `pretrained`
        the matrices of its layers are random.

        Raises SesameError where the loss is not a number.
        """
        prepared = self.setup.prepare(self.start, self.recipe, self.seed)
        matrices = sparse.matrices(prepared.module.model)
        if not pretrained:
            masks.copy(matrices, sparse.matrices(self.setup.prepare(self.start, self.recipe, self.seed, "random").module.model))
        if kept:
            masks.apply(matrices, kept)
            sparse.keep_zeros(prepared.module.model)
        sparsity = sparse.sparsity(prepared.module.model)
        inputs = {split: prepared.module.inputs(texts, self.setup.fabric) for split, texts in prepared.encode(self.setup.examples).items()}
        result = loop.fit(
            self.setup.fabric, prepared.module, prepared.kind, inputs["train"], self.recipe, self.seed, lambda epoch, loss: None,
            self.setup.dev_score(), inputs["dev"],
        )  # fmt: skip
        task, reported = self.setup.task, reported_split(self.setup.task)
        predictions = {split: result.predict(inputs[split]).values for split in inputs if split != "train"}
        scores = {
            split: metrics.evaluate(task, split, self.setup.examples[split], predictions[split])[task.metric] for split in predictions
        }
        rows = prediction_rows("pretrained", self.seed, reported, self.setup.examples[reported], predictions[reported])
        defined = {split: nan if score is None else score for split, score in scores.items()}  # None for constant predictions
        figures = {"sparsity": sparsity, "dev": defined["dev"], "judged": defined[reported], "seconds": result.seconds}
        return Trained([matrix.detach().cpu().clone() for matrix in matrices], figures, rows, result)


def trainings(config: params.Tickets, training: TicketTraining) -> Iterator[tuple[int, str, Trained]]:
    """(round, kind, result): the full model from either start, then each round's ticket and its controls."""
    full = ticket = training.train()
    yield 0, "ticket", full
    yield 0, "reinitialised", training.train(pretrained=False)
    kept = [torch.ones_like(weight, dtype=torch.bool) for weight in full.weights]
    for number in range(1, config.rounds + 1):
        kept = masks.prune(kept, ticket.weights, config.prune)
        ticket = training.train(kept)
        yield number, "ticket", ticket
        yield number, "random", training.train(masks.random(kept, 1000 * training.seed + number))
        if 2 * masks.count(kept) <= sum(mask.numel() for mask in kept):
            yield number, "worst", training.train(masks.worst(kept, full.weights))  # in the ticket's weights the pruned ones are all zero
        yield number, "reinitialised", training.train(kept, pretrained=False)


if __name__ == "__main__":
    stage.main("tickets", rounds, metrics_file=lambda _, name: folder_of(name) / "metrics.json")
