"""What is saved on the way: checkpoints that a killed run goes on from, and models kept after so many tokens."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from components import stage
from components.models import store
from components.pretrain.data import Steps
from components.pretrain.module import Pretraining


class Checkpoints(Callback):
    """Saves every so many seconds. (Lightning's ModelCheckpoint knows no time interval under manual optimization.)"""

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds, self.saved = path, seconds, time.monotonic()

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
            with stage.output(self.folder / str(milestone)) as target:
                self.write(target, state)
                stage.write_json(target / "figures.json", figures)
