"""What the ways to a smaller model have in common: of which model, of which size, what is kept, and what it came to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from components import objectives, params
from components.core import storage
from components.core.errors import SesameError
from components.models import store
from components.models.common.transformer import SUBLAYERS
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.text import tokenizer
from components.text.tokenizer import Tokenizer


def architecture(all_params: params.Params, name: str) -> params.Architecture:
    """Of the derived model. Raises SesameError where its start is none that it can be made of: one from elsewhere is known here first."""
    block = all_params.derived[name]
    try:
        return block.by.architecture(store.about(Path("data/models", block.start)).architecture)
    except ValueError as error:
        raise SesameError(f"derived.{name}.by: {error}") from None


def keep(smaller: LanguageModel, model: LanguageModel, layers: Sequence[int]) -> dict[str, Tensor]:
    """Give a model the weights of another one: of these layers, and of all that is no layer. Returns those that it has not taken, by their
    names, since they are of another shape."""
    pairs = [("", smaller, model)]
    for i, layer in enumerate(layers):
        for part in (part for parts in SUBLAYERS.values() for part in parts):  # by name, since layers may share one
            pairs.append((f"blocks.{i}.{part}.", getattr(smaller.blocks[i], part), getattr(model.blocks[layer], part)))
    left = smaller.state_dict()
    for place, own, other in pairs:
        theirs = {key: value for key, value in other.state_dict().items() if place or not key.startswith("blocks.")}
        fitting = {key: theirs[key] for key, value in own.state_dict().items() if key in theirs and theirs[key].shape == value.shape}
        own.load_state_dict(fitting, strict=False)
        left = {key: value for key, value in left.items() if key.removeprefix(place) not in fitting or not key.startswith(place)}
    return left


def objective(config: params.Objective, model: LanguageModel, start: Path, encoding: Path) -> Objective:
    """What judges the model in `start` on a text. Raises SesameError where it can't: other pieces, or heads that were never trained."""
    tokens, own = tokenizer.load(encoding), tokenizer.load(start)
    if own.path.read_bytes() != tokens.path.read_bytes():
        raise SesameError(f"{start} has another vocabulary than {encoding}; encode the text with its own tokenizer")
    judge = objectives.build(config, tokens)
    if judge.networks(model):
        raise SesameError(f"objective {config.name} has networks of its own, which were thrown away after the training of {start}")
    if drawn := [part for part in model.absent if part not in judge.untrained(model)]:
        raise SesameError(f"objective {config.name} reads {drawn[0]}, which no training of {start} has touched")
    return judge


def write(
    folder: Path, smaller: LanguageModel, architecture: params.Architecture, tokens: Tokenizer, start: Path, step: Mapping[str, Any]
) -> dict:  # fmt: skip
    """Save a model that was made of the one in `start`; what it has of that one's parameters and bytes."""
    its = store.about(start)
    with storage.output(folder) as target:
        store.save(target, smaller.state_dict(), architecture, tokens, its.absent, [*its.lineage, step])
    before, now = bytes_of(start), bytes_of(folder)
    print(f"{store.count_parameters(smaller):,} parameters, {now / before:.0%} of the bytes", flush=True)
    return {"parameters": store.count_parameters(smaller), "bytes": now, "bytes_before": before}


def bytes_of(folder: Path) -> int:
    """What a model's weights take on the disk."""
    return (folder / "model.safetensors").stat().st_size
