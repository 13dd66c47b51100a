"""The parts of a training that exist before its first step: text, objective, model, and the phases of its budget."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from components import objectives
from components.core.errors import SesameError
from components.core.keyed import uniform
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.batches import Batches, exact_widths
from components.objectives.examples.phases import Phase, Phases
from components.params import Model
from components.pretrain.cost import training_flops
from components.text import encode, tokenizer
from components.text.tokenizer import SPECIALS, Tokenizer, fast

FLOPS_TOKENS = 2**12
"""Number of tokens on which FLOPs are counted where lengths vary: a single small batch may have long sequences, or
short ones."""


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
    """Bytes of the raw validation text per byte of its tokens: normalisation changes the number of bytes, and an
    unknown token has none."""
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
        print(
            f"{unknown:.2%} of the tokens of the validation text are unknown: bits per byte are too low by their "
            "bits",
            flush=True,
        )
    longest = max(train.phases, key=lambda phase: phase.steps or math.inf)
    objective.check(longest.batches, longest.steps)
    if left_out := longest.batches.left_out:
        print(
            f"{left_out:.2%} of the training text is left out: objective {config.objective.name} can't read it",
            flush=True,
        )
    if config.trainer.recompute:
        for layer in model.stacked():
            recompute_activations(layer)
    if config.trainer.compile:
        model.compile(fullgraph=True)
    raw_bytes_ratio = valid_text.num_bytes / (counts @ tokens.byte_lengths)
    return Setup(
        tokens,
        objective,
        train_text,
        valid_text,
        train,
        valid,
        model,
        networks,
        untrained,
        raw_bytes_ratio,
        float(unknown),
    )


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
            f"{start} was trained with another tokenizer than that of data/encoded/{config.encoding}; encode the text "
            "with its tokenizer"
        )
    return model


def build_phases(
    config: Model, objective: Objective, text: encode.Split, flops_per_token: Callable[[int, int], float]
) -> Phases:
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


def small_batches(objective: Objective, text: encode.Split, batch_size: int, max_length: int) -> Batches:
    """Return the batches of a text, with fewer sequences if the text is too short."""
    while True:
        try:
            return objective.batches(text, batch_size, max_length, seed=0)
        except SesameError:
            if batch_size == 1:
                raise
            batch_size = max(1, batch_size // 2)
