"""What the methods for smaller models share: their architecture, the weights they take over, and how they are saved."""

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
    """The architecture of the derived model. Raises SesameError where the method does not fit its start, which is known only now for a
    checkpoint."""
    block = all_params.derived[name]
    try:
        return block.by.architecture(store.about(Path("data/models", block.start)).architecture)
    except ValueError as error:
        raise SesameError(f"derived.{name}.by: {error}") from None


def copy_weights(smaller: LanguageModel, model: LanguageModel, layers: Sequence[int]) -> dict[str, Tensor]:
    """Copy the weights of these layers, and of all modules outside the layers. Returns those of `smaller` that were not overwritten, by
    name, since their shapes differ."""
    pairs = [("", smaller, model)]
    for i, layer in enumerate(layers):
        for part in (part for parts in SUBLAYERS.values() for part in parts):  # by name, since layers may share one
            pairs.append((f"blocks.{i}.{part}.", getattr(smaller.blocks[i], part), getattr(model.blocks[layer], part)))
    left = smaller.state_dict()
    for prefix, target, source in pairs:
        weights = {key: value for key, value in source.state_dict().items() if prefix or not key.startswith("blocks.")}
        fitting = {key: weights[key] for key, value in target.state_dict().items() if key in weights and weights[key].shape == value.shape}
        target.load_state_dict(fitting, strict=False)
        left = {key: value for key, value in left.items() if key.removeprefix(prefix) not in fitting or not key.startswith(prefix)}
    return left


def objective(config: params.Objective, model: LanguageModel, start: Path, encoding: Path) -> Objective:
    """The objective that scores the model in `start` on a text. Raises SesameError for another vocabulary, or untrained heads."""
    tokens, vocabulary = tokenizer.load(encoding), tokenizer.load(start)
    if vocabulary.path.read_bytes() != tokens.path.read_bytes():
        raise SesameError(f"{start} has another vocabulary than {encoding}; encode the text with its own tokenizer")
    built = objectives.build(config, tokens)
    if built.networks(model):
        raise SesameError(f"objective {config.name} has networks of its own, which were not saved with {start}")
    if untrained := [name for name in model.absent if name not in built.untrained(model)]:
        raise SesameError(f"objective {config.name} needs {untrained[0]}, which is not trained in {start}")
    return built


def write(
    folder: Path, smaller: LanguageModel, architecture: params.Architecture, tokens: Tokenizer, start: Path, step: Mapping[str, Any]
) -> dict:  # fmt: skip
    """Save a model derived from the one in `start`; returns its parameters and bytes."""
    about = store.about(start)
    with storage.output(folder) as target:
        store.save(target, smaller.state_dict(), architecture, tokens, about.absent, [*about.lineage, step])
    before, now = bytes_of(start), bytes_of(folder)
    print(f"{store.count_parameters(smaller):,} parameters, {now / before:.0%} of the bytes", flush=True)
    return {"parameters": store.count_parameters(smaller), "bytes": now, "bytes_before": before}


def bytes_of(folder: Path) -> int:
    """The size of a model's weights on disk."""
    return (folder / "model.safetensors").stat().st_size
