"""One pre-training, from a section of params.yaml and an encoding to a model's folder.

A killed run resumes from its last checkpoint, in `.sesame/checkpoints/<name>-<key>`: the key is a hash of the settings that the
result depends on, the data and the code, so that only an identical training resumes from it.
"""

import csv
import hashlib
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from components import objectives
from components.core import compute, processes, storage
from components.core.errors import SesameError, Unreachable
from components.core.keyed import uniform
from components.core.tracking import Run
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.batches import Batches, exact_widths
from components.objectives.examples.phases import Phase, Phases
from components.params import Model
from components.pretrain.baselines import baseline_metrics
from components.pretrain.checkpoints import MilestoneModels, PeriodicCheckpoint, copy_to_nodes
from components.pretrain.cost import matmul_peak, training_flops
from components.pretrain.data import PretrainData, micro_batches
from components.pretrain.memory_check import MemoryCheck
from components.pretrain.module import Pretraining
from components.pretrain.remote_checkpoints import RemoteCheckpoints
from components.pretrain.trainer import lightning_trainer
from components.stages.closure import fingerprint
from components.stages.parts import optimizer_modules
from components.text import encode, tokenizer
from components.text.tokenizer import SPECIALS, Tokenizer, fast

FLOPS_TOKENS = 2**12
"""Number of tokens on which FLOPs are counted where lengths vary: a single small batch may have long sequences, or short ones."""


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


def build_phases(config: Model, objective: Objective, text: encode.Split, flops_per_token: Callable[[int, int], float]) -> Phases:
    """Divide the budget into phases; `flops_per_token` takes the length of sequences and their number in a batch."""
    budget, max_length = config.budget, config.architecture.max_length
    total = budget.steps or budget.tokens or budget.flops
    shapes = [(phase.max_length or max_length, phase.batch_size or config.batch_size) for phase in config.phases]
    shapes.append((max_length, config.batch_size))
    ends = [*accumulate(phase.share for phase in config.phases), 1]
    used, phases = 0, []
    for number, ((length, batch_size), end) in enumerate(zip(shapes, ends, strict=True)):
        # each phase has another order of the text: the second would otherwise begin with the documents of the first
        seed = int(uniform(config.seed, number) * 2**53) if number else config.seed
        batches = objective.batches(text, batch_size, length, seed)
        flops = flops_per_token(length, batch_size)
        if budget.minutes:
            steps = None
        elif budget.steps:
            steps = round(end * total - used)
            used += steps
        else:
            steps, cost = _steps_for(end * total - used, batches, flops if budget.flops else 1)
            used += cost
        phases.append(Phase(batches, steps, flops))
    return Phases(phases)


def _steps_for(limit: float, batches: Batches, cost_per_token: float) -> tuple[int, float]:
    """Return the number of steps that reach a limit of cost, and their cost."""
    steps = tokens = 0
    while tokens * cost_per_token < limit:
        tokens += batches.tokens(steps)
        steps += 1
    return steps, tokens * cost_per_token


@dataclass(frozen=True)
class Setup:
    """The parts of a training that exist before its first step."""

    tokens: Tokenizer | fast.FastTokenizer
    objective: Objective
    train_text: encode.Split
    valid_text: encode.Split
    train: Phases
    valid: Batches
    model: LanguageModel
    networks: dict[str, nn.Module]
    """The objective's auxiliary networks."""
    untrained: list[str]
    """Modules of the model that this objective does not train."""
    raw_bytes_ratio: float
    """Bytes of the raw validation text per byte of its tokens: normalisation changes the number of bytes, and an unknown
    token has none."""
    unknown: float
    """Share of unknown tokens in the validation text."""


def set_up(config: Model, start: Path | None) -> Setup:
    """Read the text, build or load the model, count its FLOPs. Raise SesameError if they do not fit together."""
    encoding = Path("data/encoded", config.encoding)
    if not (encoding / "meta.json").exists():
        raise SesameError(f"{encoding}: no such encoding; run `sesame run encode@{config.encoding}` first")
    torch.manual_seed(config.seed)
    tokens = tokenizer.load(encoding)
    objective = objectives.build(config.objective, tokens)
    train_text, valid_text = (encode.load(encoding, split) for split in ("train", "valid"))
    valid = objective.validation(valid_text, config.batch_size, config.architecture.max_length)
    model = initial_model(config, tokens, start)
    networks, untrained = objective.networks(model), objective.untrained(model)

    @cache
    def flops_per_token(max_length: int, batch_size: int) -> float:
        # counted on real sequences: made-up ones would not show that a module gets no gradient
        size = min(batch_size, config.objective.flops_batch_size or batch_size)
        flops = counted = 0.0
        with exact_widths():
            batches = small_batches(objective, valid_text, size, max_length)
            for step, share in batches.representative_steps(FLOPS_TOKENS).items():
                flops += share * training_flops(model, objective, batches[step].tensors, untrained, networks.values())
                counted += share * batches[step].counts["tokens"]
        return flops / counted

    train = build_phases(config, objective, train_text, flops_per_token)
    counts = valid_text.occurrences(tokens.vocab_size)
    known = counts[len(SPECIALS) :].sum() - (counts[tokens.unknown] if tokens.unknown >= len(SPECIALS) else 0)
    unknown = counts[tokens.unknown] / (known + counts[tokens.unknown])
    if unknown:
        print(f"{unknown:.2%} of the tokens of the validation text are unknown: bits per byte are too low by their bits", flush=True)
    longest = max(train.phases, key=lambda phase: phase.steps or math.inf)
    objective.check(longest.batches, longest.steps)
    if left_out := longest.batches.left_out:
        print(f"{left_out:.2%} of the training text is left out: objective {config.objective.name} can't read it", flush=True)
    if config.trainer.recompute:
        for layer in model.stacked():
            recompute_activations(layer)
    if config.trainer.compile:
        model.compile(fullgraph=True)
    raw_bytes_ratio = valid_text.num_bytes / (counts @ tokens.byte_lengths)
    return Setup(tokens, objective, train_text, valid_text, train, valid, model, networks, untrained, raw_bytes_ratio, float(unknown))


def recompute_activations(layer: nn.Module) -> None:
    """Make a layer store only its inputs for the backward pass."""
    layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def initial_model(config: Model, tokens: Tokenizer | fast.FastTokenizer, start: Path | None) -> LanguageModel:
    """Build the model with random weights, or load it from the folder `start`."""
    if start is None:
        return store.build(config.architecture, tokens)
    model, its_tokens = store.load(start)
    if its_tokens.path.read_bytes() != tokens.path.read_bytes():
        raise SesameError(
            f"{start} was trained with another tokenizer than that of data/encoded/{config.encoding}; encode the text with its tokenizer"
        )
    return model


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
    state = _fit(trainer, module, data, checkpoints / "last.ckpt")
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
        "cost": {
            "tokens": module.tokens, "flops": flops, "gpus": trainer.world_size if device.type == "cuda" else 0,
            "earlier_seconds": module.earlier_seconds,
        },
    }  # fmt: skip


def small_batches(objective: Objective, text: encode.Split, batch_size: int, max_length: int) -> Batches:
    """Return the batches of a text, with fewer sequences if the text is too short."""
    while True:
        try:
            return objective.batches(text, batch_size, max_length, seed=0)
        except SesameError:
            if batch_size == 1:
                raise
            batch_size = max(1, batch_size // 2)


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
