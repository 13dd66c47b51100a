"""A check before the first step that a training step fits into the memory of the device."""

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy

from components.core.errors import OUT_OF_MEMORY, SesameError
from components.objectives.examples.batches import Tensors
from components.objectives.examples.phases import Phases
from components.pretrain.data import micro_batches
from components.pretrain.module import Pretraining


def fits(module: Pretraining, batch: Tensors) -> bool:
    """Return whether forward and backward of a batch fit, with Adam's moments of all trained weights.

    Weights and their gradients stay as they are.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        moments = [torch.empty_like(parameter) for parameter in trained for _ in range(2)]
        losses, _ = module.objective.losses(module.model, batch, None)
        # not `backward`, whose gradients the processes would exchange
        torch.autograd.grad(sum(loss for loss, _ in losses.values()), trained, allow_unused=True)
    except RuntimeError as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        return False
    return bool(moments)


def check(module: Pretraining, phases: Phases, total: int, device: torch.device) -> None:
    """Try the widest step in the first chunk of each phase, one of its `total` micro-batches. Raise SesameError if it does not fit."""
    for start in phases.starts:
        chunk = phases.draw(*phases.bounds(start))
        widest = max(chunk, key=lambda batch: sum(tensor.numel() for tensor in batch.tensors.values()))
        micro_batch = {name: tensor.chunk(total)[0].to(device) for name, tensor in widest.tensors.items()}
        size = len(next(iter(micro_batch.values())))
        for divisor in (divisor for divisor in range(1, size + 1) if size % divisor == 0):
            if fits(module, {name: tensor[: size // divisor] for name, tensor in micro_batch.items()}):
                break
        else:
            raise SesameError(f"not even one sequence fits into the memory of {device}; make the model or max_length smaller")
        if divisor > 1:
            advice = f"{size // divisor} fit: set trainer.accumulate {total * divisor}, or trainer.recompute"
            raise SesameError(f"a micro-batch of {size} sequences does not fit into the memory of {device}; {advice}")


class MemoryCheck(Callback):
    """Checks on a GPU that a step fits, before the first one. (On a CPU the system kills the process instead of raising.)"""

    def __init__(self, phases: Phases):
        self.phases = phases

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        device = trainer.strategy.root_device
        if device.type == "cpu" or isinstance(trainer.strategy, ModelParallelStrategy):
            return
        total, _ = micro_batches(module.config.trainer.accumulate, trainer.world_size, trainer.global_rank)
        with trainer.precision_plugin.train_step_context():
            check(module, self.phases, total, device)
