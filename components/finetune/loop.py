"""One fine-tuning: a fixed number of epochs, the last one counts, nothing is selected on dev or test."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from components import params
from components.errors import SesameError
from components.finetune.data import Encoded, batches
from components.flops import counted
from components.optimizer import adamw, factor, matrices

EVAL_BATCH_SIZE = 128


@dataclass(frozen=True)
class Fitted:
    """A trained module."""

    predict: Callable[[Encoded], Tensor]
    """From a split to predictions (examples,): label indices, or scores in the task's own unit."""
    trained_parameters: int
    """Those that got a gradient."""
    flops: int
    """Of training, from its first batch."""


def fit(
    fabric: Fabric, module: nn.Module, data: Encoded, recipe: params.Recipe, seed: int, regression: bool, report: Callable[[int, float], None]
) -> Fitted:  # fmt: skip
    """Train `module` on what its `inputs` gave, where and in the precision that `fabric` says; `report(epoch, loss)` after each epoch.

    Raises SesameError when the loss is not a number.
    """
    rng = np.random.default_rng([seed, 1])
    centre, scale = (data.targets.mean(), data.targets.std()) if regression else (torch.tensor(0.0), torch.tensor(1.0))
    module, optimizer = fabric.setup(module, adamw(module, matrices(module), recipe.learning_rate, recipe.weight_decay))
    schedule = params.Optimizer(learning_rate=recipe.learning_rate, warmup=recipe.warmup)
    flops = 0
    steps, step = recipe.epochs * -(-len(data) // recipe.batch_size), 0
    for epoch in range(recipe.epochs):
        module.train()
        total = 0.0
        for texts, segment_ids, index in batches(data, recipe.batch_size, rng):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * factor(schedule, (step + 0.5) / steps)
            texts, segment_ids, targets = fabric.to_device((texts, segment_ids, data.targets[index]))
            with counted() if step == 0 else nullcontext() as counter:
                output = module(texts, segment_ids).float()
                loss = mse_loss(output[:, 0], (targets - centre) / scale) if regression else cross_entropy(output, targets)
                fabric.backward(loss)
            if counter:
                flops = counter.get_total_flops() * steps
            fabric.clip_gradients(module, optimizer, max_norm=1.0, error_if_nonfinite=False)  # the check below names the epoch
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += float(loss.detach()) * len(index)
            step += 1
        if not np.isfinite(total):
            raise SesameError(f"the loss is not a number in epoch {epoch + 1} of fine-tuning; lower the recipe's learning_rate")
        report(epoch + 1, total / len(data))

    @torch.no_grad()
    def predict(split: Encoded) -> Tensor:
        module.eval()
        found = torch.zeros(len(split))
        for texts, segment_ids, index in batches(split, EVAL_BATCH_SIZE, None):
            output = module(*fabric.to_device((texts, segment_ids))).float().cpu()
            found[index] = output[:, 0] * scale + centre if regression else output.argmax(1).float()
        return found

    return Fitted(predict, sum(parameter.numel() for parameter in optimizer.state), flops)
