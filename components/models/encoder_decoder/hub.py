"""The layouts in `transformers` of models that are encoder-decoders here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, cat
from torch.nn.functional import pad

from components.core.errors import SesameError
from components.models.common.layout import ACTIVATIONS as PLAIN_ACTIVATIONS
from components.models.common.layout import Layout
from components.models.common.positions import BUCKETS, FARTHEST
from components.models.encoder_decoder.config import EncoderDecoderArchitecture


def _of_both_stacks(names: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return our names -> theirs for both stacks; `{}` in their `prefix` is the stack."""
    return {
        f"{stack}.{ours}": " ".join(prefix.format(stack) + name for name in theirs.split())
        for stack in ("encoder", "decoder") for ours, theirs in names.items() if stack == "decoder" or "cross" not in ours
    }  # fmt: skip


BART_WEIGHTS = {
    "token_embedding": "model.shared",
    "output_bias": "final_logits_bias",
    **_of_both_stacks(
        {
            "blocks.*.attention.query": "self_attn.q_proj",
            "blocks.*.attention.key_value": "self_attn.k_proj self_attn.v_proj",
            "blocks.*.attention.output": "self_attn.out_proj",
            "blocks.*.attention_norm": "self_attn_layer_norm",
            "blocks.*.cross_attention.query": "encoder_attn.q_proj",
            "blocks.*.cross_attention.key_value": "encoder_attn.k_proj encoder_attn.v_proj",
            "blocks.*.cross_attention.output": "encoder_attn.out_proj",
            "blocks.*.cross_attention_norm": "encoder_attn_layer_norm",
            "blocks.*.feed_forward.inner": "fc1",
            "blocks.*.feed_forward.output": "fc2",
            "blocks.*.feed_forward_norm": "final_layer_norm",
        },
        "model.{}.layers.*.",
    ),
}
BART_SETTINGS = {
    "num_layers": "encoder_layers", "decoder_layers": "decoder_layers", "hidden_size": "d_model",
    "num_heads": "encoder_attention_heads decoder_attention_heads", "intermediate_size": "encoder_ffn_dim decoder_ffn_dim",
    "max_length": "max_position_embeddings", "dropout": "dropout", "activation": "activation_function",
    "scale_embedding": "scale_embedding", "decoder_start_token_id": "decoder_start_token_id",
    "forced_bos_token_id": "forced_bos_token_id", "forced_eos_token_id": "forced_eos_token_id",
}  # fmt: skip
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
ACTIVATIONS = PLAIN_ACTIVATIONS | {"relu": "relu", "silu": "silu", "swish": "silu"}
POSITIONS, POSITION_OFFSET = "embed_positions.weight", 2
IGNORED = ("max_length", "task_states", "output_bias")
"""A T5 reads any length, and was trained on 512 tokens; the output bias always exists, and is zero if none was trained."""


def from_bart(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """Flatten the output bias, which is zero if the file has none, and cut BART's positions, which begin at the third row.

    Marian's positions are computed.
    """
    ours = {}
    for name, value in weights.items():
        if not name.endswith(POSITIONS):
            ours[name] = value
        elif architecture.positions == "learned":
            ours[name] = value[POSITION_OFFSET:]
    return ours | {"final_logits_bias": _bias(weights).flatten()}


def to_bart(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """Invert `from_bart`."""
    theirs = {name: pad(value, (0, 0, POSITION_OFFSET, 0)) if name.endswith(POSITIONS) else value for name, value in weights.items()}
    return theirs | {"final_logits_bias": _bias(weights)[None]}


def _bias(weights: dict[str, Tensor]) -> Tensor:
    embedding = shared_embedding(weights, "model.")
    return weights.get("final_logits_bias", embedding.new_zeros(len(embedding)))


def shared_embedding(weights: dict[str, Tensor], prefix: str = "", also: tuple[str, ...] = ()) -> Tensor:
    """The embedding of source and target, which a file may have under the name of either stack alone, or of a tied output. Raise
    SesameError if it has none."""
    names = (f"{prefix}shared.weight", *(f"{prefix}{stack}.embed_tokens.weight" for stack in ("encoder", "decoder")), *also)
    for name in names:
        if name in weights:
            return weights[name]
    raise SesameError(f"{names[0]} is missing in the weights")


def complete_bart(values: dict[str, Any]) -> dict[str, Any]:
    """Add the settings of a BART or a Marian that are not in the table."""
    layers, dropout = values["decoder_layers"] or values["encoder_layers"], values["dropout"]
    settings = values | {"decoder_layers": layers, "attention_dropout": dropout, "activation_dropout": dropout}
    del settings["forced_bos_token_id"]  # which is only in the generation settings
    return settings


def single_forced(config: dict[str, Any]) -> dict[str, Any]:
    """Unpack a list of one forced token. Raise SesameError for several."""
    for key in FORCED:
        ids = config.get(key)
        if isinstance(ids, list) and len(ids) != 1:
            raise SesameError(f"config.json: {key}: {ids} is not supported, only one id or null")
        config = config | {key: ids[0] if isinstance(ids, list) else ids}
    return config


def one_dropout(config: dict[str, Any]) -> dict[str, Any]:
    """Unpack forced tokens, and say which rates of dropout are not kept: ours has one rate for all of a layer."""
    rate = config.get("dropout")
    others = ("attention_dropout", "activation_dropout")
    lost = [f"{key} {config[key]}" for key in others if config.get(key, rate) != rate]
    if lost:
        print(f"config.json: {' and '.join(lost)}: in training these are {rate} here, as dropout is", flush=True)
    return single_forced(config)


def _bart(weights: dict[str, str], constants: dict[str, Any], name: str, **others: Any) -> Layout:
    return Layout(
        "encoder_decoder", "model.", BART_SETTINGS, BART_WEIGHTS | weights,
        tied={f"model.{stack}.embed_tokens.weight": "model.shared.weight" for stack in ("encoder", "decoder")}
        | {"lm_head.weight": "model.shared.weight"},
        activations=ACTIVATIONS, constants={"output_bias": True} | constants, ignored=IGNORED, settings_in=one_dropout,
        settings_out=complete_bart, prepare=from_bart, restore=to_bart, reads_segments=False, decodes=True, language_model=name,
        classes={None: name}, **others,
    )  # fmt: skip


BART = _bart(
    _of_both_stacks({"position_embedding": "embed_positions", "embedding_norm": "layernorm_embedding"}, "model.{}."), {},
    "BartForConditionalGeneration",
)  # fmt: skip
MARIAN = _bart({}, {"positions": "sinusoidal", "embedding_norm": False}, "MarianMTModel", fixed={"share_encoder_decoder_embeddings": True})

_SELF, _CROSS = "layer.0.SelfAttention", "layer.1.EncDecAttention"
T5_WEIGHTS = {
    "token_embedding": "shared",
    "output_embedding": "lm_head",
    **_of_both_stacks({"positions.bias": f"block.0.{_SELF}.relative_attention_bias", "final_norm": "final_layer_norm"}, "{}."),
    **_of_both_stacks(
        {
            "blocks.*.attention.query": f"{_SELF}.q",
            "blocks.*.attention.key_value": f"{_SELF}.k {_SELF}.v",
            "blocks.*.attention.output": f"{_SELF}.o",
            "blocks.*.attention_norm": "layer.0.layer_norm",
            "blocks.*.cross_attention.query": f"{_CROSS}.q",
            "blocks.*.cross_attention.key_value": f"{_CROSS}.k {_CROSS}.v",
            "blocks.*.cross_attention.output": f"{_CROSS}.o",
            "blocks.*.cross_attention_norm": "layer.1.layer_norm",
        },
        "{}.block.*.",
    ),
    **{
        f"{stack}.blocks.*.{ours}": f"{stack}.block.*.layer.{number}.{theirs}"
        for stack, number in (("encoder", 1), ("decoder", 2))
        for ours, theirs in (
            ("feed_forward.inner", "DenseReluDense.wi"), ("feed_forward.output", "DenseReluDense.wo"), ("feed_forward_norm", "layer_norm"),
        )
    },
}  # fmt: skip
T5_SETTINGS = {
    "num_layers": "num_layers", "decoder_layers": "num_decoder_layers", "hidden_size": "d_model", "num_heads": "num_heads",
    "head_size": "d_kv", "intermediate_size": "d_ff", "dropout": "dropout_rate", "activation": "feed_forward_proj",
    "layer_norm_eps": "layer_norm_epsilon", "tie_word_embeddings": "scale_decoder_outputs",
    "decoder_start_token_id": "decoder_start_token_id",
    "forced_bos_token_id": "forced_bos_token_id", "forced_eos_token_id": "forced_eos_token_id",
}  # fmt: skip
INNER = ".DenseReluDense.wi"


def from_t5(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """Join the two matrices of gated layers, and move T5's scales into the weights.

    T5's attention does not divide by sqrt(head width); ours gets this factor in the queries. If output and embedding are tied, T5
    divides the input of the output layer by sqrt(hidden_size); ours gets this factor in the decoder's last norm.
    """
    ours = {name: value for name, value in weights.items() if f"{INNER}_" not in name}
    output = ("lm_head.weight",) if architecture.tie_word_embeddings else ()
    ours.setdefault("shared.weight", shared_embedding(weights, also=output))
    for name in weights:
        if f"{INNER}_0" in name:
            ours[name.replace("wi_0", "wi")] = cat([weights[name], weights[name.replace("wi_0", "wi_1")]])
    if architecture.tie_word_embeddings and ours.pop("lm_head.weight", ours["shared.weight"]).ne(ours["shared.weight"]).any():
        raise SesameError("lm_head.weight in the weights is not the same as shared.weight, and config.json has no untied output")
    if not architecture.tie_word_embeddings:
        ours.setdefault("lm_head.weight", ours["shared.weight"].clone())  # tensors that share memory can't be saved
    return _rescaled(ours, architecture, 1)


def to_t5(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """Invert `from_t5`."""
    theirs = {}
    for name, value in weights.items():
        if INNER in name and architecture.activation in GATED.values():
            halves = zip(("wi_0", "wi_1"), value.chunk(2), strict=True)
            theirs |= {name.replace("wi", half): matrix.contiguous() for half, matrix in halves}
        else:
            theirs[name] = value
    return _rescaled(theirs, architecture, -1)


def _rescaled(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture, power: int) -> dict[str, Tensor]:
    head = (architecture.inner_size // architecture.num_heads) ** (power / 2)
    output = architecture.hidden_size ** (-power / 2) if architecture.tie_word_embeddings else 1.0
    factors = {name: head for name in weights if name.endswith("Attention.q.weight")} | {"decoder.final_layer_norm.weight": output}
    return {name: value.float() * factors[name] if name in factors else value for name, value in weights.items()}


def t5_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Add settings that old files lack: they have the start token of a target only in the generation settings. Version 1.1 is untied."""
    defaults = {"scale_decoder_outputs": config.get("tie_word_embeddings", True), "decoder_start_token_id": config.get("pad_token_id", 0)}
    given = {key: value for key, value in config.items() if value is not None}
    return single_forced({**defaults, **given, "tie_word_embeddings": True})


def mt5_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Add the same settings; all mT5 have version 1.1."""
    return t5_settings(config | {"scale_decoder_outputs": False})


def complete_t5(values: dict[str, Any]) -> dict[str, Any]:
    """Add the settings of a T5 that are not in the table. `transformers` takes an untied output for version 1.1."""
    layers, head = values["num_decoder_layers"] or values["num_layers"], values["d_kv"] or values["d_model"] // values["num_heads"]
    settings = values | {"num_decoder_layers": layers, "d_kv": head, "tie_word_embeddings": values["scale_decoder_outputs"]}
    for key in FORCED:  # which are only in the generation settings
        del settings[key]
    return settings


GATED = {"gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
T5 = Layout(
    "encoder_decoder", "", T5_SETTINGS, T5_WEIGHTS,
    tied={f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
    fixed={"relative_attention_num_buckets": BUCKETS, "relative_attention_max_distance": FARTHEST},
    activations={"relu": "relu", "gelu": "gelu", "silu": "silu"} | GATED,
    constants={
        "max_length": 512, "positions": "relative", "norm": "rms_norm", "norm_first": True, "biases": False, "embedding_norm": False,
    },
    ignored=IGNORED, settings_in=t5_settings, settings_out=complete_t5, prepare=from_t5, restore=to_t5, reads_segments=False,
    decodes=True, language_model="T5ForConditionalGeneration", classes={None: "T5ForConditionalGeneration"},
)  # fmt: skip
MT5 = replace(T5, settings_in=mt5_settings, language_model="MT5ForConditionalGeneration")

LAYOUTS = {"bart": BART, "marian": MARIAN, "t5": T5, "mt5": MT5}
"""model_type in config.json -> its layout."""


def model_type(architecture: EncoderDecoderArchitecture) -> str:
    """Return the kind with the same positions; its layout checks the other settings."""
    return {"relative": "t5", "sinusoidal": "marian"}.get(architecture.positions, "bart")


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["input_ids", "attention_mask"])
"""Templates of a text and a pair, and the inputs of the model."""
