"""How `transformers` lays out what is ours as an encoder-decoder."""

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


def _paired(ours: Mapping[str, str], theirs: str) -> dict[str, str]:
    """Names within a layer, of both stacks; `{}` in `theirs` is the stack."""
    stacks = ("encoder", "decoder")
    return {
        f"{stack}.{own}": " ".join(theirs.format(stack) + part for part in parts.split())
        for stack in stacks for own, parts in ours.items() if stack == "decoder" or "cross" not in own
    }  # fmt: skip


BART_WEIGHTS = {
    "token_embedding": "model.shared",
    "output_bias": "final_logits_bias",
    **_paired(
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
    "forced_eos_token_id": "forced_eos_token_id",
}  # fmt: skip
ACTIVATIONS = PLAIN_ACTIVATIONS | {"relu": "relu", "silu": "silu", "swish": "silu"}
POSITIONS, ASIDE = "embed_positions.weight", 2
OURS_ALONE = ("max_length", "task_states", "output_bias")
"""A T5 reads any length, and was trained on 512 tokens; a bias of the logits is there always, and zero where none was learned."""


def plain(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """The bias of the logits stands there as a row; a file without one has a model without one. BART's positions begin at its third row,
    Marian's are computed."""
    kept = {}
    for name, value in weights.items():
        if not name.endswith(POSITIONS):
            kept[name] = value
        elif architecture.positions == "learned":
            kept[name] = value[ASIDE:]
    return kept | {"final_logits_bias": _bias(weights).flatten()}


def restored(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """The inverse of `plain`."""
    theirs = {name: pad(value, (0, 0, ASIDE, 0)) if name.endswith(POSITIONS) else value for name, value in weights.items()}
    return theirs | {"final_logits_bias": _bias(weights)[None]}


def _bias(weights: dict[str, Tensor]) -> Tensor:
    embedding = weights["model.shared.weight"]
    return weights.get("final_logits_bias", embedding.new_zeros(len(embedding)))


def of_bart(values: dict[str, Any]) -> dict[str, Any]:
    """What a BART or a Marian is told beyond the table."""
    layers, dropout = values["decoder_layers"] or values["encoder_layers"], values["dropout"]
    return values | {"decoder_layers": layers, "attention_dropout": dropout, "activation_dropout": dropout}


def one_end(config: dict[str, Any]) -> dict[str, Any]:
    """Raises SesameError where several tokens may be the last of a text that is as long as it may be."""
    own = config.get("forced_eos_token_id")
    if isinstance(own, list) and len(own) != 1:
        raise SesameError(f"config.json: forced_eos_token_id: {own} is not supported, only one id or null")
    return config | {"forced_eos_token_id": own[0] if isinstance(own, list) else own}


def _bart(weights: dict[str, str], own: dict[str, Any], name: str, **others: Any) -> Layout:
    return Layout(
        "encoder_decoder", "model.", BART_SETTINGS, BART_WEIGHTS | weights,
        tied={f"model.{stack}.embed_tokens.weight": "model.shared.weight" for stack in ("encoder", "decoder")}
        | {"lm_head.weight": "model.shared.weight"},
        activations=ACTIVATIONS, own={"output_bias": True} | own, pretraining=OURS_ALONE, settings_in=one_end, settings_out=of_bart,
        prepare=plain, restore=restored, reads_segments=False, decodes=True, language_model=name, classes={None: name}, **others,
    )  # fmt: skip


BART = _bart(
    _paired({"position_embedding": "embed_positions", "embedding_norm": "layernorm_embedding"}, "model.{}."), {},
    "BartForConditionalGeneration",
)  # fmt: skip
MARIAN = _bart({}, {"positions": "sinusoidal", "embedding_norm": False}, "MarianMTModel", fixed={"share_encoder_decoder_embeddings": True})

_SELF, _CROSS = "layer.0.SelfAttention", "layer.1.EncDecAttention"
T5_WEIGHTS = {
    "token_embedding": "shared",
    "output_embedding": "lm_head",
    **_paired({"positions.bias": f"block.0.{_SELF}.relative_attention_bias", "final_norm": "final_layer_norm"}, "{}."),
    **_paired(
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
        f"{stack}.blocks.*.{own}": f"{stack}.block.*.layer.{place}.{part}"
        for stack, place in (("encoder", 1), ("decoder", 2))
        for own, part in (
            ("feed_forward.inner", "DenseReluDense.wi"), ("feed_forward.output", "DenseReluDense.wo"), ("feed_forward_norm", "layer_norm"),
        )
    },
}  # fmt: skip
T5_SETTINGS = {
    "num_layers": "num_layers", "decoder_layers": "num_decoder_layers", "hidden_size": "d_model", "num_heads": "num_heads",
    "head_size": "d_kv", "intermediate_size": "d_ff", "dropout": "dropout_rate", "activation": "feed_forward_proj",
    "layer_norm_eps": "layer_norm_epsilon", "tie_word_embeddings": "scale_decoder_outputs",
    "decoder_start_token_id": "decoder_start_token_id", "forced_eos_token_id": "forced_eos_token_id",
}  # fmt: skip
INNER = ".DenseReluDense.wi"


def in_ours(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """T5's attention does not divide by the root of the head's width, and where output and embedding are one matrix what goes into it is
    divided by the root of hidden_size: ours has the one in the queries, the other in the decoder's last norm. The two halves of a gated
    layer stand apart there."""
    plain = {name: value for name, value in weights.items() if f"{INNER}_" not in name}
    for name in weights:
        if f"{INNER}_0" in name:
            plain[name.replace("wi_0", "wi")] = cat([weights[name], weights[name.replace("wi_0", "wi_1")]])
    if architecture.tie_word_embeddings and plain.pop("lm_head.weight", plain["shared.weight"]).ne(plain["shared.weight"]).any():
        raise SesameError("lm_head.weight in the weights is not the same as shared.weight, and config.json has no untied output")
    if not architecture.tie_word_embeddings:
        plain.setdefault("lm_head.weight", plain["shared.weight"].clone())  # two weights of one memory can't be saved
    return _rescaled(plain, architecture, 1)


def in_theirs(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture) -> dict[str, Tensor]:
    """The inverse of `in_ours`."""
    theirs = {}
    for name, value in weights.items():
        if INNER in name and architecture.activation in GATED.values():
            halves = zip(("wi_0", "wi_1"), value.chunk(2), strict=True)
            theirs |= {name.replace("wi", half): part.contiguous() for half, part in halves}
        else:
            theirs[name] = value
    return _rescaled(theirs, architecture, -1)


def _rescaled(weights: dict[str, Tensor], architecture: EncoderDecoderArchitecture, power: int) -> dict[str, Tensor]:
    head = (architecture.inner_size // architecture.num_heads) ** (power / 2)
    output = architecture.hidden_size ** (-power / 2) if architecture.tie_word_embeddings else 1.0
    factors = {name: head for name in weights if name.endswith("Attention.q.weight")} | {"decoder.final_layer_norm.weight": output}
    return {name: value.float() * factors[name] if name in factors else value for name, value in weights.items()}


def of_a_t5(config: dict[str, Any]) -> dict[str, Any]:
    """With what old files leave out: the start of a target was written into the settings for generation alone. Untied is version 1.1."""
    told = {"scale_decoder_outputs": config.get("tie_word_embeddings", True), "decoder_start_token_id": config.get("pad_token_id", 0)}
    return one_end({**told, **{key: value for key, value in config.items() if value is not None}, "tie_word_embeddings": True})


def of_an_mt5(config: dict[str, Any]) -> dict[str, Any]:
    """All of version 1.1."""
    return of_a_t5(config | {"scale_decoder_outputs": False})


def of_our_t5(values: dict[str, Any]) -> dict[str, Any]:
    """What a T5 is told beyond the table. It takes an untied output as its name for version 1.1."""
    layers, head = values["num_decoder_layers"] or values["num_layers"], values["d_kv"] or values["d_model"] // values["num_heads"]
    told = values | {"num_decoder_layers": layers, "d_kv": head, "tie_word_embeddings": values["scale_decoder_outputs"]}
    del told["forced_eos_token_id"]  # stands among the settings for writing alone
    return told


GATED = {"gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
T5 = Layout(
    "encoder_decoder", "", T5_SETTINGS, T5_WEIGHTS,
    tied={f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
    fixed={"relative_attention_num_buckets": BUCKETS, "relative_attention_max_distance": FARTHEST},
    activations={"relu": "relu", "gelu": "gelu", "silu": "silu"} | GATED,
    own={
        "max_length": 512, "positions": "relative", "norm": "rms_norm", "norm_first": True, "biases": False, "embedding_norm": False,
    },
    pretraining=OURS_ALONE, settings_in=of_a_t5, settings_out=of_our_t5, prepare=in_ours, restore=in_theirs, reads_segments=False,
    decodes=True, language_model="T5ForConditionalGeneration", classes={None: "T5ForConditionalGeneration"},
)  # fmt: skip
MT5 = replace(T5, settings_in=of_an_mt5, language_model="MT5ForConditionalGeneration")

LAYOUTS = {"bart": BART, "marian": MARIAN, "t5": T5, "mt5": MT5}
"""model_type in config.json -> its layout."""


def written(architecture: EncoderDecoderArchitecture) -> str:
    """What ours is written as: the kind whose positions it has. What else must fit is said by its layout."""
    return {"relative": "t5", "sinusoidal": "marian"}.get(architecture.positions, "bart")


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["input_ids", "attention_mask"])
"""A text, a pair, and what the model takes."""
