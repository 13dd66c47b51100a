"""What the ways to a smaller model have in common: of which model, of which size, what is kept, and what it came to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components import objectives, params, stage, tokenizer
from components.errors import SesameError
from components.models import store
from components.models.common.transformer import PARTS
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.tokenizer import Tokenizer


def architecture(all_params: params.Params, name: str) -> params.Architecture:
    """Of the derived model. Raises SesameError where its start is none that it can be made of: one from elsewhere is known here first."""
    block = all_params.derived[name]
    try:
        return block.by.architecture(store.about(Path("data/models", block.start)).architecture)
    except ValueError as error:
        raise SesameError(f"derived.{name}.by: {error}") from None


def keep(smaller: LanguageModel, model: LanguageModel, layers: Sequence[int]) -> None:
    """Give a model the weights of one that is as wide: of these layers, and of all that is no layer."""
    for own, layer in zip(smaller.blocks, (model.blocks[i] for i in layers), strict=True):
        for part in (part for parts in PARTS.values() for part in parts):  # by name, since layers may share one
            getattr(own, part).load_state_dict(getattr(layer, part).state_dict())
    others = {key: value for key, value in model.state_dict().items() if not key.startswith("blocks.")}
    smaller.load_state_dict(smaller.state_dict() | others)


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
    with stage.output(folder) as target:
        store.save(target, smaller.state_dict(), architecture, tokens, its.absent, [*its.lineage, step])
    before, now = ((own / "model.safetensors").stat().st_size for own in (start, folder))
    print(f"{store.count_parameters(smaller):,} parameters, {now / before:.0%} of the bytes", flush=True)
    return {"parameters": store.count_parameters(smaller), "bytes": now, "bytes_before": before}
