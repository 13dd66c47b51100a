"""One pre-training, from a params block and an encoding to a model's folder.

A killed run goes on from its last checkpoint, in `.sesame/checkpoints/<name>-<key>`: the key is a hash of the params
block, the data and the code, so that a checkpoint is only ever continued by the very same work.
"""

import csv
import hashlib
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from components import compute, encode, models, objectives, stage, tokenizer
from components.errors import SesameError
from components.params import Model
from components.pretrain.cost import matmul_peak, training_flops
from components.pretrain.data import PretrainData
from components.pretrain.module import Pretraining
from components.tracking import Run

CODE = ("pretrain/*.py", "objectives/*.py", "models/*.py", "optimizer.py", "compute.py", "flops.py", "tokenizer/__init__.py", "encode/__init__.py")
"""What the weights depend on, as in dvc.yaml."""


@dataclass(frozen=True)
class Trained:
    """What a pre-training has made, beside the files."""

    model: torch.nn.Module
    objective: objectives.Objective
    text: encode.Split
    """The validation text."""
    metrics: dict
    curve: list[dict[str, float]]
    """One row a validation."""
    seconds: float
    """Of training, over all attempts."""


def checkpoint_folder(block: Model, name: str, keep: Sequence[int] = ()) -> Path:
    """Where a killed attempt of the same work has left its checkpoint, if there was one."""
    key = hashlib.sha256(f"{block.model_dump_json()} {list(keep)}".encode())
    key.update((Path("data/encoded") / block.encoding / "meta.json").read_bytes())
    for file in sorted(file for pattern in CODE for file in Path("components").glob(pattern)):
        key.update(file.read_bytes())
    return stage.STATE / "checkpoints" / f"{name}-{key.hexdigest()[:16]}"


def steps_of(block: Model, batches: objectives.Batches, flops_per_token: float) -> int | None:
    """Steps that spend the budget; None for a budget in minutes."""
    if block.budget.steps or block.budget.minutes:
        return block.budget.steps
    limit = block.budget.tokens or block.budget.flops / flops_per_token
    steps = tokens = 0
    while tokens < limit:
        tokens += batches.tokens(steps)
        steps += 1
    return steps


def pretrain(block: Model, name: str, folder: Path, run: Run, keep: Sequence[int] = ()) -> Trained | None:
    """Train a model and write it to `folder`; with `keep` also as it was after so many tokens, to `folder/<tokens>`, with `figures.json`.

    None on a rank that is not the first.
    """
    encoding = Path("data/encoded", block.encoding)
    if not (encoding / "meta.json").exists():
        raise SesameError(f"{encoding}: no such encoding; run `sesame run encode@{block.encoding}` first")
    compute.prepare(block.trainer.threads)
    torch.manual_seed(block.seed)
    tokens = tokenizer.load(encoding)
    objective = objectives.build(block.objective, tokens)
    texts = {split: encode.load(encoding, split) for split in ("train", "valid")}
    batches = objective.batches(texts["train"], block.batch_size, block.architecture.max_length, block.seed)
    valid = valid_batches(objective, texts["valid"], block)
    model = models.build(block.architecture, tokens)
    rows = {key: value[:8] for key, value in batches[0].items()}
    flops_per_token = training_flops(model, objective, rows) / int(objective.counts(rows)["tokens"])
    trained = {key.partition(".")[0] for key, parameter in model.named_parameters() if parameter.requires_grad}
    untrained = sorted({key.partition(".")[0] for key, _ in model.named_parameters()} - trained)
    if block.trainer.compile:
        model.compile()
    steps = steps_of(block, batches, flops_per_token)
    if block.objective.name == "mlm" and block.objective.static and steps and steps <= batches.epoch_steps():
        raise SesameError(f"objective.static makes no difference: the budget ends after {steps:,} of the {batches.epoch_steps():,} steps of the first epoch; use less text or a larger budget")
    module = Pretraining(block, model, objective, steps, run)
    checkpoints = checkpoint_folder(block, name, keep)

    def write(target: Path, state: dict[str, torch.Tensor]) -> None:
        state = {key.removeprefix("model."): value for key, value in state.items()}
        models.save(target, state, block.architecture, tokens, untrained)

    kept = checkpoints / "kept"
    saving = Checkpoints(checkpoints / "last.ckpt", block.trainer.checkpoint_seconds)
    trainer = lightning_trainer(block, steps, [Kept(kept, keep, flops_per_token, write), saving])
    if trainer.is_global_zero:
        checkpoints.mkdir(parents=True, exist_ok=True)
        if run.id:
            (checkpoints / "run_id").write_text(run.id)
        print(f"{models.count_parameters(model):,} parameters, {f'{steps:,} steps' if steps else f'{block.budget.minutes} minutes'}, {trainer.precision}", flush=True)
    last = checkpoints / "last.ckpt"
    data = PretrainData(batches, valid, block.trainer.validation_batches)
    if last.exists():
        check_readable(last)
    try:
        trainer.fit(module, data, ckpt_path=str(last) if last.exists() else None, weights_only=False)
    except SystemExit:
        if trainer.interrupted:  # Lightning turns Ctrl-C into an exit
            raise KeyboardInterrupt from None
        raise
    if not module.valid or module.curve[-1]["step"] != trainer.global_step:
        trainer.validate(module, data, verbose=False)
    state = trainer.strategy.lightning_module_state_dict()  # gathers shards under FSDP: every rank takes part
    if not trainer.is_global_zero:
        return None
    model = models.build(block.architecture, tokens)
    model.load_state_dict({key.removeprefix("model."): value for key, value in state.items()})
    peak = matmul_peak(trainer.strategy.root_device, torch.bfloat16 if "bf16" in str(trainer.precision) else torch.float32)
    speed = module.timed_tokens / module.timed_seconds if module.timed_seconds else module.tokens / module.seconds
    metrics = module.valid | {
        "parameters": models.count_parameters(model),
        "tokens": module.tokens,
        "steps": trainer.global_step,
        "tokens_per_second": speed,
        "peak_share": speed * flops_per_token / (peak * trainer.world_size),
        "precision": str(trainer.precision),
        "cost": {
            "tokens": module.tokens, "flops": int(flops_per_token * module.tokens),
            "gpus": trainer.world_size if trainer.strategy.root_device.type == "cuda" else 0,
            "earlier_seconds": module.earlier_seconds,
        },
    }  # fmt: skip
    with stage.output(folder) as target:
        write(target, state)
        for milestone in keep:
            shutil.move(kept / str(milestone), target / str(milestone))
    shutil.rmtree(checkpoints)
    return Trained(model, objective, texts["valid"], metrics, module.curve, module.seconds)


def valid_batches(objective: objectives.Objective, text: encode.Split, block: Model) -> objectives.Batches:
    """Batches of the validation text, drawn once; smaller ones when the text is too short for the training's."""
    size = block.batch_size
    while True:
        try:
            return objective.batches(text, size, block.architecture.max_length, seed=0)
        except SesameError:
            if size == 1:
                raise
            size = max(1, size // 2)


def check_readable(checkpoint: Path) -> None:
    """Raises SesameError when a checkpoint can't be loaded, e.g. after a crash of the disk."""
    try:
        found = torch.load(checkpoint, map_location="cpu", weights_only=False)
        for key in ("state_dict", "optimizer_states", "loops", "global_step"):
            found[key]
    except Exception as error:  # pickle and zip raise whatever the broken bytes lead to
        raise SesameError(f"{checkpoint} can't be read ({type(error).__name__}); remove the folder to train from the start") from None


class Checkpoints(Callback):
    """Saves every so many seconds. (Lightning's ModelCheckpoint knows no time interval under manual optimization.)"""

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds, self.saved = path, seconds, time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, *_) -> None:
        due = trainer.strategy.broadcast(time.monotonic() - self.saved > self.seconds)  # the ranks save together
        if due:
            trainer.save_checkpoint(self.path)
            self.saved = time.monotonic()


class Kept(Callback):
    """Keeps the model as it is after so many tokens: its weights, and the validation's figures at that step."""

    def __init__(self, folder: Path, milestones: Sequence[int], flops_per_token: float, write: Callable[[Path, dict], None]):
        self.folder, self.milestones, self.flops_per_token, self.write = folder, milestones, flops_per_token, write

    def on_train_batch_end(self, trainer: L.Trainer, module: Pretraining, *_) -> None:
        if not self.milestones:
            return
        due = [milestone for milestone in self.milestones if module.tokens >= milestone and not (self.folder / str(milestone)).exists()]
        due = trainer.strategy.broadcast(due)  # the first rank writes, and knows what it has
        if not due:
            return
        module.eval()
        with torch.no_grad(), trainer.precision_plugin.val_step_context():
            module.on_validation_epoch_start()
            for batch in trainer.datamodule.val_dataloader():
                module.validation_step(trainer.strategy.batch_to_device(batch), 0)
            module.on_validation_epoch_end()
        module.train()
        state = trainer.strategy.lightning_module_state_dict()
        figures = module.valid | {
            "parameters": models.count_parameters(module.model), "tokens": module.tokens, "steps": trainer.global_step,
            "flops": int(self.flops_per_token * module.tokens), "seconds": module.seconds,
        }  # fmt: skip
        for milestone in due if trainer.is_global_zero else ():
            with stage.output(self.folder / str(milestone)) as target:
                self.write(target, state)
                stage.write_json(target / "figures.json", figures)


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints whole or not at all: Lightning's own go through the system's temporary folder, maybe another disk."""

    def save_checkpoint(self, checkpoint: dict, path: str, storage_options: object = None) -> None:
        with stage.output(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def lightning_trainer(block: Model, steps: int | None, callbacks: list[Callback]) -> L.Trainer:
    """Lightning with our own batches, checkpoints and lines of progress. Raises SesameError where this machine has not what the block asks for."""
    warnings.filterwarnings("ignore", module="lightning")
    options = dict(
        accelerator=block.trainer.accelerator, devices=block.trainer.devices, num_nodes=block.trainer.num_nodes, strategy=block.trainer.strategy,
        precision=compute.precision(block.trainer.precision, block.trainer.accelerator), max_steps=steps or -1, max_epochs=-1,
        val_check_interval=max(1, steps // block.trainer.validations) if steps else timedelta(minutes=block.budget.minutes / block.trainer.validations), check_val_every_n_epoch=None, num_sanity_val_steps=0,
        callbacks=callbacks, enable_checkpointing=False, plugins=[WholeCheckpoints()], logger=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    try:
        return L.Trainer(**options)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise SesameError(f"trainer: {str(error).splitlines()[0]} (accelerator {block.trainer.accelerator}, devices {block.trainer.devices}, strategy {block.trainer.strategy})") from None


def write_curve(path: Path, curve: list[dict[str, float]]) -> None:
    """One row a validation: step, tokens, seconds, losses, speed."""
    with stage.output(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(curve[0]))
        writer.writeheader()
        writer.writerows({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()} for row in curve)
