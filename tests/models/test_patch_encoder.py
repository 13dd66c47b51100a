"""The encoder of patches: transformers' Vision Transformer, its cost, a training on images, patches that don't fit."""

import json
import re
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ruamel.yaml import YAML
from transformers import ViTConfig, ViTModel

from components import objectives, params
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.models import store
from components.models.encoder.config import EncoderArchitecture
from components.models.patch_encoder.config import PatchEncoderArchitecture
from components.objectives.scoring import IGNORED
from components.text import encode, tokenizer
from tests.conftest import run_stage, tiny_params

SIZES = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48}
BLANK = 5


def build(tokens, **changes) -> torch.nn.Module:
    torch.manual_seed(0)
    settings = SIZES | {"max_length": 22, "patch_tokens": 5} | changes
    return store.build(PatchEncoderArchitecture(name="patch_encoder", **settings), tokens).eval()


@torch.no_grad()
def test_it_is_the_vision_transformer(tokens):
    """With one number for each colour, and 0 for all that is no pixel, it computes what transformers does with the image."""
    theirs = ViTModel(
        ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=4, patch_size=2, num_channels=1,
            layer_norm_eps=1e-6,
        ), add_pooling_layer=False,
    ).eval()  # fmt: skip
    weights, ours = {name: torch.randn_like(value) for name, value in theirs.state_dict().items()}, build(tokens, embedding_size=3)
    theirs.load_state_dict(weights)
    state = ours.state_dict()
    state["token_embedding.weight"] = torch.zeros(tokens.vocab_size, 3)
    state["token_embedding.weight"][BLANK + 1 :, 0] = torch.randn(tokens.vocab_size - BLANK - 1)
    values, projection = state["token_embedding.weight"][:, 0], torch.zeros(32, 5, 3)
    projection[:, 1:, 0] = weights["embeddings.patch_embeddings.projection.weight"].flatten(1)
    bias = weights["embeddings.patch_embeddings.projection.bias"]
    positions = weights["embeddings.position_embeddings"][0]
    positions[0] += weights["embeddings.cls_token"][0, 0] - bias
    state |= {"patch_projection.weight": projection.flatten(1), "patch_projection.bias": bias}
    state["position_embedding.weight"] = torch.cat([positions, torch.zeros(1, 32)])  # theirs reads no [SEP]
    for kind in ("weight", "bias"):
        state[f"final_norm.{kind}"] = weights[f"layernorm.{kind}"]
        for i in range(2):
            block, layer = f"blocks.{i}", f"layers.{i}"
            heads = [weights[f"{layer}.attention.{part}_proj.{kind}"] for part in "qkv"]
            state[f"{block}.attention.query_key_value.{kind}"] = torch.cat(heads)
            state[f"{block}.attention.output.{kind}"] = weights[f"{layer}.attention.o_proj.{kind}"]
            state[f"{block}.attention_norm.{kind}"] = weights[f"{layer}.layernorm_before.{kind}"]
            state[f"{block}.feed_forward.0.{kind}"] = weights[f"{layer}.mlp.fc1.{kind}"]
            state[f"{block}.feed_forward.2.{kind}"] = weights[f"{layer}.mlp.fc2.{kind}"]
            state[f"{block}.feed_forward_norm.{kind}"] = weights[f"{layer}.layernorm_after.{kind}"]
    ours.load_state_dict(state)
    image = torch.randint(BLANK + 1, tokens.vocab_size, (3, 4, 4))
    patches = image.unflatten(2, (2, 2)).unflatten(1, (2, 2)).transpose(2, 3).reshape(3, 4, 4)
    words = torch.cat([torch.full((3, 4, 1), BLANK), patches], 2).flatten(1)
    ids = torch.cat([torch.full((3, 1), tokenizer.CLS), words], 1)
    expected = theirs(values[image][:, None]).last_hidden_state
    torch.testing.assert_close(ours._of_patches(ids, torch.full((3,), 21))[-1], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.top(ids, torch.full((3,), 21))[:, 0], expected[:, 0], atol=1e-4, rtol=1e-4)


def test_it_costs_a_fraction_of_an_encoder_of_pixels(tokens):
    """49 patches and [CLS] in place of 196 pixels."""

    def flops(model: torch.nn.Module, length: int) -> int:
        with flop_counter() as counter:
            model.top(torch.full((1, length), BLANK), torch.tensor([length])).sum().backward()
        return counter.get_total_flops()

    pixels = store.build(EncoderArchitecture(name="encoder", **SIZES, max_length=198), tokens)
    assert flops(build(tokens, max_length=247), 247) < 0.35 * flops(pixels, 198)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 6, 7, 11, 12])
def test_patches_of_padding_are_not_read(tokens, length):
    """Also where a text ends with its patch."""
    model, ids = build(tokens), torch.randint(5, tokens.vocab_size, (1, 22))
    alone = model.layers(ids[:, :length], torch.tensor([length]))
    padded = model.layers(ids.clone().index_fill_(1, torch.arange(length, 22), tokenizer.PAD), torch.tensor([length]))
    for one, other in zip(alone, padded, strict=True):
        torch.testing.assert_close(one, other[:, :length])


def of_images(path: str = "a.png", **changes) -> dict:
    """Params of a model of patches, its images, and a task over some."""
    source = {"kind": "images", "source": {"kind": "files", "paths": [path]}, "side": 6, "patch": 2, **changes}
    raw = tiny_params(studies={})
    raw["corpora"]["images"] = raw["corpora"]["base"] | {
        "parts": [{"source": source, "reader": {"format": "parquet", "column": "pixels"}}]
    }
    raw["tokenizers"]["images"] = {
        "kind": "characters", "corpus": "images", "vocab_size": 300, "byte_fallback": False, "character_coverage": 1.0,
    }  # fmt: skip
    raw["encodings"]["images"] = {"corpus": "images", "tokenizer": "images"}
    architecture = {"name": "patch_encoder", **SIZES, "max_length": 47, "patch_tokens": 5}
    objective = {"name": "mlm", "next_sentence": False}
    raw["models"]["bert"] |= {"encoding": "images", "architecture": architecture, "objective": objective, "prompts": []}
    raw["tasks"]["digits"] = raw["tasks"]["same"] | {
        "train": {"source": dict(source)}, "table": {"format": "parquet", "text_a": "pixels", "label": "folder"},
    }  # fmt: skip
    raw["finetune"] |= {"models": ["bert"], "tasks": ["digits"]}
    raw["finetune"]["recipes"]["bert"]["max_length"] = 47
    return raw


def test_images_are_read_patch_by_patch(project):
    """Through all stages: what is hidden are whole patches."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile("raw/images.zip", "w") as archive:
        for number in range(80):
            buffer = BytesIO()
            Image.fromarray(rng.integers(0, 256, (6, 6), np.uint8)).save(buffer, "PNG")
            archive.writestr(f"{number % 2}/{number}.png", buffer.getvalue())
    raw = of_images("raw/images.zip", members=["*/*.png"], levels=4)
    raw["corpora"]["images"] |= {"cleaning": {"near_duplicates": None}, "splits": {"valid": 0.2, "test": 0}}
    raw["models"]["bert"]["objective"] |= {"whole_word": True, "mlm_probability": 0.5}
    YAML().dump(raw, Path("params.yaml"))
    stages = {"text.corpora": "images", "text.tokenizer": "images", "text.encode": "images", "pretrain": "bert"}
    for module, name in stages.items():
        done = run_stage(f"components.{module}", name)
        assert done.returncode == 0, done.stderr
    assert json.loads(Path("data/metrics/pretrain/bert.json").read_text())["steps"] == 12
    folder, config = Path("data/encoded/images"), params.check(raw).models["bert"].objective
    batches = objectives.build(config, tokenizer.load(folder)).batches(encode.load(folder, "train"), 4, 47, seed=1)
    batch = batches[0].tensors
    assert batch["lengths"].tolist() == [1 + 9 * 5 + 1] * 4, "a patch is a blank and its pixels"
    targets = torch.zeros(4, 46, dtype=torch.bool).scatter(1, batch["positions"], batch["labels"] != IGNORED)
    hidden = targets[:, 1:].unflatten(1, (9, 5))
    assert (hidden.all(2) == hidden.any(2)).all() and hidden.any(2).sum(1).tolist() == [4] * 4


PLACE, IMAGES = "models.bert.architecture", "corpora.images.parts[0].source"
RECIPE, TASK = "finetune.recipes.bert", "tasks.digits.train.source"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "models bert architecture patch_tokens", 4,
            f"{PLACE}: patch_tokens 4 is not the size of a patch of {IMAGES}; take patch_tokens: 5",
        ),
        (
            "corpora images parts 0 source patch", None,
            f"{PLACE}: patch_tokens 5 is not the size of a patch of {IMAGES}; give the source a patch, e.g. 2, of 5 tokens",
        ),
        ("models bert architecture max_length", 46, f"{PLACE}: max_length 46 cuts the images of {IMAGES}, which have 47 tokens; take 47"),
        ("models bert objective next_sentence", True, "models.bert.objective reads pairs, and architecture patch_encoder one image"),
        ("models bert objective inputs", "full_sentences", "models.bert.objective.inputs: full_sentences puts several images into a row"),
        ("tokenizers images byte_fallback", True, "models.bert: architecture patch_encoder needs one token for each pixel"),
        ("tokenizers images character_coverage", 0.9995, "give tokenizers.images kind: characters, byte_fallback: false and character_"),
        ("tasks digits train source patch", 3, f"{RECIPE}: patch_tokens 5 is not the size of a patch of {TASK}; take patch_tokens: 10"),
        ("finetune recipes bert max_length", 32, f"{RECIPE}: max_length 32 cuts the images of {TASK}, which have 47 tokens; take 47"),
        ("tasks digits table text_b", "other", f"{RECIPE}: digits has pairs, and bert reads one image (architecture patch_encoder)"),
    ],
)  # fmt: skip
def test_what_would_mix_two_patches_is_refused(path, value, said):
    """A pixel of three bytes, a cut image, a task with other patches: all that followed had pixels of two patches, without a word."""
    raw = of_images()
    params.check(raw)
    *keys, last = path.split()
    block = raw
    for key in keys:
        block = block[int(key) if key.isdigit() else key]
    block[last] = value
    with pytest.raises(SesameError, match=re.escape(said)):
        params.check(raw)


def test_patches_of_a_mix_are_checked_too():
    raw = of_images()
    raw["mixes"]["more"] = {"corpus": "images", "tasks": ["digits"]}
    raw["encodings"]["images"]["corpus"] = "more"
    params.check(raw)
    raw["tasks"]["digits"]["train"] = {"source": raw["tasks"]["digits"]["train"]["source"] | {"patch": 3}}
    with pytest.raises(SesameError, match=rf"{PLACE}: patch_tokens 5 is not the size of a patch of {TASK}"):
        params.check(raw)
