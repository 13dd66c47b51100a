"""A step of pre-training on a device that is not the CPU, without one (`tests.watched` says how)."""

import pytest
import torch
from ruamel.yaml import YAML

from components import objectives, optimizers, params
from components.core.tracking import Run
from components.models import store
from components.text import encode, tokenizer
from components.text.encode import __main__ as encode_stage
from components.text.tokenizer import __main__ as tokenizer_stage
from components.text.tokenizer import sentinels
from tests.conftest import tiny_params
from tests.watched import Watched

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
RECURRENT = {"num_layers": 1, "hidden_size": 16, "max_length": 32}
ENCODER, DECODER = {"name": "encoder", **SIZES}, {"name": "decoder", **SIZES}
BOTH = {"name": "encoder_decoder", **SIZES}
LONG = {"name": "long_encoder", **SIZES}
NEW = {"positions": "rotary", "norm": "rms_norm", "activation": "swiglu", "tie_word_embeddings": False}
PAIRS = {
    "bert": (ENCODER, {"name": "mlm"}),
    "spanbert": (ENCODER, {"name": "mlm", "next_sentence": False, "span_probability": 0.2, "span_boundary": True}),
    "albert": (
        ENCODER | {"shared_layers": "all", "embedding_size": 8},
        {"name": "mlm", "next_sentence": False, "sentence_order": True},
    ),
    "electra": (ENCODER, {"name": "electra", "generator_size": 0.5}),
    "gpt": (DECODER, {"name": "clm"}),
    "gpt, packed": (DECODER, {"name": "clm", "isolate_documents": False}),
    "gpt, relative": (DECODER | {"positions": "relative"}, {"name": "clm"}),
    "gpt, alibi": (DECODER | {"positions": "alibi"}, {"name": "clm"}),
    "gpt, new parts": (DECODER | NEW, {"name": "clm"}),
    "gpt-bert": (DECODER, {"name": "gpt_bert"}),
    "deberta": ({"name": "deberta", **SIZES}, {"name": "mlm", "next_sentence": False}),
    "xlnet": ({"name": "xlnet", **SIZES}, {"name": "permutation"}),
    "canine": (
        {"name": "canine", **SIZES, "local_width": 8, "downsampling_rate": 2},
        {"name": "subwords", "subword_vocab_size": 120},
    ),
    "longformer": (LONG | {"attention": "windows", "window": 4}, {"name": "mlm"}),
    "reformer": (LONG | {"attention": "hashes", "chunk": 8}, {"name": "mlm"}),
    "linear": (LONG | {"attention": "linear", "positions": "rotary"}, {"name": "mlm"}),
    "vit": (
        {"name": "patch_encoder", **SIZES, "patch_tokens": 5},
        {"name": "mlm", "next_sentence": False, "whole_word": True},
    ),
    "t5": (BOTH, {"name": "denoising"}),
    "ulmfit": ({"name": "recurrent", **RECURRENT}, {"name": "bptt"}),
    "quick-thoughts": ({"name": "recurrent", **RECURRENT}, {"name": "quick_thoughts"}),
    "skip-thoughts": ({"name": "recurrent", **RECURRENT}, {"name": "skip_thoughts"}),
    "elmo": (
        {
            "name": "bilm",
            "hidden_size": 16,
            "projection_size": 8,
            "char_embedding_size": 4,
            "char_filters": [[1, 4], [3, 8]],
        },
        {"name": "bilm", "window": 8},
    ),
    "bart": (BOTH, {"name": "denoising", "noise": {"kind": "whole", "infilled": 0.3, "permute_sentences": True}}),
    "prefix_lm": ({"name": "prefix_decoder", **SIZES}, {"name": "denoising"}),
    "gru": ({"name": "recurrent_encoder_decoder", **RECURRENT}, {"name": "denoising"}),
}


WAITS = {"elmo": "only the device knows how many different tokens a batch has (aten._unique2)"}
"""Pairs that wait in a step, and for what."""


@pytest.mark.parametrize("name", PAIRS)
def test_a_step_of_training_stays_on_the_device(name, project):
    """Losses and gradients are computed on it alone, in 32 bits, and nothing is read from it."""
    architecture, objective = PAIRS[name]
    raw = tiny_params()
    raw["models"] = {
        "gpt": {**raw["models"]["gpt"], "architecture": architecture, "objective": objective, "prompts": []}
    }
    if name == "canine":
        raw["tokenizers"]["tiny"]["kind"] = "characters"
    elif objective["name"] == "denoising":
        raw["tokenizers"]["tiny"]["sentinels"] = 8
    raw |= {"finetune": raw["finetune"] | {"models": [], "recipes": {}}, "studies": {}}
    checked = params.check(raw)
    if name == "canine":
        YAML().dump(raw, project / "params.yaml")
        tokenizer_stage.train(checked, "tiny", Run(None))
        encode_stage.encode(checked, "tiny", Run(None))
    elif objective["name"] == "denoising":
        sentinels.add(project / "data/encoded/tiny", 8)
    tokens, text = tokenizer.load(project / "data/encoded/tiny"), encode.load(project / "data/encoded/tiny", "train")
    config = checked.models["gpt"]
    built, model = objectives.build(config.objective, tokens), store.build(config.architecture, tokens)
    networks = torch.nn.ModuleDict(built.networks(model)).to("meta")
    model.to("meta").train()
    batch = built.batches(text, 8, 32, seed=1)[0]
    tensors = {key: value.to("meta") for key, value in batch.tensors.items()}
    with Watched() as watched:
        if name in WAITS:
            with pytest.raises(NotImplementedError, match="_unique2"):
                built.losses(model, tensors, None)
            return
        losses, _ = built.losses(model, tensors, None)
        sum(term / max(1.0, batch.counts[key]) for key, (term, _) in losses.items()).backward()
    assert not watched.noted
    gradients = [
        parameter.grad for parameter in (*model.parameters(), *networks.parameters()) if parameter.grad is not None
    ]
    assert gradients and all(gradient.is_meta for gradient in gradients)


@pytest.mark.parametrize("wrong", [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: x if x.sum() > 0 else -x])
def test_what_waits_for_a_device_is_an_error_there(wrong):
    with pytest.raises((RuntimeError, NotImplementedError)):
        wrong(torch.zeros(3, device="meta"))


def test_what_is_on_the_wrong_device_is_noted():
    x = torch.zeros(3, device="meta")
    with Watched() as watched:
        x.add(1.0)
        x.index_select(0, torch.zeros(2, dtype=torch.long))
        x.double()
    assert len(watched.noted) == 2 and any("float64" in note for note in watched.noted)


def test_an_update_by_muon_stays_on_the_device(project):
    """Of the matrices of layers, which are Muon's own part: the fused AdamW of the other weights is torch's, and not built for `meta`."""
    tokens = tokenizer.load(project / "data/encoded/tiny")
    raw = tiny_params(studies={})
    raw["models"]["gpt"]["optimizer"] |= {"name": "muon"}
    config = params.check(raw).models["gpt"]
    model = store.build(config.architecture, tokens).to("meta")
    optimizer = optimizers.build(config.optimizer, model, model.stacked(), lambda _: 0)
    matrices = [weight for layer in model.stacked() for weight in layer.parameters() if weight.ndim == 2]
    for weight in matrices:
        weight.grad = torch.empty_like(weight)
    with Watched() as watched:
        torch.nn.utils.clip_grad_norm_(matrices, 1.0)
        optimizer.found_inf = torch.zeros((), device="meta")
        optimizer.step()
    assert matrices and not watched.noted
