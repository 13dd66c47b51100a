"""How `transformers` lays out what is ours as a decoder."""

from components.models.common.layout import Layout
from components.models.decoder.config import DecoderArchitecture

LAYOUTS = {
    "gpt2": Layout(
        "decoder", "transformer.",
        {
            "num_layers": "n_layer", "hidden_size": "n_embd", "num_heads": "n_head", "intermediate_size": "n_inner",
            "max_length": "n_positions",
            "dropout": "resid_pdrop embd_pdrop attn_pdrop", "activation": "activation_function", "layer_norm_eps": "layer_norm_epsilon",
        },
        {
            "token_embedding": "transformer.wte",
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
        classes={None: "GPT2LMHeadModel"},
        classifier=("GPT2ForSequenceClassification", "score"),
        classifier_bias=None,
    ),
}  # fmt: skip
"""model_type in config.json -> its layout."""


def written(architecture: DecoderArchitecture) -> str:
    """What ours is written as."""
    return "gpt2"


FORM = ("[CLS] $A", "[CLS] $A [SEP] $B", ["input_ids", "attention_mask"])
"""A text, a pair, and what the model takes. A decoder goes on where the text ends, so nothing stands behind it."""
CLASSIFIER_FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["input_ids", "attention_mask"])
"""The same for a classifier, which reads the end of a text from the token behind it, as fine-tuning does."""
PADDING_SIDE = "left"
"""What is generated goes on where the text ends, and not behind padding."""
CONTINUES = True
"""What it writes is read on from a text, so that a blank at its beginning counts."""
