"""The layouts in `transformers` of models that are decoders here."""

from typing import Any

from torch import Tensor

from components.models.common.layout import Layout
from components.models.decoder.config import DecoderArchitecture

ROTATION = {"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base", "rope_type": "rope_type"}
"""Settings in `rope_parameters` (since version 5) -> their names before."""
FULL_ROTATION = {"rotary_pct": 1.0, "rotary_emb_base": 10_000}
"""Rotation of complete heads, with RoFormer's frequencies."""
BUFFERS = (".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")
"""Constants that older versions of GPT-NeoX saved."""
JOINED = (".query_key_value.weight", ".query_key_value.bias")


def flatten_rotation(config: dict[str, Any]) -> dict[str, Any]:
    """Move the settings of rotary positions to the top level."""
    section = config.get("rope_parameters") or {}
    return config | {older: section[key] for key, older in ROTATION.items() if key in section}


def nest_rotation(values: dict[str, Any]) -> dict[str, Any]:
    """Invert `flatten_rotation`."""
    section = {key: values[older] for key, older in ROTATION.items()}
    return {key: value for key, value in values.items() if key not in ROTATION.values()} | {"rope_parameters": section}


def order_by_kind(weights: dict[str, Tensor], architecture: DecoderArchitecture) -> dict[str, Tensor]:
    """Reorder GPT-NeoX's matrix of query, key and value of each head into ours: queries of all heads, keys, values.

    Its output matrix has two names.
    """
    ours = {}
    for name, value in weights.items():
        if name.endswith(JOINED) and len(value) == 3 * architecture.hidden_size:
            value = value.unflatten(0, (architecture.num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        if not name.endswith(BUFFERS):
            ours["embed_out.weight" if name == "lm_head.weight" else name] = value
    return ours


def order_by_head(weights: dict[str, Tensor], architecture: DecoderArchitecture) -> dict[str, Tensor]:
    """Invert `order_by_kind`."""
    shape = (3, architecture.num_heads, -1)
    return {
        name: value.unflatten(0, shape).transpose(0, 1).flatten(0, 2) if name.endswith(JOINED) else value for name, value in weights.items()
    }


LAYOUTS = {
    "gpt2": Layout(
        "decoder", "transformer.",
        {
            "num_layers": "n_layer", "hidden_size": "n_embd", "num_heads": "n_head", "intermediate_size": "n_inner",
            "max_length": "n_positions",
            "dropout": "resid_pdrop embd_pdrop attn_pdrop", "activation": "activation_function", "layer_norm_eps": "layer_norm_epsilon",
            "tie_word_embeddings": "tie_word_embeddings",
        },
        {
            "token_embedding": "transformer.wte",
            "output_embedding": "lm_head",
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
        reads_segments=False,
        language_model="AutoModelForCausalLM",
        classes={"output_embedding": "GPT2LMHeadModel", None: "GPT2Model"},
        classifier=("GPT2ForSequenceClassification", "score"),
        classifier_bias=None,
    ),
    "gpt_neox": Layout(
        "decoder", "gpt_neox.",
        {
            "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_heads": "num_attention_heads",
            "intermediate_size": "intermediate_size", "max_length": "max_position_embeddings",
            "dropout": "hidden_dropout attention_dropout", "activation": "hidden_act",
            "layer_norm_eps": "layer_norm_eps", "tie_word_embeddings": "tie_word_embeddings",
        },
        {
            "token_embedding": "gpt_neox.embed_in",
            "output_embedding": "embed_out",
            "blocks.*.attention_norm": "gpt_neox.layers.*.input_layernorm",
            "blocks.*.attention.query_key_value": "gpt_neox.layers.*.attention.query_key_value",
            "blocks.*.attention.output": "gpt_neox.layers.*.attention.dense",
            "blocks.*.feed_forward_norm": "gpt_neox.layers.*.post_attention_layernorm",
            "blocks.*.feed_forward.0": "gpt_neox.layers.*.mlp.dense_h_to_4h",
            "blocks.*.feed_forward.2": "gpt_neox.layers.*.mlp.dense_4h_to_h",
            "final_norm": "gpt_neox.final_layer_norm",
        },
        tied={"embed_out.weight": "gpt_neox.embed_in.weight"},
        fixed={"use_parallel_residual": False, "attention_bias": True, "rope_type": "default"} | FULL_ROTATION,
        constants={"positions": "rotary"},
        settings_in=flatten_rotation,
        settings_out=nest_rotation,
        legacy_settings=FULL_ROTATION,
        prepare=order_by_kind,
        restore=order_by_head,
        reads_segments=False,
        language_model="AutoModelForCausalLM",
        classes={"output_embedding": "GPTNeoXForCausalLM", None: "GPTNeoXModel"},
        classifier=("GPTNeoXForSequenceClassification", "score"),
        classifier_bias=None,
    ),
}  # fmt: skip
"""model_type in config.json -> its layout."""


def model_type(architecture: DecoderArchitecture) -> str:
    """Return the kind with the same positions."""
    return "gpt_neox" if architecture.positions == "rotary" else "gpt2"


FORM = ("[CLS] $A", "[CLS] $A [SEP] $B", ["input_ids", "attention_mask"])
"""Templates of a text and a pair, and the inputs of the model. A decoder continues a text, so no token follows it."""
CLASSIFIER_FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["input_ids", "attention_mask"])
"""The same for a classifier, which pools the token after the text, as fine-tuning does."""
PADDING_SIDE = "left"
"""The generated tokens follow the text, not the padding."""
CONTINUES = True
"""The output continues a text, so that a blank at its beginning is kept."""
