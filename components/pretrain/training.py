"""One pre-training, from a section of params.yaml and an encoding to a model's folder.

A killed run resumes from its last checkpoint, in `.sesame/checkpoints/<name>-<key>`: the key is a hash of the settings that the
result depends on, the data and the code, so that only an identical training resumes from it.
"""

import csv
import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import torch
from torch import Tensor

from components.core import compute, processes, storage
from components.core.errors import Diverged, SesameError, Unreachable
from components.core.tracking import Run
from components.models import store
from components.models.contract import LanguageModel
from components.params import Model
from components.pretrain.baselines import baseline_metrics
from components.pretrain.checkpoints import MilestoneModels, PeriodicCheckpoint, copy_to_nodes
from components.pretrain.cost import matmul_peak
from components.pretrain.data import PretrainData, micro_batches
from components.pretrain.memory_check import MemoryCheck
from components.pretrain.module import Pretraining
from components.pretrain.remote_checkpoints import RemoteCheckpoints
from components.pretrain.setup import Setup, set_up
from components.pretrain.trainer import lightning_trainer
from components.stages.closure import fingerprint
from components.stages.parts import optimizer_modules


@dataclass(frozen=True)
class TrainingResult:
    """The result of a pre-training, next to the files that it wrote."""

    model: LanguageModel
    metrics: dict
    curve: list[dict[str, float]]
    """One row per validation."""
    seconds: float
    """Of training, over all attempts."""


def checkpoint_folder(config: Model, name: str, milestones: Sequence[int] = (), start: Path | None = None) -> Path:
    """Return the folder of the checkpoint that a killed attempt of the same training may have left, whatever hardware it ran on."""
    settings = config.settings()
    roots = (
        __name__, f"components.models.{config.architecture.name}.model", f"components.objectives.{config.objective.name}.objective",
        "components.text.tokenizer.trained", *optimizer_modules(config),
    )  # fmt: skip
    key = hashlib.sha256(f"{fingerprint(roots)} {settings} {list(milestones)}".encode())
    key.update((Path("data/encoded") / config.encoding / "meta.json").read_bytes())
    if start:
        key.update((start / "model.safetensors").read_bytes())
    return storage.STATE / "checkpoints" / f"{name}-{key.hexdigest()[:16]}"


def pretrain(
    config: Model, name: str, folder: Path, run: Run, milestones: Sequence[int] = (), start: Path | None = None
) -> TrainingResult | None:  # fmt: skip
    """Train a model and write it to `folder`. Return None on other ranks than the first.

    The model after each number of tokens in `milestones` goes to `folder/<tokens>`, with `figures.json`. With `start` the
    training continues from the weights in that folder.
    """
    if processes.rank_zero():
        with storage.writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)  # fails before the training if the folder is not writable
    compute.prepare(config.trainer.threads)
    setup = set_up(config, start)
    module = Pretraining(
        config, setup.model, setup.networks, setup.objective, setup.train.steps, run, setup.raw_bytes_ratio, setup.train.starts
    )  # fmt: skip
    checkpoints = checkpoint_folder(config, name, milestones, start)
    write = _model_writer(config, setup, module, start)
    periodic = PeriodicCheckpoint(checkpoints / "last.ckpt", config.run.checkpoint_seconds)
    milestone_models = MilestoneModels(checkpoints / "kept", milestones, setup.train.flops, write)
    trainer = lightning_trainer(config, setup.train.steps, [MemoryCheck(setup.train), milestone_models, periodic])
    if trainer.is_global_zero:
        checkpoints.mkdir(parents=True, exist_ok=True)
        if run.id:
            (checkpoints / "run_id").write_text(run.id)  # for the next attempt, if this one is killed
        length = f"{setup.train.steps:,} steps" if setup.train.steps else f"{config.budget.minutes} minutes"
        print(f"{store.count_parameters(setup.model):,} parameters, {length}, {trainer.precision}", flush=True)
    _check_batch_sizes(config, trainer)
    data = PretrainData(setup.train, setup.valid, config.trainer.validation_batches, config.trainer.accumulate, config.run.workers)
    if trainer.is_global_zero and config.run.checkpoints_to:
        periodic.remote = RemoteCheckpoints(config.run.checkpoints_to, checkpoints, config.run.send_seconds)
        periodic.remote.fetch()
    copied = trainer.num_nodes > 1 and copy_to_nodes(trainer, checkpoints / "last.ckpt")
    try:
        state = _fit(trainer, module, data, checkpoints / "last.ckpt")
    except Diverged as error:  # it gives no model, and its cost counts where it was a trial
        error.cost = _cost(trainer, module, setup)
        raise
    if not trainer.is_global_zero:
        if copied:
            shutil.rmtree(checkpoints, ignore_errors=True)  # missing if rank zero had no checkpoint
        return None
    # a new model, since FSDP may have sharded the trained one
    model = store.build(config.architecture, setup.tokens)
    model.load_state_dict(_model_weights(state))
    with storage.output(folder) as target:
        write(target, state)
        for milestone in milestones:
            # copied, not moved: an attempt that is killed before the next line is repeated
            shutil.copytree(checkpoints / "kept" / str(milestone), target / str(milestone))
    result = TrainingResult(model, _metrics(trainer, module, setup), module.curve, module.seconds)
    # last: without metrics the stage is not recorded, and an attempt that is killed while they are computed is repeated
    if periodic.remote:
        periodic.remote.remove()
    shutil.rmtree(checkpoints)
    return result


def _model_writer(config: Model, setup: Setup, module: Pretraining, start: Path | None) -> Callable[[Path, dict[str, Tensor]], None]:
    """Return a function that writes the model to a folder as it is after the tokens read so far."""
    earlier = store.about(start) if start else None
    # a module that an earlier training has changed is stored, whether or not this one trains it
    absent = [name for name in setup.untrained if earlier is None or name in earlier.absent]

    def write(target: Path, state: dict[str, Tensor]) -> None:
        flops = setup.train.flops(module.tokens)
        step = {"by": "pretrained", "objective": config.objective.name, "tokens": module.tokens, "flops": flops}
        lineage = [*earlier.lineage, step | {"on": config.encoding}] if earlier else [step]
        store.save(target, _model_weights(state), config.architecture, setup.tokens, absent, lineage)

    return write


def _check_batch_sizes(config: Model, trainer: L.Trainer) -> None:
    """Raise SesameError for a batch size that the micro-batches do not divide; with `devices: auto` this is known only here."""
    total, _ = micro_batches(config.trainer.accumulate, trainer.world_size, trainer.global_rank)
    for size in (config.batch_size, *(phase.batch_size for phase in config.phases if phase.batch_size)):
        if size % total:
            raise SesameError(f"batch_size {size} is not divisible by {total} micro-batches on {trainer.world_size} devices")


def _model_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the model's weights without those of the objective's networks."""
    return {key.removeprefix("model."): value for key, value in state.items() if key.startswith("model.")}


def _fit(trainer: L.Trainer, module: Pretraining, data: PretrainData, last: Path) -> dict[str, Tensor]:
    """Train, from the last checkpoint if there is one, and validate; return the full state dict."""
    if last.exists():
        check_checkpoint(last)
    try:
        trainer.fit(module, data, ckpt_path=str(last) if last.exists() else None, weights_only=True)
    except SystemExit:
        if trainer.interrupted:  # Lightning turns Ctrl-C into an exit
            raise KeyboardInterrupt from None
        raise
    except torch.OutOfMemoryError as error:
        advice = f"raise trainer.accumulate (now {module.config.trainer.accumulate}) or set trainer.recompute"
        raise SesameError(f"out of memory in step {trainer.global_step + 1}: {str(error).partition('. ')[0]}; {advice}") from None
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = next(line.strip() for line in str(error).splitlines() if line.strip())
        raise SesameError(f"trainer.compile: the model can't be compiled as one graph ({reason}); leave compile out") from None
    except RuntimeError as error:
        if isinstance(error, torch.distributed.DistError) or "/gloo/" in str(error):
            raise Unreachable(f"another process of this training was lost in step {trainer.global_step + 1}") from None
        raise
    if not module.valid or module.curve[-1]["step"] != trainer.global_step:  # unless the last step was validated during training
        trainer.validate(module, data, verbose=False)
    trainer.validate(module, data.full_validation(), verbose=False)  # metrics are of the complete split, the curve of some batches
    return trainer.strategy.lightning_module_state_dict()  # gathers shards under FSDP: every rank takes part


def _metrics(trainer: L.Trainer, module: Pretraining, setup: Setup) -> dict:
    """Return the metrics of the stage: the last validation, baselines, tokens read, and speed."""
    device = trainer.strategy.root_device
    peak = matmul_peak(device, torch.bfloat16 if "bf16" in str(trainer.precision) else torch.float32)
    speed = module.timed_tokens / module.timed_seconds if module.timed_seconds else module.tokens / module.seconds
    flops = setup.train.flops(module.tokens)
    batches, vocab_size = setup.train.phases[-1].batches, setup.tokens.vocab_size
    baselines = baseline_metrics(
        setup.objective, setup.train_text, setup.valid_text, vocab_size, batches, setup.valid, module.tokens
    )  # fmt: skip
    return module.valid | setup.objective.control_metrics(batches, setup.valid) | baselines | {
        "parameters": store.count_parameters(setup.model),
        "tokens": module.tokens,
        "steps": trainer.global_step,
        "unknown_share": setup.unknown,
        "left_out": max(phase.batches.left_out for phase in setup.train.phases),
        "tokens_per_second": speed,
        "peak_share": speed * flops / module.tokens / (peak * trainer.world_size),
        "precision": str(trainer.precision),
        "cost": _cost(trainer, module, setup),
    }


def _cost(trainer: L.Trainer, module: Pretraining, setup: Setup) -> dict[str, float]:
    """Return what the training counted itself: tokens, FLOPs, GPUs, and the seconds of earlier attempts."""
    return {
        "tokens": module.tokens,
        "flops": setup.train.flops(module.tokens),
        "gpus": trainer.world_size if trainer.strategy.root_device.type == "cuda" else 0,
        "earlier_seconds": module.earlier_seconds,
    }


def check_checkpoint(checkpoint: Path) -> None:
    """Raise SesameError for a checkpoint that can't be loaded, or that holds more than tensors and plain values.

    Such a pickle could run code.
    """
    try:
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        for key in ("state_dict", "optimizer_states", "loops", "global_step"):
            saved[key]
    except Exception as error:  # pickle and zip raise any exception on corrupt bytes
        raise SesameError(f"{checkpoint} can't be read ({type(error).__name__}); remove the folder to train from the start") from None


def write_curve(path: Path, curve: list[dict[str, float]]) -> None:
    """Write one row per validation: step, tokens, seconds, losses, speed."""
    with storage.output(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(curve[0]))
        writer.writeheader()
        for row in curve:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
