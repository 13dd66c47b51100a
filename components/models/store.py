"""Models on disk: built from an architecture, saved with their history, loaded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import nn

from components import params
from components.core.errors import SesameError
from components.models.contract import LanguageModel
from components.stages.outputs import read_json, reading
from components.text import tokenizer


def build(architecture: params.Architecture, tokens: tokenizer.Tokenizer) -> LanguageModel:
    """Build a model with random weights from torch's default generator."""
    model = import_module(f"components.models.{architecture.name}.model").Model(architecture, tokens)
    model.reads = architecture.reads
    return model


def save(
    folder: Path, state: Mapping[str, torch.Tensor], architecture: params.Architecture, tokens: tokenizer.Tokenizer,
    absent: Sequence[str] = (), lineage: Sequence[Mapping[str, Any]] = (),
) -> None:  # fmt: skip
    """Write weights, architecture and tokenizer to a folder.

    `absent` names the modules without trained weights, which are left out; `lineage` lists the steps that produced the model,
    first to last: `{"by": "pretrained", ...}`, `{"by": "tuned", "task": ...}`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.detach().cpu().contiguous() for key, value in state.items() if key.partition(".")[0] not in absent}
    save_file(weights, folder / "model.safetensors")
    config = {"architecture": architecture.model_dump(mode="json"), "vocab_size": tokens.vocab_size}
    if absent:
        config["absent"] = list(absent)
    config["lineage"] = list(lineage)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokens.save(folder)


@dataclass(frozen=True)
class About:
    """The description in a model's folder, without its weights."""

    architecture: params.Architecture
    absent: list[str]
    """Modules without trained weights, e.g. heads that an imported checkpoint lacks."""
    lineage: list[dict[str, Any]]
    """The steps that produced it, first to last."""

    @property
    def derived_by(self) -> list[str]:
        """The steps after the first as shown in tables: `tuned on snli`, `pretrained on medical`."""
        return [f"{step['by']} on {step['on']}" for step in self.lineage if "on" in step]


def about(folder: Path) -> About:
    """Read the description of a model. Raise SesameError if there is no model."""
    if not folder.exists():
        raise SesameError(f"{folder}: no model there; run the stage that makes {folder.name} first (`sesame plan` lists them)")
    config = read_json(folder / "config.json")
    with reading(folder / "config.json"):
        return About(TypeAdapter(params.Architecture).validate_python(config["architecture"]), config.get("absent", []), config["lineage"])


def load(folder: Path, pretrained: bool = True) -> tuple[LanguageModel, tokenizer.Tokenizer]:
    """Load a pre-trained model, or its architecture with random weights, and its tokenizer. `model.absent` names the modules that are
    random in both cases.

    Raise SesameError if a file is missing or the weights don't fit the architecture.
    """
    description, tokens = about(folder), tokenizer.load(folder)
    model = build(description.architecture, tokens)
    model.absent = description.absent  # in both cases, so that a method trains the same modules
    if pretrained:
        random = {key: value for key, value in model.state_dict().items() if key.partition(".")[0] in model.absent}
        with reading(folder / "model.safetensors"):
            model.load_state_dict(random | load_file(folder / "model.safetensors"))
    return model, tokens


def count_parameters(module: nn.Module, trainable: bool = False) -> int:
    """Count the parameters of a module; shared ones count once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)
