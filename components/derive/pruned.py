"""Parts taken out of every layer, as many of each, so that its matrices are smaller: attention heads, and inner units of the
feed-forward networks. Which is told by what the loss would change by without each (Michel et al. 2019, equation 2), or by the norm of
its weights."""

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
class Parts:
    """What one matrix makes and another one reads."""

    into: str
    """Its rows make the parts, once or several times over: queries, keys and values, or a gate and what goes through it."""
    out: str
    """Its columns read them."""
    size: int
    """Numbers of a part."""
    left: int
    """Parts that are to be kept."""

    def places(self, kept: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Parts (kept,) -> their rows in the one matrix, and their columns in the other."""
        columns = (kept[:, None] * self.size + torch.arange(self.size)).flatten()
        rows, width = len(state[f"{self.into}.weight"]), state[f"{self.out}.weight"].shape[1]
        return torch.cat([columns + start for start in range(0, rows, width)]), columns


def parts_of(model: LanguageModel, smaller: params.Architecture) -> list[Parts]:
    """Of all layers, but for those that use another one's."""
    parts = []
    for i, block in enumerate(model.blocks):
        if "attention" in block._modules:
            place, size = f"blocks.{i}.attention", smaller.heads_size // smaller.num_heads
            parts.append(Parts(f"{place}.query_key_value", f"{place}.output", size, smaller.num_heads))
        if "feed_forward" in block._modules:
            place = f"blocks.{i}.feed_forward"
            parts.append(Parts(f"{place}.0", f"{place}.2", 1, smaller.intermediate_size))
    return parts


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Score the parts, take out the least. Raises SesameError where the model can't be pruned so, or not by this text."""
    block = all_params.derived[name]
    by, start, architecture = block.by, Path("data/models", block.start), smaller.architecture(all_params, name)
    compute.prepare(by.threads)
    model, tokens = store.load(start)
    every, cost = parts_of(model, architecture), {}
    if by.importance == "magnitude":
        scores = norms(model.state_dict(), every)
    else:
        encoding = Path("data", block.on)
        objective = smaller.objective(by.objective, model, start, encoding)
        batches = objective.batches(encode.load(encoding, "train"), by.batch_size, architecture.max_length, by.seed)
        scores, cost = gradients(model, every, objective, batches, by.tokens)
    kept = [best(score, parts.left) for score, parts in zip(scores, every, strict=True)]
    made = store.build(architecture, tokens)
    made.load_state_dict(cut(model.state_dict(), every, kept))
    settings = {key: getattr(by, key) for key in ("importance", "heads", "feed_forward")}
    step = {"by": "pruned", "on": block.on.partition("/")[2], **settings, **cost}
    return smaller.write(folder, made, architecture, tokens, start, step) | {"cost": cost}


def best(scores: Tensor, left: int) -> Tensor:
    """The parts with the highest scores, in their order; of those that are level the first."""
    return scores.argsort(descending=True, stable=True)[:left].sort().values


def cut(state: Mapping[str, Tensor], every: Sequence[Parts], kept: Sequence[Tensor]) -> dict[str, Tensor]:
    """The weights with the kept parts alone."""
    left = dict(state)
    for parts, own in zip(every, kept, strict=True):
        rows, columns = parts.places(own, state)
        left |= {key: state[key][rows] for key in (f"{parts.into}.weight", f"{parts.into}.bias") if key in state}
        left[f"{parts.out}.weight"] = state[f"{parts.out}.weight"][:, columns]
    return left


def norms(state: Mapping[str, Tensor], every: Sequence[Parts]) -> list[Tensor]:
    """Of each part the norm of its weights, (parts,)."""
    scores = []
    for parts in every:
        into, out = state[f"{parts.into}.weight"].square().sum(1), state[f"{parts.out}.weight"].square().sum(0)
        scores.append((into.unflatten(0, (-1, len(out))).sum(0) + out).unflatten(0, (-1, parts.size)).sum(1).sqrt())
    return scores


def gradients(
    model: LanguageModel, every: Sequence[Parts], objective: Objective, batches: Batches, tokens: int
) -> tuple[list[Tensor], dict[str, int]]:  # fmt: skip
    """Of each part the mean over rows of |d loss / d mask|, where the mask, 1, is what the part is multiplied by, (parts,); and what it
    cost. The mean is over rows of at least so many tokens."""
    model.eval().requires_grad_(False)
    scores, rows, read, rate = [torch.zeros(()) for _ in every], 0, 0, None
    for step in count():
        batch = batches[step]
        places = [(model.get_submodule(parts.out), parts.size) for parts in every]
        with masked(places) as masks, flop_counter() if rate is None else nullcontext() as counter:
            losses, _ = objective.losses(model, batch.tensors, None)
            weights = objective.weights
            sum(weights.get(name, 1.0) * loss / max(1.0, batch.counts[name]) for name, (loss, _) in losses.items()).backward()
        if counter:
            rate = counter.get_total_flops() / batch.counts["tokens"]
        # a row's own loss and its own mask: gradients of opposite signs in two rows don't cancel each other out
        scores = [score + mask.grad.abs().sum(0) for score, mask in zip(scores, masks, strict=True)]
        rows, read = rows + len(masks[0]), read + int(batch.counts["tokens"])
        if read >= tokens:
            return [score / rows for score in scores], {"tokens": read, "flops": int(rate * read)}


@contextmanager
def masked(places: Sequence[tuple[nn.Linear, int]]) -> Iterator[list[Tensor]]:
    """Multiply what goes into each of these matrices by a mask (rows, parts), 1 everywhere, for each row of a batch; filled as they are
    run, once a matrix, however often layers use it."""
    masks: list[Tensor | None] = [None] * len(places)

    def multiply(place: int, size: int, inputs: Tensor) -> Tensor:
        x = inputs.unflatten(-1, (-1, size))  # (rows, length, parts, size)
        if masks[place] is None:
            masks[place] = x.new_ones(len(x), x.shape[2], requires_grad=True)
        return (x * masks[place][:, None, :, None]).flatten(2)

    hooks = [
        matrix.register_forward_pre_hook(lambda _, inputs, place=place, size=size: multiply(place, size, *inputs))
        for place, (matrix, size) in enumerate(places)
    ]
    try:
        yield masks
    finally:
        for hook in hooks:
            hook.remove()
