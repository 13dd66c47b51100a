"""The names and shapes of settings and weights in `transformers`: one table per kind of model, used in both directions.

The tables are in the `hub.py` of each family.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Size, Tensor, cat, zeros

from components import params
from components.core.errors import SesameError

ARCHITECTURE = TypeAdapter(params.Architecture)

HEADS = ("pooler", "head_transform", "head_bias", "next_sentence", "output_embedding")
"""Modules that a checkpoint may lack. It must have all others."""

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Names of activations in most models -> ours."""

BUFFERS = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
"""Constants that older versions saved."""


BERT_SETTINGS = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size", "max_length": "max_position_embeddings", "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob attention_probs_dropout_prob", "activation": "hidden_act", "layer_norm_eps": "layer_norm_eps",
}  # fmt: skip
"""Our settings -> their names in BERT and most later models."""


def bert_body(name: str) -> dict[str, str]:
    """Return the weights with the same names in BERT, RoBERTa, ELECTRA and DeBERTa, for the prefix `name`."""
    layer = f"{name}.encoder.layer.*"
    return {
        "token_embedding": f"{name}.embeddings.word_embeddings",
        "segment_embedding": f"{name}.embeddings.token_type_embeddings",
        "embedding_norm": f"{name}.embeddings.LayerNorm",
        "blocks.*.attention.output": f"{layer}.attention.output.dense",
        "blocks.*.attention_norm": f"{layer}.attention.output.LayerNorm",
        "blocks.*.feed_forward.0": f"{layer}.intermediate.dense",
        "blocks.*.feed_forward.2": f"{layer}.output.dense",
        "blocks.*.feed_forward_norm": f"{layer}.output.LayerNorm",
    }


@dataclass(frozen=True)
class Layout:
    """The layout of one kind of model.

    Several names are separated by spaces: ours is their concatenation (weights), or their common value (settings).
    """

    family: str
    """Our architecture."""
    prefix: str
    """The prefix of the body's weights in a class with heads."""
    settings: dict[str, str]
    weights: dict[str, str]
    """Our module or parameter -> theirs; `*` is the number of a layer."""
    tied: dict[str, str]
    """A weight that may be saved again -> the weight that it is a copy of."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Their settings for which our modules support a single value."""
    transposed: bool = False
    """Whether the matrices of the layers are (in, out)."""
    position_offset: int = 0
    """Rows of the position embedding before that of the first token; left out."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Our settings with a constant value in their models."""
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    """Theirs -> ours; if two are the same, the first is written."""
    settings_in: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config
    """Maps their settings to those in the table."""
    settings_out: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values
    """The inverse of `settings_in`."""
    legacy_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that version 4 of `transformers` reads under other names, written in addition."""
    ignored: tuple[str, ...] = ()
    """Our settings that theirs lacks: they are used only in pre-training, or limit the length of a text."""
    zero_weights: tuple[str, ...] = ()
    """Our weights that theirs lacks, which are then 0."""
    projects_if_narrow: bool = False
    """Whether a matrix projects the embedding to hidden_size only if it has another width."""
    prepare: Callable[[dict[str, Tensor], Any], dict[str, Tensor]] = lambda weights, architecture: weights
    """Maps their weights, given our architecture, to those in the table."""
    restore: Callable[[dict[str, Tensor], Any], dict[str, Tensor]] = lambda weights, architecture: weights
    """The inverse of `prepare`."""
    reads_segments: bool = True
    code_points: bool = False
    """Whether ids are Unicode code points, so that there is no tokenizer file."""
    padding_after: Callable[[Any], int] = lambda model: 0
    """Positions of padding that theirs needs after a text to equal ours at its end."""
    comparable_length: Callable[[Any, int], int] = lambda model, length: length
    """The longest beginning of a text of this length, at whose end theirs equals ours."""
    first_differs: bool = False
    """Whether ours has the pooled vector in the top layer of the first token, and theirs an unused one."""
    decodes: bool = False
    """Whether it has a decoder that generates a target."""
    language_model: str = "AutoModelForMaskedLM"
    """Their class with logits over the vocabulary."""
    classes: dict[str | None, str] = field(default_factory=dict)
    """Our module -> their class that has it; the first whose module is present is written."""
    classifier: tuple[str, str] | None = None
    """Their class with a linear layer on the same pooled vector as ours, and the layer's name; None if they pool differently."""
    classifier_bias: str | None = "bias"
    """None if that layer has none: ours is moved to the bias of the last norm."""

    def architecture(self, config: Mapping[str, Any]) -> params.Architecture:
        """Return our settings for theirs, with defaults. Raise SesameError with the name of a setting that has no counterpart."""
        config = self.settings_in(dict(config))
        defaults = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True, "quantization_config": None}
        mapped = " ".join(self.settings.values()).split()
        for key, value in {**defaults, **self.fixed}.items():
            if key not in mapped and config.get(key, value) != value:
                raise SesameError(f"config.json: {key}: {config[key]!r} is not supported, only {value!r}")
        values = dict(self.constants)
        for ours, theirs in self.settings.items():
            first, *others = theirs.split()
            if missing := [key for key in (first, *others) if key not in config]:
                raise SesameError(f"config.json: {missing[0]} is missing")
            for other in others:
                if config[other] != config[first]:
                    raise SesameError(f"config.json: {other}: {config[other]!r} is not supported where {first} is {config[first]!r}")
            values[ours] = config[first]
        if values["activation"] not in self.activations:
            key = self.settings["activation"]
            raise SesameError(f"config.json: {key}: {values['activation']!r} is not supported (there are: {', '.join(self.activations)})")
        values["activation"] = self.activations[values["activation"]]
        values["max_length"] -= self.position_offset
        if self.projects_if_narrow and values["embedding_size"] == values["hidden_size"]:
            values["embedding_size"] = None
        if values["intermediate_size"] is None:  # GPT-2's default
            values["intermediate_size"] = 4 * values["hidden_size"]
        try:
            return ARCHITECTURE.validate_python({"name": self.family, **values})
        except ValidationError as error:
            problem = error.errors()[0]
            name = problem["loc"][-1]
            raise SesameError(f"config.json: {self.settings.get(name, name)}: {problem['msg'].removeprefix('Value error, ')}") from None

    def config(self, architecture: params.Architecture) -> dict[str, Any]:
        """Return their settings for ours. Raise SesameError for a setting that has no counterpart."""
        values = architecture.model_dump()
        theirs_name = self.prefix.rstrip(".")
        for key, field_ in type(architecture).model_fields.items():
            only = self.constants.get(key, field_.default)
            if key not in (*self.settings, *self.ignored, "name") and values[key] != only:
                raise SesameError(f"architecture.{key}: {values[key]} has no counterpart in transformers' {theirs_name}, only {only}")
        if values["activation"] not in self.activations.values():
            known = ", ".join(dict.fromkeys(self.activations.values()))
            raise SesameError(f"architecture.activation: {values['activation']} is not written (there are: {known})")
        values["activation"] = next(theirs for theirs, ours in self.activations.items() if ours == values["activation"])
        if self.projects_if_narrow and values["embedding_size"] == values["hidden_size"]:
            raise SesameError(
                f"architecture.embedding_size: {values['hidden_size']} has no counterpart in transformers' {theirs_name}, "
                "which has a projection only for another width than hidden_size"
            )
        if self.projects_if_narrow and values["embedding_size"] is None:
            values["embedding_size"] = values["hidden_size"]
        return self.settings_out(self.fixed | {key: values[ours] for ours, theirs in self.settings.items() for key in theirs.split()})

    def names(self, key: str) -> list[str]:
        """Return their names of one of our tensors; empty if they lack it."""
        number = re.search(r"\bblocks\.(\d+)\.", key)
        pattern = re.sub(r"\bblocks\.\d+", "blocks.*", key)
        module, _, kind = pattern.rpartition(".")
        theirs = self.weights.get(pattern, "").split() or [f"{name}.{kind}" for name in self.weights.get(module, "").split()]
        return [name.replace("*", number[1] if number else "*") for name in theirs]

    def read(self, weights: dict[str, Tensor], shapes: dict[str, Size]) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Convert their weights to ours of the expected shapes.

        Returns them, our modules that are absent, and their weights that are left out (other heads). Raise SesameError with the name
        of the first weight that is missing, has another shape, or is not in the model of the settings.
        """
        left = {self._normalised(name): value.float() for name, value in weights.items() if not BUFFERS.search(name)}
        needed = {name for key in shapes for name in self.names(key)}  # an untied output is no copy
        for copy, name in self.tied.items():
            if copy in needed or (own := self._normalised(copy)) not in left:
                continue
            if not left.setdefault(self._normalised(name), left[own]).equal(left.pop(own)):
                raise SesameError(f"{copy} in the weights is not the same as {name}, and config.json has no untied output")
        state: dict[str, Tensor] = {}
        absent: dict[str, None] = {}
        for key, shape in shapes.items():
            if key in self.zero_weights:
                state[key] = zeros(shape)
                continue
            names = [self._normalised(name) for name in self.names(key)]
            missing = [name for name in names if name not in left]
            if key.partition(".")[0] in HEADS and len(missing) == len(names):
                absent[key.partition(".")[0]] = None
                continue
            if missing:
                raise SesameError(f"{missing[0]} is missing in the weights")
            tensors = [left.pop(name) for name in names]
            expected = self._shape(key, shape, len(names))
            for name, tensor in zip(names, tensors, strict=True):
                if tensor.shape != expected:
                    raise SesameError(f"{name} is {tuple(tensor.shape)} in the weights, but {tuple(expected)} by config.json")
            value = self._transposed(key, tensors[0] if len(tensors) == 1 else cat(tensors))
            state[key] = value[self.position_offset :] if key == "position_embedding.weight" else value
        if incomplete := [key for key in state if key.partition(".")[0] in absent]:
            raise SesameError(f"{self.names(incomplete[0])[0]} is in the weights, but not the rest of its module")
        body = {self._normalised(name).partition(".")[0] for name in self.weights.values() if name.startswith(self.prefix)}
        if extra := [name for name in left if name.partition(".")[0] in body]:
            raise SesameError(f"{extra[0]} is in the weights, but not in the model that config.json describes")
        return state, list(absent), list(left)

    def write(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert our weights to theirs, without modules that theirs lacks."""
        theirs = {}
        for key, value in state.items():
            if names := self.names(key):
                chunks = self._transposed(key, value).chunk(len(names))
                theirs |= {name: chunk.contiguous() for name, chunk in zip(names, chunks, strict=True)}
        return theirs

    def _normalised(self, name: str) -> str:
        """Return the same name for a weight, whatever class it was saved from and however old the file is."""
        name = name.removeprefix(self.prefix)
        return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))

    def _transposed(self, key: str, value: Tensor) -> Tensor:
        return value.T if self.transposed and key.startswith("blocks.") and value.ndim == 2 else value

    def _shape(self, key: str, shape: Size, tensors: int) -> Size:
        """Return the shape of each of their tensors, if ours has `shape`."""
        first, *rest = shape
        first = first // tensors + (self.position_offset if key == "position_embedding.weight" else 0)
        return Size([*rest, first] if self.transposed and key.startswith("blocks.") else [first, *rest])
