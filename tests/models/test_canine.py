"""CANINE: what transformers' class computes from the same weights, hashes, characters alone, a whole training."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from lightning import Fabric
from ruamel.yaml import YAML
from safetensors.torch import load_file

from components import objectives, params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive.checkpoints import __main__ as checkpoint_stage
from components.derive.checkpoints import export, parity
from components.finetune import kinds, loop, methods
from components.models import store
from components.models.canine.config import CanineArchitecture
from components.models.canine.model import PRIMES, code_points
from components.objectives.electra.config import ReplacedTokens
from components.tasks import Example
from components.text import tokenizer
from components.text.encode import __main__ as encode_stage
from components.text.tokenizer import Tokenizer
from components.text.tokenizer import __main__ as tokenizer_stage
from components.text.tokenizer import code_points as points
from tests.conftest import run_stage, tiny_params

SIZES = {"num_layers": 3, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "max_length": 64, "num_buckets": 100}


class Ascii(Tokenizer):
    """Characters from "!" on, without a file."""

    pieces = [b""] * 5 + [chr(33 + i).encode() for i in range(90)]
    vocab_size = len(pieces)

    def encode(self, texts, threads=1):
        return [[ord(character) - 33 + 5 for character in text] for text in texts]

    encode_offsets = decode = save = NotImplemented


def same_weights(theirs: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """Of transformers' CanineModel as ours has them."""
    ours = {}

    def take(own: str, other: str) -> None:
        ours.update({f"{own}.{kind}": theirs[f"{other}.{kind}"] for kind in ("weight", "bias")})

    def layer(own: str, other: str) -> None:
        for kind in ("weight", "bias"):
            parts = [theirs[f"{other}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            ours[f"{own}.attention.query_key_value.{kind}"] = torch.cat(parts)
        take(f"{own}.attention.output", f"{other}.attention.output.dense")
        take(f"{own}.attention_norm", f"{other}.attention.output.LayerNorm")
        take(f"{own}.feed_forward.0", f"{other}.intermediate.dense")
        take(f"{own}.feed_forward.2", f"{other}.output.dense")
        take(f"{own}.feed_forward_norm", f"{other}.output.LayerNorm")

    layer("local", "initial_char_encoder.layer.0")
    layer("last", "final_char_encoder.layer.0")
    for i in range(layers):
        layer(f"blocks.{i}", f"encoder.layer.{i}")
    for i in range(8):
        ours[f"token_embedding.tables.{i}.weight"] = theirs[f"char_embeddings.HashBucketCodepointEmbedder_{i}.weight"]
    for own, other in (
        ("embedding_norm", "char_embeddings.LayerNorm"), ("down", "chars_to_molecules.conv"), ("down_norm", "chars_to_molecules.LayerNorm"),
        ("up", "projection.conv"), ("up_norm", "projection.LayerNorm"),
    ):  # fmt: skip
        take(own, other)
    take("pooler.0", "pooler.dense")
    ours["segment_embedding.weight"] = theirs["char_embeddings.token_type_embeddings.weight"]
    ours["position_embedding.weight"] = theirs["char_embeddings.char_position_embeddings.weight"][:64]
    return ours


@torch.no_grad()
@pytest.mark.parametrize("local_width", [8, 128])
def test_characters_come_out_as_transformers_makes_them(local_width):
    """Of rows of unequal length; and a row alone is what it is among longer ones."""
    torch.manual_seed(0)
    config = transformers.CanineConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64, type_vocab_size=2,
        num_hash_buckets=100, local_transformer_stride=local_width,
    )  # fmt: skip
    theirs = transformers.CanineModel(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    tokens = Ascii()
    ours = store.build(CanineArchitecture(name="canine", **SIZES, local_width=local_width), tokens).eval()
    missing, unknown = ours.load_state_dict(same_weights(theirs.state_dict(), 3), strict=False)
    assert not unknown and {name.partition(".")[0] for name in missing} == {
        "head_transform", "head_bias", "next_sentence", "output_embedding",
    }  # fmt: skip
    lengths, length = torch.tensor([22, 17, 12]), 22
    real = torch.arange(length) < lengths[:, None]
    ids = torch.randint(5, tokens.vocab_size, (3, length)) * real
    ids[:, 0] = 2
    segments = (torch.arange(length) > 6).long() * real
    room = (0, 32 - length)  # theirs looks at the padding behind a text: as much as ours adds
    whole = theirs(
        torch.nn.functional.pad(code_points(tokens)[ids], room), attention_mask=torch.nn.functional.pad(real.long(), room),
        token_type_ids=torch.nn.functional.pad(segments, room),
    )  # fmt: skip
    expected = whole.last_hidden_state[:, :length]
    states = ours.layers(ids, lengths, segments)
    assert [state.shape for state in states] == [(3, length, 32)] * 4
    real[:, 0] = False  # ours has there what is pooled
    torch.testing.assert_close(states[-1][real], expected[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.pool(states[-1], lengths), whole.pooler_output, atol=1e-5, rtol=0)
    for state, alone in zip(states, ours.layers(ids[2:, :12], lengths[2:], segments[2:, :12]), strict=True):
        torch.testing.assert_close(alone[0], state[2, :12], atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("rate", [3, 4])
def test_a_text_does_not_depend_on_how_wide_its_batch_is(rate):
    """Also where it fills a block, so that the convolution upwards reads the block of padding behind it."""
    torch.manual_seed(0)
    sizes = SIZES | {"local_width": 8, "downsampling_rate": rate}
    model = store.build(CanineArchitecture(name="canine", **sizes), Ascii()).eval()
    for length in range(1, 34):
        ids, lengths = torch.randint(5, Ascii.vocab_size, (1, length)), torch.tensor([length])
        alone = model.layers(ids, lengths)
        for width in (length + 1, length + 5, 64):
            padded = model.layers(torch.nn.functional.pad(ids, (0, width - length)), lengths)
            for layer, (one, other) in enumerate(zip(alone, padded, strict=True)):
                torch.testing.assert_close(other[:, :length], one, rtol=0, atol=1e-5, msg=f"{length} in {width}, layer {layer}")


def test_a_characters_vector_is_of_its_hashes():
    tokens = Ascii()
    model = store.build(CanineArchitecture(name="canine", **SIZES), tokens)
    assert code_points(tokens)[:6].tolist() == [0, 0xFFFD, 0xE000, 0xE001, 0xE003, 33]
    [[ids]] = [tokens.encode(["A"])]
    expected = [table.weight[66 * prime % 100] for table, prime in zip(model.token_embedding.tables, PRIMES, strict=False)]
    assert torch.equal(model.token_embedding(torch.tensor(ids))[0], torch.cat(expected)), "(65 + 1) times the prime"


def test_pieces_of_several_characters_are_refused(tokens):
    with pytest.raises(SesameError, match="architecture canine reads characters, and its tokenizer has the piece '.+'; take kind: char"):
        store.build(CanineArchitecture(name="canine", **SIZES), tokens)
    model = store.build(CanineArchitecture(name="canine", **SIZES), Ascii())
    with pytest.raises(SesameError, match="embeddings of a canine are hashes"):
        objectives.build(ReplacedTokens(name="electra"), Ascii()).networks(model)
    gated = CanineArchitecture(name="canine", **SIZES, activation="geglu")
    assert store.build(gated, Ascii()).top(torch.tensor([[2, 9, 3]]), torch.tensor([3])).shape == (1, 3, 32)
    raw = tiny_params(studies={})
    raw["models"]["bert"]["architecture"] = {"name": "canine", **SIZES}
    with pytest.raises(SesameError, match="models.bert: architecture canine reads characters, and tokenizers.tiny is of kind bpe; take"):
        params.check(raw)
    with pytest.raises(ValueError, match="hidden_size 32 is not divisible by num_hashes 5"):
        CanineArchitecture(name="canine", **SIZES, num_hashes=5)


def test_it_is_trained_on_characters_and_tuned(project):
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "kind": "characters", "vocab_size": 300, "lowercase": True}
    raw["models"]["bert"]["architecture"] = {"name": "canine", **SIZES, "local_width": 16}
    raw["models"]["bert"]["objective"] = {"name": "mlm", "whole_word": True}
    raw["finetune"] |= {"models": ["bert"], "seeds": [1], "inits": ["pretrained"]}
    raw["finetune"]["recipes"]["bert"]["max_length"] = 64
    raw["studies"] = {}
    YAML().dump(raw, project / "params.yaml")
    tokenizer_stage.train(params.load(), "tiny", Run(None))
    encode_stage.encode(params.load(), "tiny", Run(None))
    for module, name in (("components.pretrain", "bert"), ("components.finetune", "bert-same")):
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/bert.json").read_text())
    assert 0 < metrics["bits_per_byte"] < 9 and 0 <= metrics["nsp_accuracy"] <= 1
    model, tokens = store.load(Path("data/models/bert"))
    assert tokens.vocab_size < 300 and isinstance(tokens, tokenizer.Tokenizer) and model.token_embedding.num_embeddings == tokens.vocab_size


THEIRS = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 192,
    "num_hash_buckets": 200, "local_transformer_stride": 32,
}  # fmt: skip


def given(**settings) -> Path:
    """A checkpoint of `transformers` with random weights, as its class saves it."""
    torch.manual_seed(0)
    model = transformers.CanineModel(transformers.CanineConfig(**THEIRS | settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.1)
    model.save_pretrained("given")
    return Path("given")


def bring(folder: Path) -> dict:
    block = {"family": "canine", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    raw = tiny_params(checkpoints={"brought": block})
    return checkpoint_stage.bring(params.check(raw), "brought", Run(None))


@pytest.mark.long
@torch.no_grad()
def test_a_checkpoint_comes_in_and_goes_out(project):
    """Without a file of a tokenizer: characters are code points, in no order of ours."""
    folder = given()
    assert bring(folder)["max_abs_difference"] < 1e-4
    model, tokens = store.load(Path("data/models/brought"))
    text, odd = "Ёлка: 東京\t👍🏽", "\ue000a\0"
    assert tokens.encode([text, odd]) == [[ord(character) for character in text], [0xFFFD, ord("a"), 0xFFFD]], "specials are in no text"
    assert tokens.decode([0xE000, *tokens.encode([text])[0], 0xE001, 0]) == text
    assert (tokens.prefix, tokens.middle, tokens.suffix) == ([0xE000], [0xE001], [0xE001]) and model.max_length == 192
    assert model.absent == ["head_bias", "head_transform", "next_sentence", "output_embedding"] and not len(model.head_bias)
    rows = [[0xE000, *ids, 0xE001] for ids in tokens.encode(["a dog runs over the wide green field", "Straße"])]
    lengths = torch.tensor(list(map(len, rows)))
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    real, segments = torch.arange(ids.shape[1]) < lengths[:, None], (torch.arange(ids.shape[1]) > 3).long().repeat(2, 1) * 5
    padded = [torch.nn.functional.pad(part, (0, 12)) for part in (ids, real.long(), segments)]
    theirs = transformers.CanineModel.from_pretrained(folder).eval()(*padded)
    top = model.eval().top(ids, lengths, segments)
    torch.testing.assert_close(model.pool(top, lengths), theirs.pooler_output, atol=1e-5, rtol=0)
    real[:, 0] = False
    torch.testing.assert_close(top[real], theirs.last_hidden_state[:, : ids.shape[1]][real], atol=1e-5, rtol=0)
    written, difference = export.export("brought")
    before = load_file(folder / "model.safetensors")
    after = {name.removeprefix("canine."): value for name, value in load_file(written / "model.safetensors").items()}
    assert difference < 1e-4 and before.keys() == after.keys()
    for name, value in before.items():
        rows_read = 192 if "char_position" in name else None
        assert after[name].shape == value.shape and torch.equal(after[name][:rows_read], value[:rows_read]), name


@pytest.fixture
def few_characters(monkeypatch):
    """Those of two planes, which the check's texts are of: a table of all 456,704 takes seconds each time."""
    monkeypatch.setattr(points, "EMPTY", range(0x20000, points.VOCAB_SIZE))


@pytest.mark.parametrize("settings", [
    {"max_position_embeddings": 59}, {"max_position_embeddings": 60},
    {"downsampling_rate": 2, "upsampling_kernel_size": 2, "max_position_embeddings": 38},
    {"downsampling_rate": 16, "upsampling_kernel_size": 16},
])  # fmt: skip
def test_texts_that_fill_a_block_are_no_other_model(project, few_characters, settings):
    """With blocks of 16, and places for texts of 47 and 48 characters: theirs reads their ends by the padding behind."""
    assert bring(given(local_transformer_stride=16, **settings))["max_abs_difference"] < 1e-5


def test_a_difference_is_a_number(project, few_characters, monkeypatch):
    """In float64 the masks of `transformers`' class are NaN."""
    monkeypatch.setattr(parity, "TOLERANCE", 1e-9)
    with pytest.raises(SesameError, match=r"transformers computes other outputs, by up to \d\S*e-\d+ \(1e-09 is allowed\)"):
        bring(given())


@pytest.mark.parametrize(("settings", "said"), [
    ({"hidden_act": "relu"}, r"config\.json: hidden_act: 'relu' is not supported \(there are: gelu, "),
    ({"upsampling_kernel_size": 3}, "config.json: upsampling_kernel_size: 3 is not supported where downsampling_rate is 4"),
    ({"num_hash_functions": 32}, "config.json: num_hash_functions: 32 is not supported, at most 16"),
    ({"num_hash_functions": 5}, "config.json: hidden_size 32 is not divisible by num_hashes 5|config.json: .*num_hashes 5"),
    ({"max_position_embeddings": 300}, "char_position_embeddings.weight is \\(200, 32\\) in the weights, but \\(300, 32\\) by config.json"),
])  # fmt: skip
def test_what_is_not_built_is_one_line(project, settings, said):
    folder = given()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(SesameError, match=said) as caught:
        bring(folder)
    assert "\n" not in str(caught.value) and not list(Path("data/models").iterdir())


def test_our_own_characters_are_not_written_as_code_points(project):
    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "kind": "characters", "vocab_size": 300, "lowercase": True}
    tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    tokens, block = tokenizer.load(Path("data/tokenizers/tiny")), CanineArchitecture(name="canine", **SIZES)
    store.save(Path("data/models/ours"), store.build(block, tokens).state_dict(), block, tokens)
    with pytest.raises(SesameError, match="ours reads characters of one form and case, with ids of its own .* the ids would differ"):
        export.export("ours")
    assert not Path("data/export").exists()


def test_weights_that_cls_does_not_depend_on_are_not_counted_as_trained():
    """[CLS] comes from the deep layers: the last one and the convolution before it get a gradient of zero from a task on texts."""
    recipe = params.Recipe(method="bitfit", learning_rate=0.01, epochs=1, batch_size=4, max_length=20, weight_decay=0.0)
    task = params.check(tiny_params()).tasks["same"]
    tokens, kind = Ascii(), kinds.build(task, recipe)
    model = store.build(CanineArchitecture(name="canine", **SIZES), tokens)
    module, fabric = methods.build(model, tokens, recipe, kind, pair=False), Fabric(accelerator="cpu")
    before = {name: value.clone() for name, value in module.named_parameters()}
    rows = [Example(str(i), "dog" * (1 + i), None, task.labels[i % 2]) for i in range(8)]
    fitted = loop.fit(fabric, module, kind, module.inputs(kind.encode(rows, tokens), fabric), recipe, 1, lambda *_: None)
    moved = {name for name, value in module.named_parameters() if not torch.equal(value, before[name])}
    assert fitted.trained_parameters == sum(before[name].numel() for name in moved)
    assert "model.last.attention.output.bias" in before and not any("last." in name for name in moved)
