"""What an answer takes: operations, weights, time."""

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
"""Examples read at once, beside one at a time."""
ROUNDS = 5
"""That each point is run in, in turn with the others, after one that is not counted."""

Answer = Callable[[Texts, Tensor], object]
"""From the ids of a batch to its answers."""


def answering(module: nn.Module) -> Answer:
    """From ids to logits (batch, labels), also where training read features that were made once."""
    if not isinstance(module, Frozen):
        return module

    def read(texts: Texts, segments: Tensor) -> Tensor:
        layers = []
        for ids, lengths in texts:
            own = segments if len(texts) == 1 else torch.zeros_like(ids)
            layers.append((module.select_layers(module.model.features(ids, lengths, own)), lengths))
        return module(layers, segments)

    return read


def in_batches(split: Encoded, size: int, examples: int | None = None) -> Iterator[Batch]:
    """The first so many examples, in their order at size 1, else those of like length together."""
    if size == 1:
        for i in range(min(examples or len(split), len(split))):
            [batch] = batches(_some(split, [i]), 1, None)
            yield batch._replace(index=[i])
        return
    yield from batches(_some(split, range(min(examples, len(split)))) if examples else split, size, None)


def _some(split: Encoded, chosen) -> Encoded:
    return Encoded([split.texts[i] for i in chosen], [split.segments[i] for i in chosen], [split.targets[i] for i in chosen])


def weights(module: nn.Module, split: Encoded) -> list[nn.Parameter]:
    """What an answer depends on, each once: parameters that a gradient reaches. A model's parts for pre-training alone are none."""
    module.eval().requires_grad_(True)
    batch = next(in_batches(split, 1))
    output = answering(module)(batch.texts, batch.segments)
    reached = torch.autograd.grad(output.float().sum(), list(module.parameters()), allow_unused=True)
    return [parameter for parameter, gradient in zip(module.parameters(), reached, strict=True) if gradient is not None]


@torch.no_grad()
def logits(answer: Answer, split: Encoded, size: int = 4 * TOGETHER) -> np.ndarray:
    """What is answered, in 32 bits and as it is run later, (examples, exits, labels); one exit where a model has one
    classifier. Read `size` examples at once."""
    outputs: list[np.ndarray | None] = [None] * len(split)
    for batch in in_batches(split, size):
        output = answer(batch.texts, batch.segments).numpy()
        for i, own in zip(batch.index, output, strict=True):
            outputs[i] = own if own.ndim == 2 else own[None]
    return np.stack(outputs)


@torch.no_grad()
def flops(answer: Answer, split: Encoded, examples: int) -> float:
    """Of one answer, a mean over the first examples read one at a time."""
    spent = []
    for batch in in_batches(split, 1, examples):
        with flop_counter() as counter:
            answer(batch.texts, batch.segments)
        spent.append(counter.get_total_flops())
    return float(np.mean(spent))


@dataclass(frozen=True)
class Times:
    """Seconds, on one thread of a CPU."""

    alone: np.ndarray
    """Of each example read by itself, the median over the rounds, (examples,)."""
    together: np.ndarray
    """Of an example among 32, in each round, (rounds,)."""
    ratio_alone: float
    """To the base, a median over the rounds of what both took in the same one."""
    ratio_together: float


@torch.inference_mode()
def times(answers: Mapping[str, Answer], splits: Mapping[str, Encoded], base: str, examples: int) -> dict[str, Times]:
    """All in turn, round by round, so that what else the machine does slows down one as much as the other."""
    torch.set_num_threads(1)
    alone: dict[str, list[list[float]]] = {name: [] for name in answers}
    together: dict[str, list[float]] = {name: [] for name in answers}
    singles = {name: list(in_batches(splits[name], 1, examples)) for name in answers}
    batched = {name: list(in_batches(splits[name], TOGETHER, examples)) for name in answers}
    for warmed in range(ROUNDS + 1):
        for name, answer in answers.items():
            row = [_seconds(answer, batch) for batch in (islice(singles[name], 5) if not warmed else singles[name])]
            whole = sum(_seconds(answer, batch) for batch in batched[name]) / sum(len(batch.index) for batch in batched[name])
            if warmed:
                alone[name].append(row)
                together[name].append(whole)
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
