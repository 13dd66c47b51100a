"""What `transformers` calls our settings and weights, and how it lays them out: one table a kind of model, read in both directions.

The tables are in each family's `hub.py`.
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
"""Parts that a checkpoint may lack. All others it must have."""

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Of most."""

BUFFERS = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
"""Constants that older versions saved."""


BERT_SETTINGS = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size", "max_length": "max_position_embeddings", "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob attention_probs_dropout_prob", "activation": "hidden_act", "layer_norm_eps": "layer_norm_eps",
}  # fmt: skip
"""As BERT names them, and most that came after it."""


def bert_body(name: str) -> dict[str, str]:
    """The weights that BERT, RoBERTa, ELECTRA and DeBERTa call alike, of a model called `name`."""
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
    """One kind of model.

    Several names, with spaces between: ours is theirs one after another (weights), or must be one value (settings).
    """

    family: str
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
    own: dict[str, Any] = field(default_factory=dict)
    """Settings of ours that are always so in theirs."""
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    """Theirs -> ours; the first of two is written."""
    settings_in: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config
    """From their settings to such that the table names."""
    settings_out: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values
    """The way back."""
    older: dict[str, Any] = field(default_factory=dict)
    """What version 4 of `transformers` reads under other names, written beside them."""
    pretraining: tuple[str, ...] = ()
    """Settings of ours that theirs does without: they matter in pre-training alone, or bound the length of a text."""
    absent: tuple[str, ...] = ()
    """Weights of ours that theirs has not, and that are 0 then."""
    narrow_only: bool = False
    """Whether a matrix brings the embedding to hidden_size only where it is of another width."""
    prepare: Callable[[dict[str, Tensor], Any], dict[str, Tensor]] = lambda weights, architecture: weights
    """From their weights and our architecture to weights that the table names."""
    restore: Callable[[dict[str, Tensor], Any], dict[str, Tensor]] = lambda weights, architecture: weights
    """The way back."""
    reads_segments: bool = True
    code_points: bool = False
    """Whether ids are Unicode's, so that there is no file of a tokenizer."""
    behind: Callable[[Any], int] = lambda model: 0
    """Places of padding that theirs must have behind a text to read its end as ours does."""
    same_end: Callable[[Any, int], int] = lambda model, length: length
    """The most tokens of a text, of so many, at whose end theirs computes what ours does."""
    first_apart: bool = False
    """Whether ours has on top of the first token what is pooled, and theirs something that nobody reads."""
    decodes: bool = False
    """Whether a second stack writes a target."""
    language_model: str = "AutoModelForMaskedLM"
    """Their class that has logits over the vocabulary."""
    classes: dict[str | None, str] = field(default_factory=dict)
    """Part of ours -> the class of theirs that has it; the first whose part is there is written."""
    classifier: tuple[str, str] | None = None
    """Their class that has a linear layer on what ours pools, and that layer's name; None where theirs pools otherwise."""
    classifier_bias: str | None = "bias"
    """None where that layer has none: ours goes into the bias of the last norm."""

    def architecture(self, config: Mapping[str, Any]) -> params.Architecture:
        """Our block out of their settings, defaults included. Raises SesameError that names a setting we have no counterpart for."""
        config = self.settings_in(dict(config))
        plain = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True, "quantization_config": None}
        read = " ".join(self.settings.values()).split()
        for key, value in {**plain, **self.fixed}.items():
            if key not in read and config.get(key, value) != value:
                raise SesameError(f"config.json: {key}: {config[key]!r} is not supported, only {value!r}")
        values = dict(self.own)
        for own, theirs in self.settings.items():
            first, *others = theirs.split()
            if missing := [key for key in (first, *others) if key not in config]:
                raise SesameError(f"config.json: {missing[0]} is missing")
            for other in others:
                if config[other] != config[first]:
                    raise SesameError(f"config.json: {other}: {config[other]!r} is not supported where {first} is {config[first]!r}")
            values[own] = config[first]
        if values["activation"] not in self.activations:
            key = self.settings["activation"]
            raise SesameError(f"config.json: {key}: {values['activation']!r} is not supported (there are: {', '.join(self.activations)})")
        values["activation"] = self.activations[values["activation"]]
        values["max_length"] -= self.positions_aside
        if self.narrow_only and values["embedding_size"] == values["hidden_size"]:
            values["embedding_size"] = None
        if values["intermediate_size"] is None:  # GPT-2's way to say four times as wide
            values["intermediate_size"] = 4 * values["hidden_size"]
        try:
            return ARCHITECTURE.validate_python({"name": self.family, **values})
        except ValidationError as error:
            problem = error.errors()[0]
            own = problem["loc"][-1]
            raise SesameError(f"config.json: {self.settings.get(own, own)}: {problem['msg'].removeprefix('Value error, ')}") from None

    def config(self, architecture: params.Architecture) -> dict[str, Any]:
        """Their settings out of our block. Raises SesameError for a choice that `transformers` has no model for."""
        values = architecture.model_dump()
        for key, field_ in type(architecture).model_fields.items():
            only = self.own.get(key, field_.default)
            if key not in (*self.settings, *self.pretraining, "name") and values[key] != only:
                raise SesameError(
                    f"architecture.{key}: {values[key]} has no counterpart in transformers' {self.prefix.rstrip('.')}, only {only}"
                )
        if values["activation"] not in self.activations.values():
            known = ", ".join(dict.fromkeys(self.activations.values()))
            raise SesameError(f"architecture.activation: {values['activation']} is not written (there are: {known})")
        values["activation"] = next(theirs for theirs, own in self.activations.items() if own == values["activation"])
        if self.narrow_only and values["embedding_size"] == values["hidden_size"]:
            raise SesameError(
                f"architecture.embedding_size: {values['hidden_size']} has no counterpart in transformers' "
                f"{self.prefix.rstrip('.')}, which has a matrix there for another width than hidden_size only"
            )
        if self.narrow_only and values["embedding_size"] is None:
            values["embedding_size"] = values["hidden_size"]
        return self.settings_out(self.fixed | {key: values[own] for own, theirs in self.settings.items() for key in theirs.split()})

    def names(self, key: str) -> list[str]:
        """Their names of one of our tensors, none where they have no such part."""
        number = re.search(r"\bblocks\.(\d+)\.", key)
        pattern = re.sub(r"\bblocks\.\d+", "blocks.*", key)
        module, _, kind = pattern.rpartition(".")
        theirs = self.weights.get(pattern, "").split() or [f"{name}.{kind}" for name in self.weights.get(module, "").split()]
        return [name.replace("*", number[1] if number else "*") for name in theirs]

    def read(self, weights: dict[str, Tensor], shapes: dict[str, Size]) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Their weights -> ours of the shapes expected, parts of ours that are absent, weights of theirs left out (other heads).

        Raises SesameError that names the first weight which is missing, has another shape, or is not in the model of the settings.
        """
        left = {self._plain(name): value.float() for name, value in weights.items() if not BUFFERS.search(name)}
        own = {name for key in shapes for name in self.names(key)}  # an untied output is no copy
        for copy, name in self.tied.items():
            if copy in own or copy not in left:
                continue
            if not left.setdefault(self._plain(name), left[copy]).equal(left.pop(copy)):
                raise SesameError(
                    f"{copy} in the weights is not the same as {name}, and config.json has no untied output"
                )
        state: dict[str, Tensor] = {}
        absent: dict[str, None] = {}
        for key, shape in shapes.items():
            if key in self.absent:
                state[key] = zeros(shape)
                continue
            names = [self._plain(name) for name in self.names(key)]
            missing = [name for name in names if name not in left]
            if key.partition(".")[0] in HEADS and len(missing) == len(names):
                absent[key.partition(".")[0]] = None
                continue
            if missing:
                raise SesameError(f"{missing[0]} is missing in the weights")
            parts = [left.pop(name) for name in names]
            expected = self._shape(key, shape, len(names))
            for name, part in zip(names, parts, strict=True):
                if part.shape != expected:
                    raise SesameError(f"{name} is {tuple(part.shape)} in the weights, but {tuple(expected)} by config.json")
            value = self._turned(key, parts[0] if len(parts) == 1 else cat(parts))
            state[key] = value[self.positions_aside :] if key == "position_embedding.weight" else value
        if torn := [key for key in state if key.partition(".")[0] in absent]:
            raise SesameError(f"{self.names(torn[0])[0]} is in the weights, but not the rest of its part")
        body = {self._plain(name).partition(".")[0] for name in self.weights.values() if name.startswith(self.prefix)}
        if extra := [name for name in left if name.partition(".")[0] in body]:
            raise SesameError(f"{extra[0]} is in the weights, but not in the model that config.json describes")
        return state, list(absent), list(left)

    def write(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Our weights -> theirs, but for parts that theirs has not."""
        written = {}
        for key, value in state.items():
            if not (names := self.names(key)):
                continue
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
