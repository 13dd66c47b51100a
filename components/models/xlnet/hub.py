"""The layout of XLNet in `transformers`, which is the authors': heads are separate dimensions."""

from torch import Tensor

from components.models.common.layout import Layout
from components.models.xlnet.config import XLNetArchitecture

_LAYER = "transformer.layer.*"
_ATTENTION = f"{_LAYER}.rel_attn"
_IN, _OUT, _BIASES, _SEGMENTS = tuple(f".rel_attn.{kind}" for kind in "qkvr"), ".rel_attn.o", "_bias", ".seg_embed"


def flatten_heads(weights: dict[str, Tensor], architecture: XLNetArchitecture) -> dict[str, Tensor]:
    """(hidden, heads, head) -> (hidden, hidden), input projections transposed; biases (heads, head) -> (hidden,)."""
    ours = {}
    for name, value in weights.items():
        if name.endswith(_IN):
            ours[f"{name}.weight"] = value.flatten(1).T
        elif name.endswith(_OUT):
            ours[f"{name}.weight"] = value.flatten(1)
        elif ".rel_attn.r_" in name and name.endswith(_BIASES):
            ours[name] = value.flatten()
        elif name.endswith(_SEGMENTS):
            ours[name] = value.transpose(0, 1)
        else:
            ours[name] = value.flatten() if name.endswith("mask_emb") else value
    return ours


def unflatten_heads(weights: dict[str, Tensor], architecture: XLNetArchitecture) -> dict[str, Tensor]:
    """Invert `flatten_heads`."""
    heads, theirs = (architecture.num_heads, -1), {}
    for name, value in weights.items():
        matrix = name.removesuffix(".weight")
        if matrix.endswith(_IN):
            theirs[matrix] = value.T.unflatten(1, heads).contiguous()
        elif matrix.endswith(_OUT):
            theirs[matrix] = value.unflatten(1, heads)
        elif ".rel_attn.r_" in name and name.endswith(_BIASES):
            theirs[name] = value.unflatten(0, heads)
        elif name.endswith(_SEGMENTS):
            theirs[name] = value.transpose(0, 1).contiguous()
        else:
            theirs[name] = value[None, None] if name.endswith("mask_emb") else value
    return theirs


LAYOUTS = {
    "xlnet": Layout(
        "xlnet", "transformer.",
        {
            "num_layers": "n_layer", "hidden_size": "d_model", "num_heads": "n_head", "intermediate_size": "d_inner", "dropout": "dropout",
            "activation": "ff_activation", "layer_norm_eps": "layer_norm_eps",
        },
        {
            "token_embedding": "transformer.word_embedding",
            "asking_embedding": "transformer.mask_emb",
            "blocks.*.attention.query": f"{_ATTENTION}.q",
            "blocks.*.attention.key": f"{_ATTENTION}.k",
            "blocks.*.attention.value": f"{_ATTENTION}.v",
            "blocks.*.attention.distance": f"{_ATTENTION}.r",
            "blocks.*.attention.output": f"{_ATTENTION}.o",
            "blocks.*.attention.content_bias": f"{_ATTENTION}.r_w_bias",
            "blocks.*.attention.distance_bias": f"{_ATTENTION}.r_r_bias",
            "blocks.*.attention.segment_bias": f"{_ATTENTION}.r_s_bias",
            "blocks.*.attention.segments": f"{_ATTENTION}.seg_embed",
            "blocks.*.attention_norm": f"{_ATTENTION}.layer_norm",
            "blocks.*.feed_forward.0": f"{_LAYER}.ff.layer_1",
            "blocks.*.feed_forward.2": f"{_LAYER}.ff.layer_2",
            "blocks.*.feed_forward_norm": f"{_LAYER}.ff.layer_norm",
            "head_bias": "lm_loss.bias",
            "pooler.0": "sequence_summary.summary",
        },
        tied={"lm_loss.weight": "transformer.word_embedding.weight"},
        fixed={"attn_type": "bi", "bi_data": False, "clamp_len": -1, "same_length": False, "summary_type": "last"},
        constants={"max_length": 512},  # they read any length, and were trained on this one
        ignored=("max_length",),
        prepare=flatten_heads,
        restore=unflatten_heads,
        language_model="XLNetLMHeadModel",
        classes={"head_bias": "XLNetLMHeadModel", None: "XLNetModel"},
    ),
}  # fmt: skip
"""model_type in config.json -> its layout."""


def model_type(architecture: XLNetArchitecture) -> str:
    return "xlnet"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
"""Templates of a text and a pair, and the inputs of the model."""
PADDING_SIDE = "left"
"""Their classes pool the last token, even if it is padding."""
