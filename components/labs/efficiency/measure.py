"""The cost of an answer: operations, weights, time."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from components.core.flops import flop_counter
from components.finetune.data import Batch, Encoded, Texts, batches
from components.finetune.methods.frozen import Frozen

TOGETHER = 32
"""Examples in a batch, next to single ones."""
ROUNDS = 5
"""Runs of each point, in turn with the others, after a warm-up."""

Answer = Callable[[Texts, Tensor], object]
"""(texts, segments) of a batch -> logits."""


def answering(module: nn.Module) -> Answer:
    """A function from ids to logits (batch, labels), including the features that training computed once."""
    if not isinstance(module, Frozen):
        return module

    def answer(texts: Texts, segments: Tensor) -> Tensor:
        layers = []
        for ids, lengths in texts:
            of_text = segments if len(texts) == 1 else torch.zeros_like(ids)
            layers.append((module.select_layers(module.model.features(ids, lengths, of_text)), lengths))
        return module(layers, segments)

    return answer


def in_batches(split: Encoded, size: int, examples: int | None = None) -> Iterator[Batch]:
    """Batches of the first examples, in their order for size 1, else with others of similar length."""
    if size == 1:
        for i in range(min(examples or len(split), len(split))):
            [batch] = batches(_some(split, [i]), 1, None)
            yield batch._replace(index=[i])
        return
    yield from batches(_some(split, range(min(examples, len(split)))) if examples else split, size, None)


def _some(split: Encoded, chosen) -> Encoded:
    return Encoded([split.texts[i] for i in chosen], [split.segments[i] for i in chosen], [split.targets[i] for i in chosen])


def weights(module: nn.Module, split: Encoded) -> list[nn.Parameter]:
    """The parameters that an answer depends on, each once: those with a gradient, without a model's pre-training heads."""
    module.eval().requires_grad_(True)
    batch = next(in_batches(split, 1))
    output = answering(module)(batch.texts, batch.segments)
    reached = torch.autograd.grad(output.float().sum(), list(module.parameters()), allow_unused=True)
    return [parameter for parameter, gradient in zip(module.parameters(), reached, strict=True) if gradient is not None]


@torch.no_grad()
def logits(answer: Answer, split: Encoded, size: int = 4 * TOGETHER) -> np.ndarray:
    """The logits of all examples as float32, (examples, exits, labels); one exit for a model with one classifier. In batches of
    `size`."""
    outputs: list[np.ndarray | None] = [None] * len(split)
    for batch in in_batches(split, size):
        output = answer(batch.texts, batch.segments).numpy()
        for i, row in zip(batch.index, output, strict=True):
            outputs[i] = row if row.ndim == 2 else row[None]
    return np.stack(outputs)


@torch.no_grad()
def flops(answer: Answer, split: Encoded, examples: int) -> float:
    """FLOPs of one answer, averaged over the first examples, one at a time."""
    counts = []
    for batch in in_batches(split, 1, examples):
        with flop_counter() as counter:
            answer(batch.texts, batch.segments)
        counts.append(counter.get_total_flops())
    return float(np.mean(counts))


@dataclass(frozen=True)
class Times:
    """Seconds on one CPU thread."""

    alone: np.ndarray
    """For each example on its own, the median over the rounds, (examples,)."""
    together: np.ndarray
    """For an example in a batch of 32, in each round, (rounds,)."""
    ratio_alone: float
    """Relative to the base, the median over the rounds of the ratios within a round."""
    ratio_together: float


@torch.inference_mode()
def times(answers: Mapping[str, Answer], splits: Mapping[str, Encoded], base: str, examples: int) -> dict[str, Times]:
    """Measure all in turn, round by round, so that other work on the machine slows all of them equally."""
    torch.set_num_threads(1)
    alone: dict[str, list[list[float]]] = {name: [] for name in answers}
    together: dict[str, list[float]] = {name: [] for name in answers}
    singles = {name: list(in_batches(splits[name], 1, examples)) for name in answers}
    batched = {name: list(in_batches(splits[name], TOGETHER, examples)) for name in answers}
    for warmed in range(ROUNDS + 1):
        for name, answer in answers.items():
            row = [_seconds(answer, batch) for batch in (islice(singles[name], 5) if not warmed else singles[name])]
            per_example = sum(_seconds(answer, batch) for batch in batched[name]) / sum(len(batch.index) for batch in batched[name])
            if warmed:
                alone[name].append(row)
                together[name].append(per_example)
    per_round = {name: (np.sum(alone[name], axis=1), np.array(together[name])) for name in answers}
    return {
        name: Times(
            np.median(alone[name], axis=0), together, float(np.median(single / per_round[base][0])),
            float(np.median(together / per_round[base][1])),
        )
        for name, (single, together) in per_round.items()
    }  # fmt: skip


def _seconds(answer: Answer, batch: Batch) -> float:
    started = time.perf_counter()
    answer(batch.texts, batch.segments)
    return time.perf_counter() - started
