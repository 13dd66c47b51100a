"""How `transformers` lays out what is ours as an encoder."""

from components.core.errors import SesameError
from components.models.common.layout import BERT_SETTINGS, Layout, bert_body
from components.models.encoder.config import EncoderArchitecture


def _encoder(name: str) -> dict[str, str]:
    """The body that BERT, RoBERTa and ELECTRA share."""
    attention = f"{name}.encoder.layer.*.attention.self"
    return bert_body(name) | {
        "position_embedding": f"{name}.embeddings.position_embeddings",
        "blocks.*.attention.query_key_value": f"{attention}.query {attention}.key {attention}.value",
    }


BERT = Layout(
    "encoder", "bert.", BERT_SETTINGS,
    _encoder("bert") | {
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
    fixed={"position_embedding_type": "absolute"},
    classes={"next_sentence": "BertForPreTraining", "head_bias": "BertForMaskedLM", None: "BertModel"},
    classifier=("BertForSequenceClassification", "classifier"),
)  # fmt: skip

ROBERTA = Layout(
    "encoder", "roberta.", BERT_SETTINGS,
    _encoder("roberta") | {
        "pooler.0": "roberta.pooler.dense",
        "head_transform.0": "lm_head.dense",
        "head_transform.2": "lm_head.layer_norm",
        "head_bias": "lm_head.bias",
    },
    tied={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    fixed={"position_embedding_type": "absolute", "hidden_act": "gelu", "pad_token_id": 1},
    positions_aside=2,
)  # fmt: skip

_GROUP = "albert.encoder.albert_layer_groups.*.albert_layers.0"
ALBERT = Layout(
    "encoder", "albert.", BERT_SETTINGS | {"embedding_size": "embedding_size"},
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
        "pooler.0": "albert.pooler",
        "head_transform.0": "predictions.dense",
        "head_transform.2": "predictions.LayerNorm",
        "head_bias": "predictions.bias",
        "next_sentence": "sop_classifier.classifier",
    },
    tied={"predictions.decoder.weight": "albert.embeddings.word_embeddings.weight", "predictions.decoder.bias": "predictions.bias"},
    fixed={"position_embedding_type": "absolute", "num_hidden_groups": 1, "inner_group_num": 1},
    own={"shared_layers": "all"},
    classes={"next_sentence": "AlbertForPreTraining", "head_bias": "AlbertForMaskedLM", None: "AlbertModel"},
    classifier=("AlbertForSequenceClassification", "classifier"),
)  # fmt: skip

ELECTRA = Layout(
    "encoder", "electra.", BERT_SETTINGS | {"embedding_size": "embedding_size"},
    _encoder("electra") | {
        "embedding_projection": "electra.embeddings_project",
        "head_transform.0": "generator_predictions.dense",
        "head_transform.2": "generator_predictions.LayerNorm",
        "head_bias": "generator_lm_head.bias",
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    fixed={"position_embedding_type": "absolute"},
    narrow_only=True,
    classes={"head_bias": "ElectraForMaskedLM", None: "ElectraModel"},
)  # fmt: skip

_LAYER = "distilbert.transformer.layer.*"
DISTILBERT = Layout(
    "encoder", "distilbert.",
    {
        "num_layers": "n_layers", "hidden_size": "dim", "num_heads": "n_heads", "intermediate_size": "hidden_dim",
        "max_length": "max_position_embeddings", "dropout": "dropout attention_dropout", "activation": "activation",
    },
    {
        "token_embedding": "distilbert.embeddings.word_embeddings",
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
    own={"type_vocab_size": 1},
    absent=("segment_embedding.weight",),
    reads_segments=False,
)  # fmt: skip

LAYOUTS = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "albert": ALBERT, "electra": ELECTRA,
    "distilbert": DISTILBERT,
}  # fmt: skip
"""model_type in config.json -> its layout."""


def written(architecture: EncoderArchitecture) -> str:
    """What ours is written as. A RoBERTa computes what a BERT of one segment type computes. Raises SesameError for an ALBERT of theirs
    that would lack its matrix behind the embedding."""
    if architecture.shared_layers == "all":
        if not architecture.embedding_size:
            raise SesameError(
                "architecture.embedding_size: null has no counterpart in transformers' albert, which has a matrix there always"
            )
        return "albert"
    return "electra" if architecture.embedding_size else "bert"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
"""A text, a pair, and what the model takes."""
