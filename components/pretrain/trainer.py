"""The Lightning trainer with Sesame's strategy, checkpoint files and launchers."""

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


class ShardedStrategy(ModelParallelStrategy):
    """FSDP over all devices; a checkpoint is one file of the full state, which loads on any number of devices."""

    def __init__(self):
        super().__init__(save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_processes * self.num_nodes, 1
        super().setup_environment()


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint completely or not at all. (Lightning writes through the system's temporary folder, maybe on another disk.)"""

    def save_checkpoint(self, checkpoint: dict, path: str, storage_options: object = None) -> None:
        with storage.output(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def launch_options(run: Running) -> dict:
    """Return the trainer's devices, nodes and cluster environment. (Lightning alone would take a pool worker in a Slurm job for a task.)

    Raise SesameError in a stage that is not launched by `run.launcher`.
    """
    if (launched := os.environ.get(processes.LAUNCHED, "none")) != run.launcher:
        raise SesameError(
            f"run.launcher {run.launcher} is for the stage `pretrain` alone, and this one was launched by {launched}: take none"
        )
    if run.launcher == "none":
        return {"devices": run.devices, "plugins": [LightningEnvironment()]}
    if run.launcher == "slurm":
        devices = int(os.environ["SLURM_NTASKS"]) // run.num_nodes
        return {"devices": devices, "num_nodes": run.num_nodes, "plugins": [SLURMEnvironment(auto_requeue=False)]}
    nodes, devices = (int(os.environ[key]) for key in ("GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"))  # as many as have joined
    return {"devices": devices, "num_nodes": nodes, "plugins": [TorchElasticEnvironment()]}


def lightning_trainer(config: Model, steps: int | None, callbacks: list[Callback]) -> L.Trainer:
    """Build the trainer without Lightning's samplers, checkpoints and progress bar.

    Raise SesameError if this machine lacks the devices that `config.run` requests.
    """
    warnings.filterwarnings("ignore", module="lightning")
    run, validations = config.run, config.trainer.validations
    interval = max(1, steps // validations) if steps else timedelta(minutes=config.budget.minutes / validations)
    launch = launch_options(run)
    launch["plugins"].append(AtomicCheckpointIO())
    options = dict(
        accelerator=run.accelerator, strategy=ShardedStrategy() if run.strategy == "fsdp" else run.strategy,
        precision=compute.precision(config.trainer.precision, run.accelerator), max_steps=steps or -1, max_epochs=-1,
        val_check_interval=interval, check_val_every_n_epoch=None, num_sanity_val_steps=0,
        callbacks=callbacks, enable_checkpointing=False, logger=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, deterministic=config.trainer.deterministic, **launch,
    )  # fmt: skip
    try:
        return L.Trainer(**options)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        requested = f"accelerator {run.accelerator}, devices {run.devices}, strategy {run.strategy}"
        raise SesameError(f"run: {str(error).splitlines()[0]} ({requested})") from None
