"""Lightning's trainer, told what is ours."""

import os
import warnings
from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from components.core import compute, processes, storage
from components.core.errors import SesameError
from components.params import Model, Running


class Sharded(ModelParallelStrategy):
    """Weights, gradients and moments shared out among all devices; a save is one file of the whole, for any number of devices."""

    def __init__(self):
        super().__init__(save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_processes * self.num_nodes, 1
        super().setup_environment()


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints whole or not at all: Lightning's own go through the system's temporary folder, maybe another disk."""

    def save_checkpoint(self, checkpoint: dict, path: str, storage_options: object = None) -> None:
        with storage.output(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def world(run: Running) -> dict:
    """Who has started this process and how many others: Lightning alone would guess, and take a pool's worker in a job of Slurm for a task.

    Raises SesameError in a stage that is not launched.
    """
    if (launched := os.environ.get(processes.LAUNCHED, "none")) != run.launcher:
        raise SesameError(
            f"run.launcher {run.launcher} is for the stage `pretrain` alone, and this one was launched by {launched}: take none"
        )
    if run.launcher == "none":
        return {"devices": run.devices, "plugins": [LightningEnvironment()]}
    if run.launcher == "slurm":
        each = int(os.environ["SLURM_NTASKS"]) // run.num_nodes
        return {"devices": each, "num_nodes": run.num_nodes, "plugins": [SLURMEnvironment(auto_requeue=False)]}
    nodes, each = (int(os.environ[key]) for key in ("GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"))  # of those that are there now
    return {"devices": each, "num_nodes": nodes, "plugins": [TorchElasticEnvironment()]}


def lightning_trainer(block: Model, steps: int | None, callbacks: list[Callback]) -> L.Trainer:
    """Lightning with our own batches, checkpoints and lines of progress.

    Raises SesameError where this machine has not what the block asks for.
    """
    warnings.filterwarnings("ignore", module="lightning")
    run = block.run
    between = max(1, steps // block.trainer.validations) if steps else timedelta(minutes=block.budget.minutes / block.trainer.validations)
    strategy, own = Sharded() if run.strategy == "fsdp" else run.strategy, world(run)
    own["plugins"].append(WholeCheckpoints())
    options = dict(
        accelerator=run.accelerator, strategy=strategy,
        precision=compute.precision(block.trainer.precision, run.accelerator), max_steps=steps or -1, max_epochs=-1,
        val_check_interval=between, check_val_every_n_epoch=None, num_sanity_val_steps=0,
        callbacks=callbacks, enable_checkpointing=False, logger=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, deterministic=block.trainer.deterministic, **own,
    )  # fmt: skip
    try:
        return L.Trainer(**options)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        asked = f"accelerator {run.accelerator}, devices {run.devices}, strategy {run.strategy}"
        raise SesameError(f"run: {str(error).splitlines()[0]} ({asked})") from None
