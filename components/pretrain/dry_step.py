"""Whether a step fits into a device's memory, found out before the first one."""

import torch
from torch import nn

from components.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.phases import Phases
from components.objectives.examples.windows import Rows

FULL = ("out of memory", "not enough memory", "can't allocate memory")
"""What torch says on a GPU and on CPUs."""


def fits(module: nn.Module, model: LanguageModel, objective: Objective, rows: Rows) -> bool:
    """Whether forward and backward of these rows, and Adam's moments of all that `module` trains, find room; weights and their gradients
    stay as they are."""
    trained = [own for own in module.parameters() if own.requires_grad]
    try:
        moments = [torch.empty_like(own) for own in trained for _ in range(2)]
        losses, _ = objective.losses(model, rows, None)
        # not `backward`: several processes exchange what that leaves on the parameters
        torch.autograd.grad(sum(loss for loss, _ in losses.values()), trained, allow_unused=True)
    except RuntimeError as error:
        if not any(words in str(error) for words in FULL):
            raise
        return False
    return bool(moments)


def check(
    module: nn.Module, model: LanguageModel, objective: Objective, phases: Phases, micro_batches: int, device: torch.device
) -> None:  # fmt: skip
    """Try the widest step of each phase's beginning. Raises SesameError with the largest micro-batch that fits, of those that divide it."""
    for start in phases.starts:
        batch = max(phases.draw(*phases.bounds(start)), key=lambda batch: sum(part.numel() for part in batch.rows.values()))
        rows = {name: part.chunk(micro_batches)[0].to(device) for name, part in batch.rows.items()}
        asked = len(next(iter(rows.values())))
        for parts in (parts for parts in range(1, asked + 1) if asked % parts == 0):
            if fits(module, model, objective, {name: part[: asked // parts] for name, part in rows.items()}):
                break
        else:
            raise SesameError(f"not even one row of a step fits into the memory of {device}; make the model or max_length smaller")
        if parts > 1:
            cure = f"{asked // parts} do: trainer.accumulate {micro_batches * parts}, or trainer.recompute"
            raise SesameError(f"a micro-batch of {asked} rows does not fit into the memory of {device}; {cure}")
