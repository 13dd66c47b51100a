"""The networks: nn.Modules only, no training code.

`blocks` holds the Transformer's parts; `encoder` (BERT), `decoder` (GPT) and `bilm` (ELMo) are the models; `heads` what
fine-tuning puts on top. Every model gives `features(ids, lengths, segment_ids) -> (batch, length, layers, width)`,
`pool(hidden, lengths) -> (batch, width)` and `logits(hidden) -> (..., vocab_size)`.

One more model: a file with an nn.Module built from its architecture block, a line in `MODELS`, its block in `components/params`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import nn

from components import params, stage, tokenizer
from components.errors import SesameError
from components.models.bilm import BiLM
from components.models.decoder import Decoder
from components.models.encoder import Encoder

MODELS = {"encoder": Encoder, "decoder": Decoder, "bilm": BiLM}


def build(architecture: params.Architecture, tokens: tokenizer.Tokenizer) -> nn.Module:
    """A model with random weights, drawn from torch's generator."""
    model = MODELS[architecture.name](architecture, tokens)
    model.absent = []
    return model


def save(
    folder: Path, state: dict[str, torch.Tensor], architecture: params.Architecture, tokens: tokenizer.Tokenizer, absent: Sequence[str] = (),
    intermediate: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write weights, architecture and tokenizer to a folder.

    `absent` names the parts of the model that no training has touched, whose weights are left out; `intermediate` the
    tasks that it was tuned on, first to last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value.detach().cpu().contiguous() for key, value in state.items() if key.partition(".")[0] not in absent}
    save_file(kept, folder / "model.safetensors")
    config = {"architecture": architecture.model_dump(mode="json"), "vocab_size": tokens.vocab_size}
    if absent:
        config["absent"] = list(absent)
    if intermediate:
        config["intermediate"] = list(intermediate)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokens.save(folder)


def _config(folder: Path) -> dict:
    if not folder.exists():
        raise SesameError(f"{folder}: no model there; run the stage that makes {folder.name} first (`sesame plan` lists them)")
    return stage.read_json(folder / "config.json")


def architecture(folder: Path) -> params.Architecture:
    """The architecture of a pre-trained model."""
    with stage.reading(folder / "config.json"):
        return TypeAdapter(params.Architecture).validate_python(_config(folder)["architecture"])


def absent(folder: Path) -> list[str]:
    """Parts of a model that an imported checkpoint had no weights for, as heads that it was not trained with."""
    return _config(folder).get("absent", [])


def intermediate(folder: Path) -> list[str]:
    """The tasks that a model was tuned on before, first to last: to be named beside every score of it."""
    return _config(folder).get("intermediate", [])


def load(folder: Path, pretrained: bool = True) -> tuple[nn.Module, tokenizer.Tokenizer]:
    """A pre-trained model, or the same architecture with random weights, and its tokenizer. `model.absent` names what is random in both.

    Raises SesameError when a file is missing or the weights don't fit the architecture.
    """
    block, tokens = architecture(folder), tokenizer.load(folder)
    model = build(block, tokens)
    if pretrained:
        model.absent = absent(folder)
        random = {key: value for key, value in model.state_dict().items() if key.partition(".")[0] in model.absent}
        with stage.reading(folder / "model.safetensors"):
            model.load_state_dict(random | load_file(folder / "model.safetensors"))
    return model, tokens


def count_parameters(module: nn.Module, trainable: bool = False) -> int:
    """Parameters of a module; shared ones count once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)
