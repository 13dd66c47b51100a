"""The layout of DeBERTa in `transformers`; version 3 is version 2 with another pre-training."""

import re
from typing import Any

from torch import Tensor

from components.models.common.layout import BERT_SETTINGS, Layout, bert_body
from components.models.deberta.config import DebertaArchitecture

_ATTENTION = "deberta.encoder.layer.*.attention.self"
_BODY = bert_body("deberta") | {
    "relative_embedding": "deberta.encoder.rel_embeddings",
    "blocks.*.attention.query": f"{_ATTENTION}.query_proj",
    "blocks.*.attention.key": f"{_ATTENTION}.key_proj",
    "blocks.*.attention.value": f"{_ATTENTION}.value_proj",
}
_FIXED = {"relative_attention": True, "position_biased_input": False, "max_relative_positions": -1}


def sort_attention(config: dict[str, Any]) -> dict[str, Any]:
    """Sort the kinds of attention: they are added up, so that their order has no effect."""
    kinds = config.get("pos_att_type") or []
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    return config | {"pos_att_type": sorted((kind.strip().lower() for kind in kinds), reverse=True)}


def split_projections(weights: dict[str, Tensor], architecture: DebertaArchitecture) -> dict[str, Tensor]:
    """Split version 1's matrix of queries, keys and values, which is ordered by head, and rename their separate biases."""
    ours = {}
    for name, value in weights.items():
        if name.endswith("self.in_proj.weight"):
            stem = name.removesuffix("in_proj.weight")
            matrices = value.view(architecture.num_heads, 3, -1, value.shape[1]).unbind(1)
            for kind, matrix in zip(("query", "key", "value"), matrices, strict=True):
                ours[f"{stem}{kind}_proj.weight"] = matrix.flatten(0, 1)
        else:
            name = re.sub(r"self\.q_bias$", "self.query_proj.bias", name)
            ours[re.sub(r"self\.v_bias$", "self.value_proj.bias", name)] = value
    return ours


LAYOUTS = {
    "deberta-v2": Layout(
        "deberta", "deberta.", BERT_SETTINGS | {"position_buckets": "position_buckets"},
        _BODY | {"relative_norm": "deberta.encoder.LayerNorm"},
        tied={},
        fixed=_FIXED | {"share_att_key": True, "norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"]},
        settings_in=sort_attention,
        constants={"shared_projections": True, "norm_positions": True, "mask_decoder": False},
        ignored=("mask_decoder",),
        reads_segments=False,
        classes={None: "DebertaV2Model"},
    ),
    "deberta": Layout(
        "deberta", "deberta.", BERT_SETTINGS,
        _BODY | {
            "blocks.*.attention.position_key": f"{_ATTENTION}.pos_proj",
            "blocks.*.attention.position_query": f"{_ATTENTION}.pos_q_proj",
        },
        tied={},
        fixed=_FIXED | {"pos_att_type": ["p2c", "c2p"]},
        settings_in=sort_attention,
        constants={"mask_decoder": False},
        prepare=split_projections,
        reads_segments=False,
    ),
}  # fmt: skip
"""model_type in config.json -> its layout. Pre-training heads are left out: `transformers` has two forms of them."""


def model_type(architecture: DebertaArchitecture) -> str:
    """Return the kind that ours is written as; version 1, whose matrices have another order, is only read."""
    return "deberta-v2"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "attention_mask"])
"""Templates of a text and a pair, and the inputs of the model."""
