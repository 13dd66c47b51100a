"""Structured pruning: attention heads, and inner units of the feed-forward networks, are removed from every layer, as many from each, so
that its matrices become smaller. They are ranked by the change of the loss without each (Michel et al. 2019, equation 2), or by the
norm of their weights."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn

from components import params
from components.core import compute
from components.core.flops import flop_counter
from components.core.tracking import Run
from components.derive import smaller
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.batches import Batches
from components.text import encode


@dataclass(frozen=True)
class Units:
    """The units between two matrices: attention heads, or inner units of a feed-forward network."""

    into: str
    """The matrix whose rows compute the units, once or several times: queries, keys and values, or a gate and its input."""
    out: str
    """The matrix whose columns read them."""
    size: int
    """Dimensions of a unit."""
    left: int
    """Number of units to keep."""

    def indices(self, kept: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Units (kept,) -> their rows in the first matrix, and their columns in the second."""
        columns = (kept[:, None] * self.size + torch.arange(self.size)).flatten()
        rows, width = len(state[f"{self.into}.weight"]), state[f"{self.out}.weight"].shape[1]
        return torch.cat([columns + start for start in range(0, rows, width)]), columns


def units_of(model: LanguageModel, smaller: params.Architecture) -> list[Units]:
    """The units of all layers, except those that share another layer's."""
    units = []
    for i, block in enumerate(model.blocks):
        if "attention" in block._modules:
            name, size = f"blocks.{i}.attention", smaller.heads_size // smaller.num_heads
            units.append(Units(f"{name}.query_key_value", f"{name}.output", size, smaller.num_heads))
        if "feed_forward" in block._modules:
            name = f"blocks.{i}.feed_forward"
            units.append(Units(f"{name}.0", f"{name}.2", 1, smaller.intermediate_size))
    return units


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Rank the units and remove the lowest. Raises SesameError where the model cannot be pruned, or not with this text."""
    block = all_params.derived[name]
    by, start, architecture = block.by, Path("data/models", block.start), smaller.architecture(all_params, name)
    compute.prepare(by.threads)
    model, tokens = store.load(start)
    units, cost = units_of(model, architecture), {}
    if by.importance == "magnitude":
        scores = norms(model.state_dict(), units)
    else:
        encoding = Path("data", block.on)
        objective = smaller.objective(by.objective, model, start, encoding)
        batches = objective.batches(encode.load(encoding, "train"), by.batch_size, architecture.max_length, by.seed)
        scores, cost = gradients(model, units, objective, batches, by.tokens)
    kept = [best(score, group.left) for score, group in zip(scores, units, strict=True)]
    pruned = store.build(architecture, tokens)
    pruned.load_state_dict(cut(model.state_dict(), units, kept))
    settings = {key: getattr(by, key) for key in ("importance", "heads", "feed_forward")}
    step = {"by": "pruned", "on": block.on.partition("/")[2], **settings, **cost}
    return smaller.write(folder, pruned, architecture, tokens, start, step) | {"cost": cost}


def best(scores: Tensor, left: int) -> Tensor:
    """The units with the highest scores, in their order; the first of equal ones."""
    return scores.argsort(descending=True, stable=True)[:left].sort().values


def cut(state: Mapping[str, Tensor], units: Sequence[Units], kept: Sequence[Tensor]) -> dict[str, Tensor]:
    """The weights of the units to keep."""
    left = dict(state)
    for group, chosen in zip(units, kept, strict=True):
        rows, columns = group.indices(chosen, state)
        left |= {key: state[key][rows] for key in (f"{group.into}.weight", f"{group.into}.bias") if key in state}
        left[f"{group.out}.weight"] = state[f"{group.out}.weight"][:, columns]
    return left


def norms(state: Mapping[str, Tensor], units: Sequence[Units]) -> list[Tensor]:
    """The norm of each unit's weights, (units,)."""
    scores = []
    for group in units:
        into, out = state[f"{group.into}.weight"].square().sum(1), state[f"{group.out}.weight"].square().sum(0)
        scores.append((into.unflatten(0, (-1, len(out))).sum(0) + out).unflatten(0, (-1, group.size)).sum(1).sqrt())
    return scores


def gradients(
    model: LanguageModel, units: Sequence[Units], objective: Objective, batches: Batches, tokens: int
) -> tuple[list[Tensor], dict[str, int]]:  # fmt: skip
    """For each unit the mean over sequences of |d loss / d mask|, where the mask, 1, is a factor of the unit, (units,); and the cost. The
    mean is over sequences with at least so many tokens in total."""
    model.eval().requires_grad_(False)
    scores, rows, read, flops_per_token = [torch.zeros(()) for _ in units], 0, 0, None
    for step in count():
        batch = batches[step]
        matrices = [(model.get_submodule(group.out), group.size) for group in units]
        with masked(matrices) as masks, flop_counter() if flops_per_token is None else nullcontext() as counter:
            losses, _ = objective.losses(model, batch.tensors, None)
            weights = objective.weights
            sum(weights.get(name, 1.0) * loss / max(1.0, batch.counts[name]) for name, (loss, _) in losses.items()).backward()
        if counter:
            flops_per_token = counter.get_total_flops() / batch.counts["tokens"]
        # each sequence has its own mask, so that gradients of opposite signs do not cancel
        scores = [score + mask.grad.abs().sum(0) for score, mask in zip(scores, masks, strict=True)]
        rows, read = rows + len(masks[0]), read + int(batch.counts["tokens"])
        if read >= tokens:
            return [score / rows for score in scores], {"tokens": read, "flops": int(flops_per_token * read)}


@contextmanager
def masked(matrices: Sequence[tuple[nn.Linear, int]]) -> Iterator[list[Tensor]]:
    """Multiply the inputs of each matrix by a mask (rows, units) of ones for each sequence of a batch. The masks are created in the forward
    pass, once per matrix, even if several layers share it."""
    masks: list[Tensor | None] = [None] * len(matrices)

    def multiply(i: int, size: int, inputs: Tensor) -> Tensor:
        x = inputs.unflatten(-1, (-1, size))  # (rows, length, units, size)
        if masks[i] is None:
            masks[i] = x.new_ones(len(x), x.shape[2], requires_grad=True)
        return (x * masks[i][:, None, :, None]).flatten(2)

    hooks = [
        matrix.register_forward_pre_hook(lambda _, inputs, i=i, size=size: multiply(i, size, *inputs))
        for i, (matrix, size) in enumerate(matrices)
    ]
    try:
        yield masks
    finally:
        for hook in hooks:
            hook.remove()
