"""Files saved during a training: checkpoints to resume a killed run from, and models at token milestones."""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from components.core import storage
from components.models import store
from components.pretrain.data import StepLoader
from components.pretrain.module import Pretraining
from components.pretrain.remote_checkpoints import RemoteCheckpoints


class PeriodicCheckpoint(Callback):
    """Saves a checkpoint every `seconds`. (Lightning's ModelCheckpoint has no time interval under manual optimization.)"""

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds, self.last_save = path, seconds, time.monotonic()
        self.remote: RemoteCheckpoints | None = None  # on rank zero only

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        step, interval = trainer.global_step, trainer.val_check_batch
        # validate after the step of the checkpoint: the attempt that saved it was killed before it did
        if step and interval and step % interval == 0 and not any(row["step"] == step for row in module.curve):
            validate(trainer, module, trainer.datamodule.val_dataloader())
            module.add_row()

    def on_train_batch_end(self, trainer: L.Trainer, module: Pretraining, *_) -> None:
        if trainer.world_size > 1 and trainer.global_step % module.config.run.log_every:
            return  # the ranks wait for each other to agree on saving, so they ask only now and then
        if trainer.strategy.broadcast(time.monotonic() - self.last_save > self.seconds):
            trainer.save_checkpoint(self.path)
            self.last_save = time.monotonic()
            if self.remote:
                self.remote.send(trainer.global_step)


BROADCAST_BYTES = 2**26
"""Bytes that are broadcast at a time; they pass through the memory of a GPU."""


def copy_to_nodes(trainer: L.Trainer, last: Path) -> bool:
    """Copy rank zero's checkpoint to the same path on all other nodes; where rank zero has none, remove theirs.

    Return whether this process wrote a copy, which it has to remove later; nodes that share the folder have one file.
    """
    strategy = trainer.strategy
    strategy.setup_environment()  # `fit` repeats it without effect; the processes have to communicate before
    is_zero, token = trainer.is_global_zero, strategy.broadcast(f".{uuid.uuid4()}")
    if is_zero:
        last.with_name(token).touch()
    strategy.barrier()
    own_folder = not last.with_name(token).exists()
    strategy.barrier()
    if is_zero:
        last.with_name(token).unlink()
    size = strategy.broadcast(last.stat().st_size if is_zero and last.exists() else None)
    writes = own_folder and strategy.local_rank == 0
    if writes:
        last.unlink(missing_ok=True)
    if size is not None:
        with ExitStack() as stack:
            source = stack.enter_context(open(last, "rb")) if is_zero else None
            target = stack.enter_context(open(stack.enter_context(storage.output(last)), "wb")) if writes else None
            for start in range(0, size, BROADCAST_BYTES):
                buffer = torch.empty(min(BROADCAST_BYTES, size - start), dtype=torch.uint8, device=strategy.root_device)
                if source:
                    buffer.copy_(torch.frombuffer(bytearray(source.read(len(buffer))), dtype=torch.uint8))
                torch.distributed.broadcast(buffer, 0)
                if target:
                    target.write(buffer.cpu().numpy())
    strategy.barrier()
    return writes


def validate(trainer: L.Trainer, module: Pretraining, steps: StepLoader) -> None:
    """Fill `module.valid` by these steps, between two training steps."""
    module.eval()
    with torch.no_grad(), trainer.precision_plugin.val_step_context():
        module.on_validation_epoch_start()
        for batch in steps:
            module.validation_step(trainer.strategy.batch_to_device(batch), 0)
        module.summarise_validation()
    module.train()


class MilestoneModels(Callback):
    """Saves the model at token milestones: its weights, and the validation metrics at that step."""

    def __init__(self, folder: Path, milestones: Sequence[int], flops: Callable[[int], int], write: Callable[[Path, dict], None]):
        self.folder, self.milestones, self.flops, self.write = folder, milestones, flops, write

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        self.passed = sum(milestone <= module.tokens for milestone in self.milestones)

    def on_train_batch_end(self, trainer: L.Trainer, module: Pretraining, *_) -> None:
        reached = [milestone for milestone in self.milestones if module.tokens >= milestone]
        due, self.passed = reached[self.passed :], len(reached)
        if not due:
            return
        # no row of the curve, whose rows are of `validation_batches` batches
        validate(trainer, module, trainer.datamodule.full_validation())
        state = trainer.strategy.lightning_module_state_dict()
        metrics = module.valid | {
            "parameters": store.count_parameters(module.model), "tokens": module.tokens, "steps": trainer.global_step,
            "flops": self.flops(module.tokens), "seconds": module.seconds,
        }  # fmt: skip
        # an attempt that was killed before its next checkpoint may have written the model
        unwritten = [milestone for milestone in due if not (self.folder / str(milestone)).exists()]
        for milestone in unwritten if trainer.is_global_zero else ():
            with storage.output(self.folder / str(milestone)) as target:
                self.write(target, state)
                storage.write_json(target / "figures.json", metrics)
