"""Whether a step fits into a device's memory, found out before the first one."""

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy

from components.core.errors import OUT_OF_MEMORY, SesameError
from components.objectives.examples.phases import Phases
from components.objectives.examples.windows import Rows
from components.pretrain.data import micro_batches
from components.pretrain.module import Pretraining


def fits(module: Pretraining, rows: Rows) -> bool:
    """Whether forward and backward of these rows, and Adam's moments of all that is trained, find room; weights and their gradients stay as
    they are."""
    trained = [own for own in module.parameters() if own.requires_grad]
    try:
        moments = [torch.empty_like(own) for own in trained for _ in range(2)]
        losses, _ = module.objective.losses(module.model, rows, None)
        # not `backward`: several processes exchange what that leaves on the parameters
        torch.autograd.grad(sum(loss for loss, _ in losses.values()), trained, allow_unused=True)
    except RuntimeError as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        return False
    return bool(moments)


def check(module: Pretraining, phases: Phases, parts: int, device: torch.device) -> None:
    """Try the widest step of each phase's beginning, one of its `parts` micro-batches. Raises SesameError with what of it fits."""
    for start in phases.starts:
        batch = max(phases.draw(*phases.bounds(start)), key=lambda batch: sum(part.numel() for part in batch.rows.values()))
        rows = {name: part.chunk(parts)[0].to(device) for name, part in batch.rows.items()}
        asked = len(next(iter(rows.values())))
        for more in (more for more in range(1, asked + 1) if asked % more == 0):
            if fits(module, {name: part[: asked // more] for name, part in rows.items()}):
                break
        else:
            raise SesameError(f"not even one row of a step fits into the memory of {device}; make the model or max_length smaller")
        if more > 1:
            cure = f"{asked // more} do: trainer.accumulate {parts * more}, or trainer.recompute"
            raise SesameError(f"a micro-batch of {asked} rows does not fit into the memory of {device}; {cure}")


class DryStep(Callback):
    """Finds out on a GPU whether a step fits, before the first one. (On a CPU the system would kill the process, not say no.)"""

    def __init__(self, phases: Phases):
        self.phases = phases

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        device = trainer.strategy.root_device
        if device.type == "cpu" or isinstance(trainer.strategy, ModelParallelStrategy):
            return
        parts, _ = micro_batches(module.block.trainer.accumulate, trainer.world_size, trainer.global_rank)
        with trainer.precision_plugin.train_step_context():
            check(module, self.phases, parts, device)
