"""Whether a step fits into a device's memory, found out before the first one."""

import math

import torch

from components.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.phases import Phases
from components.objectives.examples.windows import Rows

FULL = ("out of memory", "not enough memory", "can't allocate memory")
"""What torch says on a GPU and on CPUs."""


def fits(model: LanguageModel, objective: Objective, rows: Rows) -> bool:
    """Whether forward and backward of these rows find room; weights and their gradients stay as they are."""
    try:
        losses, _ = objective.losses(model, rows, None)
        # not `backward`: several processes exchange what that leaves on the parameters
        torch.autograd.grad(sum(loss for loss, _ in losses.values()), [own for own in model.parameters() if own.requires_grad])
    except RuntimeError as error:
        if not any(words in str(error) for words in FULL):
            raise
        return False
    return True


def check(model: LanguageModel, objective: Objective, phases: Phases, micro_batches: int, device: torch.device) -> None:
    """Try the widest step of each phase's beginning. Raises SesameError with the largest micro-batch that fits."""
    for start in phases.starts:
        batch = max(phases.draw(*phases.bounds(start)), key=lambda batch: sum(part.numel() for part in batch.rows.values()))
        rows = {name: part.chunk(micro_batches)[0].to(device) for name, part in batch.rows.items()}
        size = asked = len(next(iter(rows.values())))
        while size and not fits(model, objective, {name: part[:size] for name, part in rows.items()}):
            size //= 2
        if size < asked:
            cure = f"{size} do: trainer.accumulate {math.ceil(micro_batches * asked / size)}" if size else "a single one does not, either"
            raise SesameError(f"a micro-batch of {asked} rows does not fit into the memory of {device}; {cure}, or trainer.recompute")
