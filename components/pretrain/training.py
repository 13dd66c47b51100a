"""One training on text, from a params block and an encoding to a model's folder.

A killed run goes on from its last save, in `.sesame/checkpoints/<name>-<key>`: the key is a hash of the settings that its result
depends on, the data and the code, so that a save is only ever continued by the very same work.
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
from components.objectives.examples.phases import Phase, Phases
from components.objectives.examples.windows import Batch, Batches
from components.params import Model
from components.pretrain import zero
from components.pretrain.afar import Afar
from components.pretrain.cost import matmul_peak, training_flops
from components.pretrain.data import PretrainData, micro_batches
from components.pretrain.dry_step import DryStep
from components.pretrain.module import Pretraining
from components.pretrain.saves import Checkpoints, Kept, spread
from components.pretrain.trainer import lightning_trainer
from components.stages.closure import fingerprint
from components.stages.parts import optimizer_modules
from components.text import encode, tokenizer
from components.text.tokenizer import SPECIALS, Tokenizer, fast


@dataclass(frozen=True)
class Trained:
    """What a pre-training has made, beside the files."""

    model: LanguageModel
    metrics: dict
    curve: list[dict[str, float]]
    """One row a validation."""
    seconds: float
    """Of training, over all attempts."""


def checkpoint_folder(block: Model, name: str, keep: Sequence[int] = (), start: Path | None = None) -> Path:
    """Where a killed attempt of the same work has left its save, if there was one. Where it ran is not part of the work."""
    settings = block.settings()
    roots = (
        __name__, f"components.models.{block.architecture.name}.model", f"components.objectives.{block.objective.name}.objective",
        "components.text.tokenizer.trained", *optimizer_modules(block),
    )  # fmt: skip
    key = hashlib.sha256(f"{fingerprint(roots)} {settings} {list(keep)}".encode())
    key.update((Path("data/encoded") / block.encoding / "meta.json").read_bytes())
    if start:
        key.update((start / "model.safetensors").read_bytes())
    return storage.STATE / "checkpoints" / f"{name}-{key.hexdigest()[:16]}"


def phases_of(block: Model, objective: Objective, text: encode.Split, flops_per_token: Callable[[int, int], float]) -> Phases:
    """What the block's budget reads; `flops_per_token` knows the FLOPs by the length of rows, and how many there are."""
    own, whole = block.architecture.max_length, block.budget.steps or block.budget.tokens or block.budget.flops
    forms = [(phase.max_length or own, phase.batch_size or block.batch_size) for phase in block.phases]
    ends = [*accumulate(phase.share for phase in block.phases), 1]
    spent, phases = 0, []
    for number, ((max_length, batch_size), end) in enumerate(zip([*forms, (own, block.batch_size)], ends, strict=True)):
        # each reads the text in an order of its own: the second would else begin with what the first one began with
        seed = int(uniform(block.seed, number) * 2**53) if number else block.seed
        batches, flops, steps = objective.batches(text, batch_size, max_length, seed), flops_per_token(max_length, batch_size), None
        if not block.budget.minutes:
            limit = end * whole - spent
            steps, used = (round(limit), round(limit)) if block.budget.steps else _spend(limit, batches, flops if block.budget.flops else 1)
            spent += used
        phases.append(Phase(batches, steps, flops))
    return Phases(phases)


def _spend(limit: float, batches: Batches, price: float) -> tuple[int, float]:
    """Steps that reach the limit where a token has a price, and what they take."""
    steps = tokens = 0
    while tokens * price < limit:
        tokens += batches.tokens(steps)
        steps += 1
    return steps, tokens * price


@dataclass(frozen=True)
class Setup:
    """All that a training needs before its first step."""

    tokens: Tokenizer | fast.FastTokenizer
    objective: Objective
    train_text: encode.Split
    valid_text: encode.Split
    train: Phases
    valid: Batches
    model: LanguageModel
    networks: dict[str, nn.Module]
    """The objective's own."""
    untrained: list[str]
    """Parts of the model that this objective leaves alone."""
    bytes_as_came: float
    """Of the validation text as it came, for each byte of its pieces: normalised text may have more or fewer, an
    unknown piece has none."""
    unknown: float
    """Share of the validation text's pieces that are unknown."""


def set_up(block: Model, start: Path | None) -> Setup:
    """Read the text, build or load the model, count its FLOPs. Raises SesameError where they don't go together."""
    encoding = Path("data/encoded", block.encoding)
    if not (encoding / "meta.json").exists():
        raise SesameError(f"{encoding}: no such encoding; run `sesame run encode@{block.encoding}` first")
    torch.manual_seed(block.seed)
    tokens = tokenizer.load(encoding)
    objective = objectives.build(block.objective, tokens)
    texts = {split: encode.load(encoding, split) for split in ("train", "valid")}
    valid = objective.validation(texts["valid"], block.batch_size, block.architecture.max_length)
    model = starting(block, tokens, start)
    networks, untrained = objective.networks(model), objective.untrained(model)

    @cache
    def flops_per_token(max_length: int, batch_size: int) -> float:
        # on a few real rows: those of a part that gets no gradient would be missed on made-up ones
        rows = min(batch_size, block.objective.counted_rows or batch_size)
        few = few_rows(objective, texts["valid"], rows, max_length)
        return training_flops(model, objective, few.rows, untrained, networks.values()) / few.counts["tokens"]

    train = phases_of(block, objective, texts["train"], flops_per_token)
    counts = texts["valid"].occurrences(tokens.vocab_size)
    unknown = counts[tokens.unknown] / counts[len(SPECIALS) :].sum()
    if unknown:
        print(f"{unknown:.2%} of the pieces of the validation text are unknown: bits per byte leave out what they hide", flush=True)
    longest = max(train.phases, key=lambda phase: phase.steps or math.inf)
    objective.check(longest.batches, longest.steps)
    if left_out := longest.batches.left_out:
        print(f"{left_out:.2%} of the training text is in no row: objective {block.objective.name} can't read it", flush=True)
    if block.trainer.recompute:
        for layer in model.stacked():
            recomputed(layer)
    if block.trainer.compile:
        model.compile(fullgraph=True)
    bytes_as_came = texts["valid"].num_bytes / (counts @ tokens.byte_lengths)
    return Setup(tokens, objective, texts["train"], texts["valid"], train, valid, model, networks, untrained, bytes_as_came, float(unknown))


def recomputed(layer: nn.Module) -> None:
    """Have a layer keep nothing but its inputs for the backward pass."""
    layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def starting(block: Model, tokens: Tokenizer | fast.FastTokenizer, start: Path | None) -> LanguageModel:
    """The model as training begins: with random weights, or those of a model's folder."""
    if start is None:
        return store.build(block.architecture, tokens)
    model, own = store.load(start)
    if own.path.read_bytes() != tokens.path.read_bytes():
        raise SesameError(
            f"{start} was trained with another tokenizer than that of data/encoded/{block.encoding}; encode the text with its own"
        )
    return model


def pretrain(block: Model, name: str, folder: Path, run: Run, keep: Sequence[int] = (), start: Path | None = None) -> Trained | None:
    """Train a model and write it to `folder`; with `keep` also as it was after so many tokens, to `folder/<tokens>`, with `figures.json`.

    With `start` it goes on from that model's weights. None on a rank that is not the first.
    """
    if processes.rank_zero():
        with storage.writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)  # a place that can't be written to is better found before training
    compute.prepare(block.trainer.threads)
    setup = set_up(block, start)
    module = Pretraining(block, setup.model, setup.networks, setup.objective, setup.train.steps, run, setup.bytes_as_came)
    checkpoints = checkpoint_folder(block, name, keep, start)
    its = store.about(start) if start else None
    # a part that an earlier training has touched keeps its weights, whether or not this one trains it
    absent = [part for part in setup.untrained if its is None or part in its.absent]

    def write(target: Path, state: dict[str, Tensor]) -> None:
        flops = setup.train.flops(module.tokens)
        step = {"by": "pretrained", "objective": block.objective.name, "tokens": module.tokens, "flops": flops}
        lineage = [*its.lineage, step | {"on": block.encoding}] if its else [step]
        store.save(target, _weights(state), block.architecture, setup.tokens, absent, lineage)

    kept = checkpoints / "kept"
    saving = Checkpoints(checkpoints / "last.ckpt", block.run.checkpoint_seconds)
    trainer = lightning_trainer(block, setup.train.steps, [DryStep(setup.train), Kept(kept, keep, setup.train.flops, write), saving])
    if trainer.is_global_zero:
        checkpoints.mkdir(parents=True, exist_ok=True)
        if run.id:
            (checkpoints / "run_id").write_text(run.id)  # for the next attempt, should this one be killed
        length = f"{setup.train.steps:,} steps" if setup.train.steps else f"{block.budget.minutes} minutes"
        print(f"{store.count_parameters(setup.model):,} parameters, {length}, {trainer.precision}", flush=True)
    total, _ = micro_batches(block.trainer.accumulate, trainer.world_size, trainer.global_rank)
    for size in (block.batch_size, *(phase.batch_size for phase in block.phases if phase.batch_size)):
        if size % total:  # `devices: auto` is known here first
            raise SesameError(f"batch_size {size} is not divisible by {total} micro-batches on {trainer.world_size} devices")
    data = PretrainData(setup.train, setup.valid, block.trainer.validation_batches, block.trainer.accumulate, block.run.workers)
    if trainer.is_global_zero and block.run.checkpoints_to:
        saving.afar = Afar(block.run.checkpoints_to, checkpoints, block.run.send_seconds)
        saving.afar.fetch()
    copied = trainer.num_nodes > 1 and spread(trainer, checkpoints / "last.ckpt")
    state = _fit(trainer, module, data, checkpoints / "last.ckpt")
    if not trainer.is_global_zero:
        if copied:
            shutil.rmtree(checkpoints, ignore_errors=True)  # there is none where nothing was saved before
        return None
    # a model of its own, since FSDP may have cut the trained one into shards
    model = store.build(block.architecture, setup.tokens)
    model.load_state_dict(_weights(state))
    with storage.output(folder) as target:
        write(target, state)
        for milestone in keep:
            # a copy: whoever is killed between this and the next line does it once more
            shutil.copytree(kept / str(milestone), target / str(milestone))
    if saving.afar:
        saving.afar.remove()
    shutil.rmtree(checkpoints)
    return Trained(model, _figures(trainer, module, setup), module.curve, module.seconds)


def _weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own, without networks of the objective."""
    return {key.removeprefix("model."): value for key, value in state.items() if key.startswith("model.")}


def _fit(trainer: L.Trainer, module: Pretraining, data: PretrainData, last: Path) -> dict[str, Tensor]:
    """Train from the last save if there is one; the weights, of which every rank may hold a share."""
    if last.exists():
        check_readable(last)
    try:
        trainer.fit(module, data, ckpt_path=str(last) if last.exists() else None, weights_only=True)
    except SystemExit:
        if trainer.interrupted:  # Lightning turns Ctrl-C into an exit
            raise KeyboardInterrupt from None
        raise
    except torch.OutOfMemoryError as error:
        cure = f"raise trainer.accumulate (now {module.block.trainer.accumulate}) or set trainer.recompute"
        raise SesameError(f"out of memory in step {trainer.global_step + 1}: {str(error).partition('. ')[0]}; {cure}") from None
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = next(line.strip() for line in str(error).splitlines() if line.strip())
        raise SesameError(f"trainer.compile: the model can't be compiled as one graph ({reason}); leave compile out") from None
    except RuntimeError as error:
        if isinstance(error, torch.distributed.DistError) or "/gloo/" in str(error):
            raise Unreachable(f"another process of this training was lost in step {trainer.global_step + 1}") from None
        raise
    if not module.valid or module.curve[-1]["step"] != trainer.global_step:  # the last step need not be one that is validated after
        trainer.validate(module, data, verbose=False)
    trainer.validate(module, data.whole_split(), verbose=False)  # the figures are those of the whole split, the curve of a part
    return trainer.strategy.lightning_module_state_dict()  # gathers shards under FSDP: every rank takes part


def _figures(trainer: L.Trainer, module: Pretraining, setup: Setup) -> dict:
    """What the stage reports: the last validation, what was read, and how fast."""
    peak = matmul_peak(trainer.strategy.root_device, torch.bfloat16 if "bf16" in str(trainer.precision) else torch.float32)
    speed = module.timed_tokens / module.timed_seconds if module.timed_seconds else module.tokens / module.seconds
    flops = setup.train.flops(module.tokens)
    batches, vocab_size = setup.train.phases[-1].batches, setup.tokens.vocab_size
    zeros = zero.figures(setup.objective, setup.train_text, setup.valid_text, vocab_size, batches, setup.valid, module.tokens)
    return module.valid | setup.objective.controls(batches, setup.valid) | zeros | {
        "parameters": store.count_parameters(setup.model),
        "tokens": module.tokens,
        "steps": trainer.global_step,
        "unknown_share": setup.unknown,
        "left_out": max(phase.batches.left_out for phase in setup.train.phases),
        "tokens_per_second": speed,
        "peak_share": speed * flops / module.tokens / (peak * trainer.world_size),
        "precision": str(trainer.precision),
        "cost": {
            "tokens": module.tokens, "flops": flops,
            "gpus": trainer.world_size if trainer.strategy.root_device.type == "cuda" else 0,
            "earlier_seconds": module.earlier_seconds,
        },
    }  # fmt: skip


def few_rows(objective: Objective, text: encode.Split, batch_size: int, max_length: int) -> Batch:
    """A batch of a text; a smaller one when the text is too short for this."""
    while True:
        try:
            return objective.batches(text, batch_size, max_length, seed=0)[0]
        except SesameError:
            if batch_size == 1:
                raise
            batch_size = max(1, batch_size // 2)


def check_readable(checkpoint: Path) -> None:
    """Raises SesameError when a checkpoint can't be loaded, e.g. after a crash of the disk, or holds more than tensors and plain values:
    such a pickle could run code."""
    try:
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        for key in ("state_dict", "optimizer_states", "loops", "global_step"):
            saved[key]
    except Exception as error:  # pickle and zip raise whatever the broken bytes lead to
        raise SesameError(f"{checkpoint} can't be read ({type(error).__name__}); remove the folder to train from the start") from None


def write_curve(path: Path, curve: list[dict[str, float]]) -> None:
    """One row a validation: step, tokens, seconds, losses, speed."""
    with storage.output(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(curve[0]))
        writer.writeheader()
        for row in curve:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
