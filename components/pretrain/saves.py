"""What is saved on the way: checkpoints that a killed run goes on from, and models kept after so many tokens."""

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
from components.pretrain.afar import Afar
from components.pretrain.data import Steps
from components.pretrain.module import Pretraining


class Checkpoints(Callback):
    """Saves every so many seconds. (Lightning's ModelCheckpoint knows no time interval under manual optimization.)"""

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds, self.saved = path, seconds, time.monotonic()
        self.afar: Afar | None = None  # of rank zero

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        done, between = trainer.global_step, trainer.val_check_batch
        # the validation after the step of the save: the attempt that saved was killed before it, or with it
        if done and between and done % between == 0 and not any(row["step"] == done for row in module.curve):
            validate(trainer, module, trainer.datamodule.val_dataloader())

    def on_train_batch_end(self, trainer: L.Trainer, module: Pretraining, *_) -> None:
        if trainer.world_size > 1 and trainer.global_step % module.block.run.log_every:
            return  # the ranks save together, and to agree on it they wait for each other
        if trainer.strategy.broadcast(time.monotonic() - self.saved > self.seconds):
            trainer.save_checkpoint(self.path)
            self.saved = time.monotonic()
            if self.afar:
                self.afar.send(trainer.global_step)


CHUNK = 2**26
"""Bytes that go over at a time: they pass through a GPU's memory."""


def spread(trainer: L.Trainer, last: Path) -> bool:
    """Bring rank zero's save to the same place on all other nodes, or take away what stands there. Returns whether a node has got its own
    copy, which is then its to remove: nodes that share the folder have the one."""
    strategy = trainer.strategy
    strategy.setup_environment()  # `fit` does it again, which changes nothing: processes have to talk before it
    zero, token = trainer.is_global_zero, strategy.broadcast(f".{uuid.uuid4()}")
    if zero:
        last.with_name(token).touch()
    strategy.barrier()
    apart = not last.with_name(token).exists()
    strategy.barrier()
    if zero:
        last.with_name(token).unlink()
    size = strategy.broadcast(last.stat().st_size if zero and last.exists() else None)
    writes = apart and strategy.local_rank == 0
    if writes:
        last.unlink(missing_ok=True)
    if size is not None:
        with ExitStack() as stack:
            source = stack.enter_context(open(last, "rb")) if zero else None
            target = stack.enter_context(open(stack.enter_context(storage.output(last)), "wb")) if writes else None
            for first in range(0, size, CHUNK):
                part = torch.empty(min(CHUNK, size - first), dtype=torch.uint8, device=strategy.root_device)
                if source:
                    part.copy_(torch.frombuffer(bytearray(source.read(len(part))), dtype=torch.uint8))
                torch.distributed.broadcast(part, 0)
                if target:
                    target.write(part.cpu().numpy())
    strategy.barrier()
    return writes


def validate(trainer: L.Trainer, module: Pretraining, steps: Steps) -> None:
    """Score these steps in the midst of a training."""
    module.eval()
    with torch.no_grad(), trainer.precision_plugin.val_step_context():
        module.on_validation_epoch_start()
        for batch in steps:
            module.validation_step(trainer.strategy.batch_to_device(batch), 0)
        module.on_validation_epoch_end()
    module.train()


class Kept(Callback):
    """Keeps the model as it is after so many tokens: its weights, and the validation's figures at that step."""

    def __init__(self, folder: Path, milestones: Sequence[int], flops: Callable[[int], int], write: Callable[[Path, dict], None]):
        self.folder, self.milestones, self.flops, self.write = folder, milestones, flops, write

    def on_train_start(self, trainer: L.Trainer, module: Pretraining) -> None:
        self.seen = sum(milestone <= module.tokens for milestone in self.milestones)

    def on_train_batch_end(self, trainer: L.Trainer, module: Pretraining, *_) -> None:
        reached = [milestone for milestone in self.milestones if module.tokens >= milestone]
        due, self.seen = reached[self.seen :], len(reached)
        if not due:
            return
        validate(trainer, module, trainer.datamodule.whole_split())
        state = trainer.strategy.lightning_module_state_dict()
        figures = module.valid | {
            "parameters": store.count_parameters(module.model), "tokens": module.tokens, "steps": trainer.global_step,
            "flops": self.flops(module.tokens), "seconds": module.seconds,
        }  # fmt: skip
        # an attempt that was killed before its next save may have written it; the validation is a row of the curve all the same
        unwritten = [milestone for milestone in due if not (self.folder / str(milestone)).exists()]
        for milestone in unwritten if trainer.is_global_zero else ():
            with storage.output(self.folder / str(milestone)) as target:
                self.write(target, state)
                storage.write_json(target / "figures.json", figures)
