"""How `transformers` lays out DeBERTa, of which version 3 is version 2 with another pre-training."""

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


def ordered(config: dict[str, Any]) -> dict[str, Any]:
    """The kinds of attention in one order: they are added up."""
    kinds = config.get("pos_att_type") or []
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    return config | {"pos_att_type": sorted((kind.strip().lower() for kind in kinds), reverse=True)}


def split(weights: dict[str, Tensor], architecture: DebertaArchitecture) -> dict[str, Tensor]:
    """Version 1 has queries, keys and values of a head in one matrix, the heads one after another, and their biases beside it."""
    plain = {}
    for name, value in weights.items():
        if name.endswith("self.in_proj.weight"):
            stem = name.removesuffix("in_proj.weight")
            parts = value.view(architecture.num_heads, 3, -1, value.shape[1]).unbind(1)
            plain |= {f"{stem}{kind}_proj.weight": part.flatten(0, 1) for kind, part in zip(("query", "key", "value"), parts, strict=True)}
        else:
            plain[re.sub(r"self\.([qv])_bias$", lambda found: f"self.{dict(q='query', v='value')[found[1]]}_proj.bias", name)] = value
    return plain


LAYOUTS = {
    "deberta-v2": Layout(
        "deberta", "deberta.", BERT_SETTINGS | {"position_buckets": "position_buckets"},
        _BODY | {"relative_norm": "deberta.encoder.LayerNorm"},
        tied={},
        fixed=_FIXED | {"share_att_key": True, "norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"]},
        settings_in=ordered,
        own={"shared_projections": True, "norm_positions": True, "mask_decoder": False},
        pretraining=("mask_decoder",),
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
        settings_in=ordered,
        own={"mask_decoder": False},
        prepare=split,
        reads_segments=False,
    ),
}  # fmt: skip
"""model_type in config.json -> its layout. The heads of pre-training are left out: `transformers` knows two forms of them."""


def written(architecture: DebertaArchitecture) -> str:
    """What ours is written as: version 1, whose matrices lie otherwise, is read only."""
    return "deberta-v2"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "attention_mask"])
"""A text, a pair, and what the model takes."""
