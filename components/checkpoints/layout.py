"""What `transformers` calls our settings and weights, and how it lays them out: one table a kind of model, read in both directions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from torch import Size, Tensor, cat

from components import params
from components.errors import SesameError

ARCHITECTURE = TypeAdapter(params.Architecture)

HEADS = ("pooler", "head_transform", "head_bias", "next_sentence")
"""Parts that a checkpoint may lack. All others it must have."""

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Theirs -> ours; the first of two is written."""

BUFFERS = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
"""Constants that older versions saved."""


@dataclass(frozen=True)
class Layout:
    """One kind of model. Several names, with spaces between: ours is theirs one after another (weights), or must be one value (settings)."""

    kind: Literal["encoder", "decoder"]
    """Our architecture."""
    prefix: str
    """What the names of the body's weights begin with where there are heads beside it."""
    settings: dict[str, str]
    weights: dict[str, str]
    """Our module or parameter -> theirs; `*` is the number of a layer."""
    tied: dict[str, str]
    """A weight that may be saved a second time -> the weight it is a copy of."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Settings of which our modules know one value only."""
    transposed: bool = False
    """The layers' matrices are (in, out)."""
    positions_aside: int = 0
    """Rows of the position embedding before the one of the first token; left out."""

    def architecture(self, config: Mapping[str, Any]) -> params.Architecture:
        """Our block out of their settings, defaults included. Raises SesameError that names a setting we have no counterpart for."""
        for key, value in {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True, "quantization_config": None, **self.fixed}.items():
            if config.get(key, value) != value:
                raise SesameError(f"config.json: {key}: {config[key]!r} is not supported, only {value!r}")
        values = {}
        for own, theirs in self.settings.items():
            first, *others = theirs.split()
            for other in others:
                if config[other] != config[first]:
                    raise SesameError(f"config.json: {other}: {config[other]!r} is not supported where {first} is {config[first]!r}")
            values[own] = config[first]
        if values["activation"] not in ACTIVATIONS:
            key = self.settings["activation"]
            raise SesameError(f"config.json: {key}: {values['activation']!r} is not supported (there are: {', '.join(ACTIVATIONS)})")
        values["activation"] = ACTIVATIONS[values["activation"]]
        values["max_length"] -= self.positions_aside
        if values["intermediate_size"] is None:  # GPT-2's way to say four times as wide
            values["intermediate_size"] = 4 * values["hidden_size"]
        try:
            return ARCHITECTURE.validate_python({"name": self.kind, **values})
        except ValidationError as error:
            problem = error.errors()[0]
            own = problem["loc"][-1]
            raise SesameError(f"config.json: {self.settings.get(own, own)}: {problem['msg'].removeprefix('Value error, ')}") from None

    def config(self, architecture: params.Architecture) -> dict[str, Any]:
        """Their settings out of our block. Raises SesameError for a choice that `transformers` has no model for."""
        values = architecture.model_dump()
        for key, field_ in type(architecture).model_fields.items():
            if key not in self.settings and key != "name" and values[key] != field_.default:
                raise SesameError(f"architecture.{key}: {values[key]} has no counterpart in transformers' {self.prefix.rstrip('.')}, only {field_.default}")
        if values["activation"] not in ACTIVATIONS.values():
            raise SesameError(f"architecture.activation: {values['activation']} is not written (there are: {', '.join(dict.fromkeys(ACTIVATIONS.values()))})")
        values["activation"] = next(theirs for theirs, own in ACTIVATIONS.items() if own == values["activation"])
        return {key: values[own] for own, theirs in self.settings.items() for key in theirs.split()}

    def names(self, key: str) -> list[str]:
        """Their names of one of our tensors, none where they have no such part."""
        number = re.match(r"blocks\.(\d+)\.", key)
        pattern = re.sub(r"^blocks\.\d+", "blocks.*", key)
        module, _, kind = pattern.rpartition(".")
        theirs = self.weights.get(pattern, "").split() or [f"{name}.{kind}" for name in self.weights.get(module, "").split()]
        return [name.replace("*", number[1] if number else "*") for name in theirs]

    def read(self, found: dict[str, Tensor], shapes: dict[str, Size]) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Their weights -> ours of the shapes expected, parts of ours that are absent, weights of theirs left out (other heads).

        Raises SesameError that names the first weight which is missing, has another shape, or is not in the model of the settings.
        """
        found = {self._plain(name): value.float() for name, value in found.items() if not BUFFERS.search(name)}
        for copy, name in self.tied.items():
            if copy in found and not found.setdefault(self._plain(name), found[copy]).equal(found.pop(copy)):
                raise SesameError(f"{copy} in the weights is not the same as {name}; untied outputs are not supported")
        state: dict[str, Tensor] = {}
        absent: dict[str, None] = {}
        for key, shape in shapes.items():
            names = [self._plain(name) for name in self.names(key)]
            missing = [name for name in names if name not in found]
            if key.partition(".")[0] in HEADS and len(missing) == len(names):
                absent[key.partition(".")[0]] = None
                continue
            if missing:
                raise SesameError(f"{missing[0]} is missing in the weights")
            parts = [found.pop(name) for name in names]
            expected = self._shape(key, shape, len(names))
            for name, part in zip(names, parts, strict=True):
                if part.shape != expected:
                    raise SesameError(f"{name} is {tuple(part.shape)} in the weights, but {tuple(expected)} by config.json")
            value = self._turned(key, parts[0] if len(parts) == 1 else cat(parts))
            state[key] = value[self.positions_aside :] if key == "position_embedding.weight" else value
        if torn := [key for key in state if key.partition(".")[0] in absent]:
            raise SesameError(f"{self.names(torn[0])[0]} is in the weights, but not the rest of its part")
        body = {self._plain(name).partition(".")[0] for name in self.weights.values() if name.startswith(self.prefix)}
        if extra := [name for name in found if name.partition(".")[0] in body]:
            raise SesameError(f"{extra[0]} is in the weights, but not in the model that config.json describes")
        return state, list(absent), list(found)

    def write(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Our weights -> theirs."""
        written = {}
        for key, value in state.items():
            names = self.names(key)
            parts = self._turned(key, value).chunk(len(names))
            written |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
        return written

    def _plain(self, name: str) -> str:
        """One name for a weight, whatever class it was saved from and however old the file is."""
        name = name.removeprefix(self.prefix)
        return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))

    def _turned(self, key: str, value: Tensor) -> Tensor:
        return value.T if self.transposed and key.startswith("blocks.") and value.ndim == 2 else value

    def _shape(self, key: str, shape: Size, parts: int) -> Size:
        """Of each of their tensors, where ours has `shape`."""
        first, *rest = shape
        first = first // parts + (self.positions_aside if key == "position_embedding.weight" else 0)
        return Size([*rest, first] if self.transposed and key.startswith("blocks.") else [first, *rest])


def _encoder(name: str) -> dict[str, str]:
    """The body that BERT and RoBERTa share."""
    layer = f"{name}.encoder.layer.*"
    return {
        "token_embedding": f"{name}.embeddings.word_embeddings",
        "position_embedding": f"{name}.embeddings.position_embeddings",
        "segment_embedding": f"{name}.embeddings.token_type_embeddings",
        "embedding_norm": f"{name}.embeddings.LayerNorm",
        "blocks.*.attention.query_key_value": f"{layer}.attention.self.query {layer}.attention.self.key {layer}.attention.self.value",
        "blocks.*.attention.output": f"{layer}.attention.output.dense",
        "blocks.*.attention_norm": f"{layer}.attention.output.LayerNorm",
        "blocks.*.feed_forward.0": f"{layer}.intermediate.dense",
        "blocks.*.feed_forward.2": f"{layer}.output.dense",
        "blocks.*.feed_forward_norm": f"{layer}.output.LayerNorm",
        "pooler.0": f"{name}.pooler.dense",
    }


ENCODER_SETTINGS = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_heads": "num_attention_heads", "intermediate_size": "intermediate_size",
    "max_length": "max_position_embeddings", "type_vocab_size": "type_vocab_size", "dropout": "hidden_dropout_prob attention_probs_dropout_prob",
    "activation": "hidden_act", "layer_norm_eps": "layer_norm_eps",
}  # fmt: skip

LAYOUTS = {
    "bert": Layout(
        "encoder", "bert.", ENCODER_SETTINGS,
        _encoder("bert") | {
            "head_transform.0": "cls.predictions.transform.dense",
            "head_transform.2": "cls.predictions.transform.LayerNorm",
            "head_bias": "cls.predictions.bias",
            "next_sentence": "cls.seq_relationship",
        },
        tied={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"},
        fixed={"position_embedding_type": "absolute"},
    ),
    "roberta": Layout(
        "encoder", "roberta.", ENCODER_SETTINGS,
        _encoder("roberta") | {"head_transform.0": "lm_head.dense", "head_transform.2": "lm_head.layer_norm", "head_bias": "lm_head.bias"},
        tied={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
        fixed={"position_embedding_type": "absolute", "hidden_act": "gelu", "pad_token_id": 1},
        positions_aside=2,
    ),
    "gpt2": Layout(
        "decoder", "transformer.",
        {
            "num_layers": "n_layer", "hidden_size": "n_embd", "num_heads": "n_head", "intermediate_size": "n_inner", "max_length": "n_positions",
            "dropout": "resid_pdrop embd_pdrop attn_pdrop", "activation": "activation_function", "layer_norm_eps": "layer_norm_epsilon",
        },
        {
            "token_embedding": "transformer.wte",
            "position_embedding": "transformer.wpe",
            "blocks.*.attention_norm": "transformer.h.*.ln_1",
            "blocks.*.attention.query_key_value": "transformer.h.*.attn.c_attn",
            "blocks.*.attention.output": "transformer.h.*.attn.c_proj",
            "blocks.*.feed_forward_norm": "transformer.h.*.ln_2",
            "blocks.*.feed_forward.0": "transformer.h.*.mlp.c_fc",
            "blocks.*.feed_forward.2": "transformer.h.*.mlp.c_proj",
            "final_norm": "transformer.ln_f",
        },
        tied={"lm_head.weight": "transformer.wte.weight"},
        fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
        transposed=True,
    ),
}  # fmt: skip
"""model_type in config.json -> the layout."""

WRITTEN = {"encoder": "bert", "decoder": "gpt2"}
"""Our architectures -> the model_type they are written as. A RoBERTa computes what a BERT of one segment type computes."""
