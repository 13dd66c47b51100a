"""The training loop of fine-tuning: a fixed number of epochs, of which the last counts, or the best on dev where the recipe says so."""

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from components import params
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.finetune.data import Batch, Encoded, Texts, batches
from components.finetune.kinds import Kind
from components.finetune.methods import layers_below_head
from components.optimizers import factor, parameter_groups
from components.optimizers.config import OptimizerBlock

EVAL_BATCH_SIZE = 128


class Predictions(NamedTuple):
    """The predictions of a module for the examples of a split."""

    values: list[Any]
    """One for each example, in the task's terms: a label's name, a score, an answer."""
    logits: np.ndarray | None
    """Of the task's labels, (examples, labels); None where the kind of task has none."""


@dataclass(frozen=True)
class FitResult:
    """A trained module and the cost of its training."""

    predict: Callable[[Encoded], "Predictions"]
    """Predict the examples of a split."""
    trained_parameters: int
    """Those that got a gradient: a language model's pre-training heads get none."""
    epochs: int
    """Epochs after which the weights in use were taken."""
    tokens: int
    """Read in training, without padding."""
    seconds: float
    """Training time, without evaluation on dev."""
    flops: int
    """Of training: those of one batch, counted again when other weights are trained, times the padded tokens."""


def fit(
    fabric: Fabric, module: nn.Module, kind: Kind, data: Encoded, recipe: params.Recipe, seed: int, report: Callable[[int, float], None],
    dev_score: Callable[[list[Any]], float | None] | None = None, dev: Encoded | None = None,
    stop: Callable[[int, float | None], bool] | None = None,
) -> FitResult:  # fmt: skip
    """Train `module` on the encoded training split; call `report(epoch, loss)` after each epoch.

    With `recipe.patience` the weights of the epoch with the best `dev_score` on `dev` are used. Training ends after an epoch for which
    `stop(epoch, score on dev)` is true. Raises SesameError when the loss is not finite.
    """
    rng = np.random.default_rng([seed, 1])
    kind.prepare_targets(data)
    if not any(parameter.requires_grad for parameter in module.parameters()):  # a method without training
        module = fabric.setup(module.eval())
        return FitResult(partial(predict, fabric, module, kind), 0, 0, 0, 0.0, 0)
    unfrozen = [(layers_below_head(name, module), p) for name, p in module.named_parameters() if p.requires_grad]
    if recipe.gradual_unfreezing and (needed := 1 + max(depth for depth, _ in unfrozen)) > recipe.epochs:
        reached = f"{recipe.epochs} epochs unfreeze {recipe.epochs} of {needed} groups of layers"
        print(f"gradual_unfreezing: {reached}, the others are never trained", flush=True)
    module, optimizer = fabric.setup(module, AdamW(optimizer_groups(module, recipe), fused=True))
    cost, seconds = Cost(), 0.0
    best, best_epoch, best_state = -np.inf, 0, None

    def predict_split(split: Encoded) -> Predictions:
        module.eval()
        return predict(fabric, module, kind, split)

    for epoch in range(recipe.epochs):
        started = time.perf_counter()
        if recipe.gradual_unfreezing:
            for depth, parameter in unfrozen:
                parameter.requires_grad_(depth <= epoch)  # the head alone, then one more layer in each epoch
        module.train()
        losses, sizes = train_epoch(fabric, module, optimizer, kind, data, batches(data, recipe.batch_size, rng), recipe, epoch, cost)
        total = sum(loss * size for loss, size in zip(torch.stack(losses).tolist(), sizes, strict=True))
        if not np.isfinite(total):
            raise SesameError(f"the loss is not a number in epoch {epoch + 1} of fine-tuning; lower the recipe's learning_rate")
        seconds += time.perf_counter() - started
        report(epoch + 1, total / len(data))
        score = dev_score(predict_split(dev).values) if recipe.patience is not None or stop else None
        if stop and stop(epoch + 1, score):
            break
        if recipe.patience is not None:
            if score is not None and score > best:
                best, best_epoch = score, epoch + 1
                best_state = {name: value.detach().clone() for name, value in module.state_dict().items()}
            elif best_state and epoch + 1 - best_epoch > recipe.patience:
                break
    if best_state:
        module.load_state_dict(best_state)
    elif recipe.patience is not None:
        print("patience: the score on dev is undefined after each epoch, so none is chosen and the last one counts", flush=True)
    # a gradient of zero trains nothing: CANINE's [CLS] does not pass through its last layer
    trained = sum(parameter.numel() for parameter, state in optimizer.state.items() if state["exp_avg_sq"].any())
    return FitResult(predict_split, trained, best_epoch if best_state else epoch + 1, cost.tokens, seconds, int(cost.flops))


@dataclass
class Cost:
    """What a training has cost so far."""

    tokens: int = 0
    """Without padding."""
    flops: float = 0.0
    flops_per_token: float = 0.0
    """Of the weights that are trained now."""


def train_epoch(
    fabric: Fabric, module: nn.Module, optimizer: Optimizer, kind: Kind, data: Encoded, order: Iterable[Batch], recipe: params.Recipe,
    epoch: int, cost: Cost,
) -> tuple[list[Tensor], list[int]]:  # fmt: skip
    """Train on the batches of an epoch, from 0, and add to `cost`; the loss of each batch and its number of examples. The losses stay on
    the device, since to read one waits for all work before it."""
    schedule = OptimizerBlock(learning_rate=recipe.learning_rate, warmup=recipe.warmup, schedule=recipe.schedule)
    per_epoch = -(-len(data) // recipe.batch_size)
    losses, sizes = [], []
    for number, batch in enumerate(order):
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor(schedule, (epoch * per_epoch + number + 0.5) / (recipe.epochs * per_epoch))
        texts, segments = fabric.to_device((batch.texts, batch.segments))
        counted = number == 0 and (epoch == 0 or recipe.gradual_unfreezing)
        with flop_counter() if counted else nullcontext() as counter:
            loss = kind.loss(module(texts, segments).float(), data, batch)
            fabric.backward(loss)
        padded = sum(text.shape[0] * text.shape[1] for text, _ in texts)
        if counter:
            cost.flops_per_token = counter.get_total_flops() / padded
        cost.flops += cost.flops_per_token * padded
        cost.tokens += sum(int(lengths.sum()) for _, lengths in batch.texts)
        fabric.clip_gradients(module, optimizer, max_norm=1.0, error_if_nonfinite=False)  # `fit` looks at the losses
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        sizes.append(len(batch.index))
    return losses, sizes


@torch.no_grad()
def predict(fabric: Fabric, module: Callable[[Texts, Tensor], Tensor], kind: Kind, split: Encoded) -> Predictions:
    """Predict each example of a split. Raises SesameError when an output is not finite."""
    values: list[Any] = [None] * len(split)
    logits = np.zeros((len(split), kind.outputs)) if kind.outputs_are_labels else None
    size = EVAL_BATCH_SIZE // (max(map(len, split.texts)) if split.choices else 1)
    for batch in batches(split, max(1, size), None):
        output = module(*fabric.to_device((batch.texts, batch.segments))).float().cpu()
        if not torch.isfinite(output).all():
            raise SesameError("the outputs are not numbers after fine-tuning; lower the recipe's learning_rate")
        for i, value in zip(batch.index, kind.predict(output, split, batch), strict=True):
            values[i] = value
        if logits is not None:
            logits[batch.index] = output
    return Predictions(values, logits)


def optimizer_groups(module: nn.Module, recipe: params.Recipe) -> list[dict[str, Any]]:
    """The trainable parameters in groups, each layer with its learning rate."""
    depth = partial(layers_below_head, module=module)
    return parameter_groups(module, recipe.learning_rate, recipe.weight_decay, recipe.layer_decay, depth)
