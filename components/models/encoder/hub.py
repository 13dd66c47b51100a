"""How `transformers` lays out what is ours as an encoder."""

from components.models.common.layout import Layout


def _encoder(name: str) -> dict[str, str]:
    """The body that BERT and RoBERTa share."""
    layer = f"{name}.encoder.layer.*"
    return {
        "token_embedding": f"{name}.embeddings.word_embeddings",
        "position_embedding": f"{name}.embeddings.position_embeddings",
        "segment_embedding": f"{name}.embeddings.token_type_embeddings",
        "embedding_norm": f"{name}.embeddings.LayerNorm",
        "blocks.*.attention.query_key_value": f"{layer}.attention.self.query {layer}.attention.self.key {layer}.attention.self.value",
        "blocks.*.attention.output": f"{layer}.attention.output.dense",
        "blocks.*.attention_norm": f"{layer}.attention.output.LayerNorm",
        "blocks.*.feed_forward.0": f"{layer}.intermediate.dense",
        "blocks.*.feed_forward.2": f"{layer}.output.dense",
        "blocks.*.feed_forward_norm": f"{layer}.output.LayerNorm",
        "pooler.0": f"{name}.pooler.dense",
    }


ENCODER_SETTINGS = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size", "max_length": "max_position_embeddings", "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob attention_probs_dropout_prob", "activation": "hidden_act", "layer_norm_eps": "layer_norm_eps",
}  # fmt: skip

LAYOUTS = {
    "bert": Layout(
        "encoder", "bert.", ENCODER_SETTINGS,
        _encoder("bert") | {
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
    ),
    "roberta": Layout(
        "encoder", "roberta.", ENCODER_SETTINGS,
        _encoder("roberta") | {"head_transform.0": "lm_head.dense", "head_transform.2": "lm_head.layer_norm", "head_bias": "lm_head.bias"},
        tied={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
        fixed={"position_embedding_type": "absolute", "hidden_act": "gelu", "pad_token_id": 1},
        positions_aside=2,
    ),
}  # fmt: skip
"""model_type in config.json -> its layout."""

WRITTEN = "bert"
"""What ours is written as. A RoBERTa computes what a BERT of one segment type computes."""
CLASSES = {"next_sentence": "BertForPreTraining", "head_bias": "BertForMaskedLM", None: "BertModel"}
"""Part of ours -> the class that has it; the first whose part is there is written."""
LANGUAGE_MODEL = "AutoModelForMaskedLM"
READS_SEGMENTS = True
FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
"""A text, a pair, and what the model takes."""
