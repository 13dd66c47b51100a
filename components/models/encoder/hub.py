"""The layouts in `transformers` of models that are encoders here."""

import torch
from torch import Tensor

from components.core.errors import SesameError
from components.models.common.layout import BERT_SETTINGS, Layout, bert_body
from components.models.encoder.config import EncoderArchitecture

SETTINGS = BERT_SETTINGS | {"tie_word_embeddings": "tie_word_embeddings"}
BIASES = {
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.bias": "lm_head.bias",
    "predictions.decoder.bias": "predictions.bias",
}
"""The bias of the output layer -> its other name, which is not used if the output is untied."""


def merge_biases(weights: dict[str, Tensor], architecture: EncoderArchitecture) -> dict[str, Tensor]:
    """Store the output bias that is used under both names."""
    if architecture.tie_word_embeddings:
        return weights
    return weights | {name: weights[used] for used, name in BIASES.items() if used in weights}


def duplicate_biases(weights: dict[str, Tensor], architecture: EncoderArchitecture) -> dict[str, Tensor]:
    """Invert `merge_biases`."""
    if architecture.tie_word_embeddings:
        return weights
    return weights | {used: weights[name].clone() for used, name in BIASES.items() if name in weights}


ROTATED = tuple(f".self.{kind}.{name}" for kind in ("query", "key") for name in ("weight", "bias"))
TABLE = "encoder.embed_positions.weight"


def rotate_halves(weights: dict[str, Tensor], architecture: EncoderArchitecture) -> dict[str, Tensor]:
    """Reorder RoFormer's queries and keys: it rotates neighbouring dimensions of a head, ours dimension i of one half with i of the other.

    Its table of angles is left out.
    """
    ours = {}
    for name, value in merge_biases(weights, architecture).items():
        if name.endswith(ROTATED) and len(value) == architecture.hidden_size:
            value = value.unflatten(0, (architecture.num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
        if not name.endswith(TABLE):
            ours[name] = value
    return ours


def rotate_neighbours(weights: dict[str, Tensor], architecture: EncoderArchitecture) -> dict[str, Tensor]:
    """Invert `rotate_halves`."""
    theirs = {}
    for name, value in duplicate_biases(weights, architecture).items():
        if name.endswith(ROTATED):
            value = value.unflatten(0, (architecture.num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        theirs[name] = value
    head = architecture.hidden_size // architecture.num_heads
    rates = 10_000 ** (torch.arange(0, head, 2, dtype=torch.float64) / head)
    angles = torch.arange(architecture.max_length, dtype=torch.float64)[:, None] / rates
    return theirs | {f"roformer.{TABLE}": torch.cat([angles.sin(), angles.cos()], 1).float()}


def _encoder(name: str) -> dict[str, str]:
    """Return the names of the body that BERT, RoBERTa and ELECTRA share."""
    attention = f"{name}.encoder.layer.*.attention.self"
    return bert_body(name) | {
        "position_embedding": f"{name}.embeddings.position_embeddings",
        "blocks.*.attention.query_key_value": f"{attention}.query {attention}.key {attention}.value",
    }


BERT = Layout(
    "encoder", "bert.", SETTINGS,
    _encoder("bert") | {
        "output_embedding": "cls.predictions.decoder",
        "pooler.0": "bert.pooler.dense",
        "head_transform.0": "cls.predictions.transform.dense",
        "head_transform.2": "cls.predictions.transform.LayerNorm",
        "head_bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    prepare=merge_biases,
    restore=duplicate_biases,
    fixed={"position_embedding_type": "absolute"},
    classes={"next_sentence": "BertForPreTraining", "head_bias": "BertForMaskedLM", None: "BertModel"},
    classifier=("BertForSequenceClassification", "classifier"),
)  # fmt: skip

ROBERTA = Layout(
    "encoder", "roberta.", SETTINGS,
    _encoder("roberta") | {
        "output_embedding": "lm_head.decoder",
        "pooler.0": "roberta.pooler.dense",
        "head_transform.0": "lm_head.dense",
        "head_transform.2": "lm_head.layer_norm",
        "head_bias": "lm_head.bias",
    },
    tied={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    fixed={"position_embedding_type": "absolute", "hidden_act": "gelu", "pad_token_id": 1},
    prepare=merge_biases,
    restore=duplicate_biases,
    position_offset=2,
)  # fmt: skip

_GROUP = "albert.encoder.albert_layer_groups.*.albert_layers.0"
ALBERT = Layout(
    "encoder", "albert.", SETTINGS | {"embedding_size": "embedding_size"},
    {
        "token_embedding": "albert.embeddings.word_embeddings",
        "position_embedding": "albert.embeddings.position_embeddings",
        "segment_embedding": "albert.embeddings.token_type_embeddings",
        "embedding_norm": "albert.embeddings.LayerNorm",
        "embedding_projection": "albert.encoder.embedding_hidden_mapping_in",
        "blocks.*.attention.query_key_value": f"{_GROUP}.attention.query {_GROUP}.attention.key {_GROUP}.attention.value",
        "blocks.*.attention.output": f"{_GROUP}.attention.dense",
        "blocks.*.attention_norm": f"{_GROUP}.attention.LayerNorm",
        "blocks.*.feed_forward.0": f"{_GROUP}.ffn",
        "blocks.*.feed_forward.2": f"{_GROUP}.ffn_output",
        "blocks.*.feed_forward_norm": f"{_GROUP}.full_layer_layer_norm",
        "output_embedding": "predictions.decoder",
        "pooler.0": "albert.pooler",
        "head_transform.0": "predictions.dense",
        "head_transform.2": "predictions.LayerNorm",
        "head_bias": "predictions.bias",
        "next_sentence": "sop_classifier.classifier",
    },
    tied={"predictions.decoder.weight": "albert.embeddings.word_embeddings.weight", "predictions.decoder.bias": "predictions.bias"},
    fixed={"position_embedding_type": "absolute", "num_hidden_groups": 1, "inner_group_num": 1},
    prepare=merge_biases,
    restore=duplicate_biases,
    constants={"shared_layers": "all"},
    classes={"next_sentence": "AlbertForPreTraining", "head_bias": "AlbertForMaskedLM", None: "AlbertModel"},
    classifier=("AlbertForSequenceClassification", "classifier"),
)  # fmt: skip

ELECTRA = Layout(
    "encoder", "electra.", SETTINGS | {"embedding_size": "embedding_size"},
    _encoder("electra") | {
        "output_embedding": "generator_lm_head",
        "embedding_projection": "electra.embeddings_project",
        "head_transform.0": "generator_predictions.dense",
        "head_transform.2": "generator_predictions.LayerNorm",
        "head_bias": "generator_lm_head.bias",
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    fixed={"position_embedding_type": "absolute"},
    projects_if_narrow=True,
    classes={"head_bias": "ElectraForMaskedLM", None: "ElectraModel"},
)  # fmt: skip

ROFORMER = Layout(
    "encoder", "roformer.", SETTINGS | {"embedding_size": "embedding_size"},
    {ours: theirs for ours, theirs in _encoder("roformer").items() if ours != "position_embedding"} | {
        "output_embedding": "cls.predictions.decoder",
        "embedding_projection": "roformer.embeddings_project",
        "head_transform.0": "cls.predictions.transform.dense",
        "head_transform.2": "cls.predictions.transform.LayerNorm",
        "head_bias": "cls.predictions.bias",
    },
    tied={
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    fixed={"rotary_value": False},
    constants={"positions": "rotary"},
    prepare=rotate_halves,
    restore=rotate_neighbours,
    projects_if_narrow=True,
    classes={"head_bias": "RoFormerForMaskedLM", None: "RoFormerModel"},
)  # fmt: skip

_LAYER = "distilbert.transformer.layer.*"
DISTILBERT = Layout(
    "encoder", "distilbert.",
    {
        "num_layers": "n_layers", "hidden_size": "dim", "num_heads": "n_heads", "intermediate_size": "hidden_dim",
        "max_length": "max_position_embeddings", "dropout": "dropout attention_dropout", "activation": "activation",
        "tie_word_embeddings": "tie_word_embeddings",
    },
    {
        "token_embedding": "distilbert.embeddings.word_embeddings",
        "output_embedding": "vocab_projector",
        "position_embedding": "distilbert.embeddings.position_embeddings",
        "embedding_norm": "distilbert.embeddings.LayerNorm",
        "blocks.*.attention.query_key_value": f"{_LAYER}.attention.q_lin {_LAYER}.attention.k_lin {_LAYER}.attention.v_lin",
        "blocks.*.attention.output": f"{_LAYER}.attention.out_lin",
        "blocks.*.attention_norm": f"{_LAYER}.sa_layer_norm",
        "blocks.*.feed_forward.0": f"{_LAYER}.ffn.lin1",
        "blocks.*.feed_forward.2": f"{_LAYER}.ffn.lin2",
        "blocks.*.feed_forward_norm": f"{_LAYER}.output_layer_norm",
        "head_transform.0": "vocab_transform",
        "head_transform.2": "vocab_layer_norm",
        "head_bias": "vocab_projector.bias",
    },
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    constants={"type_vocab_size": 1},
    zero_weights=("segment_embedding.weight",),
    reads_segments=False,
)  # fmt: skip

LAYOUTS = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "albert": ALBERT, "electra": ELECTRA,
    "distilbert": DISTILBERT, "roformer": ROFORMER,
}  # fmt: skip
"""model_type in config.json -> its layout."""


def model_type(architecture: EncoderArchitecture) -> str:
    """Return the kind that ours is written as. A RoBERTa is a BERT with one segment type.

    Raise SesameError for an ALBERT without a projection of the embedding, which theirs always has.
    """
    if architecture.positions == "rotary":
        return "roformer"
    if architecture.shared_layers == "all":
        if not architecture.embedding_size:
            raise SesameError("architecture.embedding_size: null has no counterpart in transformers' albert, which always has a projection")
        return "albert"
    return "electra" if architecture.embedding_size else "bert"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
"""Templates of a text and a pair, and the inputs of the model."""
