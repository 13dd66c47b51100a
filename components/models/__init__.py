"""The networks: nn.Modules only, no training code.

`blocks` holds the Transformer's parts; `encoder` (BERT), `decoder` (GPT) and `bilm` (ELMo) are the models; `heads` what
fine-tuning puts on top. Every model gives `features(ids, lengths, segment_ids) -> (batch, length, layers, width)`,
`pool(hidden, lengths) -> (batch, width)` and `logits(hidden) -> (..., vocab_size)`.

One more model: a file with an nn.Module built from its architecture block, a line in `MODELS`, its block in `components/params`.
"""

import json
import shutil
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from components import params, tokenizer
from components.errors import SesameError
from components.models.bilm import BiLM
from components.models.decoder import Decoder
from components.models.encoder import Encoder

MODELS = {"encoder": Encoder, "decoder": Decoder, "bilm": BiLM}


def build(architecture: params.Architecture, tokens: tokenizer.Tokenizer) -> nn.Module:
    """A model with random weights, drawn from torch's generator."""
    return MODELS[architecture.name](architecture, tokens)


def save(folder: Path, state: dict[str, torch.Tensor], architecture: params.Architecture, tokens: tokenizer.Tokenizer) -> None:
    """Write weights, architecture and tokenizer to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.detach().cpu().contiguous() for key, value in state.items()}, folder / "model.safetensors")
    config = {"architecture": architecture.model_dump(mode="json"), "vocab_size": tokens.vocab_size}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shutil.copy(tokens.path, folder / tokenizer.FILE)


def load(folder: Path, pretrained: bool = True) -> tuple[nn.Module, tokenizer.Tokenizer]:
    """A pre-trained model, or the same architecture with random weights, and its tokenizer.

    Raises SesameError when a file is missing or the weights don't fit the architecture.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        raise SesameError(f"{folder}: no model there; run `sesame run pretrain@{folder.name}` first") from None
    tokens = tokenizer.load(folder)
    model = build(TypeAdapter(params.Architecture).validate_python(config["architecture"]), tokens)
    if pretrained:
        try:
            model.load_state_dict(load_file(folder / "model.safetensors"))
        except (RuntimeError, SafetensorError, FileNotFoundError) as error:
            raise SesameError(f"{folder}/model.safetensors does not fit {folder}/config.json: {str(error).splitlines()[-1].strip()}") from None
    return model, tokens


def count_parameters(module: nn.Module, trainable: bool = False) -> int:
    """Parameters of a module; shared ones count once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)
