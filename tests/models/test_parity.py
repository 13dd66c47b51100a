"""BERT, GPT-2 and Llama give what `transformers` gives from the same weights; ELMo leaks nothing."""

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertConfig, BertForPreTraining, GPT2Config, GPT2LMHeadModel
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from components import params
from components.core.errors import SesameError
from components.models import store
from components.models.bilm.config import BiLMArchitecture
from components.models.common.dropout import Dropout, dropout
from components.models.common.positions import bucket, slopes
from components.models.common.transformer import attention
from components.models.deberta.config import DebertaArchitecture
from components.models.decoder.config import DecoderArchitecture
from components.models.encoder.config import EncoderArchitecture
from tests.conftest import tiny_params

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 24}


@pytest.fixture
def ids(tokens):
    torch.manual_seed(0)
    return torch.randint(5, tokens.vocab_size, (3, 20)), torch.tensor([20, 13, 7])


def test_bert_equals_transformers(tokens, ids):
    config = BertConfig(
        vocab_size=tokens.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24, hidden_act="gelu", layer_norm_eps=1e-12,
    )  # fmt: skip
    theirs = BertForPreTraining(config).eval()
    ours = store.build(EncoderArchitecture(name="encoder", **SIZES), tokens).eval()
    source = theirs.state_dict()

    def qkv(i, kind):
        return torch.cat([source[f"bert.encoder.layer.{i}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")])

    state = {
        "token_embedding.weight": source["bert.embeddings.word_embeddings.weight"],
        "position_embedding.weight": source["bert.embeddings.position_embeddings.weight"],
        "segment_embedding.weight": source["bert.embeddings.token_type_embeddings.weight"],
        "head_bias": source["cls.predictions.bias"],
    }
    for kind in ("weight", "bias"):
        state[f"embedding_norm.{kind}"] = source[f"bert.embeddings.LayerNorm.{kind}"]
        state[f"pooler.0.{kind}"] = source[f"bert.pooler.dense.{kind}"]
        state[f"head_transform.0.{kind}"] = source[f"cls.predictions.transform.dense.{kind}"]
        state[f"head_transform.2.{kind}"] = source[f"cls.predictions.transform.LayerNorm.{kind}"]
        state[f"next_sentence.{kind}"] = source[f"cls.seq_relationship.{kind}"]
        for i in range(2):
            layer = f"bert.encoder.layer.{i}"
            state[f"blocks.{i}.attention.query_key_value.{kind}"] = qkv(i, kind)
            state[f"blocks.{i}.attention.output.{kind}"] = source[f"{layer}.attention.output.dense.{kind}"]
            state[f"blocks.{i}.attention_norm.{kind}"] = source[f"{layer}.attention.output.LayerNorm.{kind}"]
            state[f"blocks.{i}.feed_forward.0.{kind}"] = source[f"{layer}.intermediate.dense.{kind}"]
            state[f"blocks.{i}.feed_forward.2.{kind}"] = source[f"{layer}.output.dense.{kind}"]
            state[f"blocks.{i}.feed_forward_norm.{kind}"] = source[f"{layer}.output.LayerNorm.{kind}"]
    ours.load_state_dict(state)
    batch, lengths = ids
    segments = (torch.arange(20) > 9).long().expand_as(batch)
    mask = (torch.arange(20) < lengths[:, None]).long()
    with torch.no_grad():
        expected = theirs(batch, attention_mask=mask, token_type_ids=segments)
        hidden = ours(batch, lengths, segments)
    real = mask.bool()
    torch.testing.assert_close(ours.logits(hidden)[real], expected.prediction_logits[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.next_sentence(ours.pool(hidden, lengths)), expected.seq_relationship_logits, atol=1e-5, rtol=0)


def test_gpt_equals_transformers(tokens, ids):
    config = GPT2Config(
        vocab_size=tokens.vocab_size, n_embd=16, n_layer=2, n_head=2, n_inner=32, n_positions=24, activation_function="gelu_new"
    )  # fmt: skip
    theirs = GPT2LMHeadModel(config).eval()
    ours = store.build(DecoderArchitecture(name="decoder", **SIZES), tokens).eval()
    source = theirs.state_dict()
    state = {"token_embedding.weight": source["transformer.wte.weight"], "position_embedding.weight": source["transformer.wpe.weight"]}
    for kind in ("weight", "bias"):
        state[f"final_norm.{kind}"] = source[f"transformer.ln_f.{kind}"]
        for i in range(2):
            pairs = {"attention_norm": "ln_1", "attention.query_key_value": "attn.c_attn", "attention.output": "attn.c_proj",
                     "feed_forward_norm": "ln_2", "feed_forward.0": "mlp.c_fc", "feed_forward.2": "mlp.c_proj"}  # fmt: skip
            for own, other in pairs.items():
                value = source[f"transformer.h.{i}.{other}.{kind}"]
                state[f"blocks.{i}.{own}.{kind}"] = value.T if value.ndim == 2 else value  # its Conv1D is a transposed Linear
    ours.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(ours(ids[0])), theirs(ids[0]).logits, atol=1e-5, rtol=0)


def test_gpt_residual_projections_start_smaller(tokens):
    torch.manual_seed(0)
    model = store.build(DecoderArchitecture(name="decoder", **SIZES | {"hidden_size": 128, "num_layers": 8}), tokens)
    assert model.blocks[0].attention.output.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.blocks[0].attention.query_key_value.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.fixture
def elmo(tokens):
    torch.manual_seed(0)
    return store.build(BiLMArchitecture(name="bilm", hidden_size=16, projection_size=8), tokens).eval()


@pytest.mark.parametrize("position", [1, 9, 18])
def test_elmo_directions_do_not_leak(elmo, ids, position):
    """Changing token t changes the forward half from t on only, the backward half up to t only."""
    batch, lengths = ids[0][:1], torch.tensor([20])
    changed = batch.clone()
    changed[0, position] = 5 + (batch[0, position] - 4) % (elmo.softmax.out_features - 5)
    with torch.no_grad():
        different = (elmo.features(batch, lengths) != elmo.features(changed, lengths))[0, :, 1:]  # (length, layers, width)
    ahead, back = different[..., :8].any(2).any(1), different[..., 8:].any(2).any(1)
    assert not ahead[:position].any() and ahead[position:].all()
    assert not back[position + 1 :].any() and back[: position + 1].all()


def test_elmo_features_ignore_padding_and_history(elmo, ids):
    batch, lengths = ids
    with torch.no_grad():
        together = elmo.features(batch, lengths)
        for row, length in enumerate(lengths):
            alone = elmo.features(batch[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(together[row, :length], alone[0], atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_elmo_adds_a_layer_to_what_it_read(elmo, ids):
    """A second layer that says nothing leaves the first as it was;
    the first one has nothing to be added to (Peters et al. 2018, section 3.4)."""
    before = elmo.features(*ids)
    for direction in (elmo.forward_lm, elmo.backward_lm):
        direction.lstms[1].weight_hr_l0.zero_()  # the projection of the LSTM's output
    silent = elmo.features(*ids)
    assert torch.equal(silent[:, :, 2], silent[:, :, 1]) and torch.equal(silent[:, :, 1], before[:, :, 1])
    assert not torch.equal(silent, before)
    for direction in (elmo.forward_lm, elmo.backward_lm):
        direction.lstms[0].weight_hr_l0.zero_()
    assert (elmo.features(*ids)[:, :, 1:] == 0).all()


def test_saved_model_loads_and_wrong_weights_are_one_line(project, tokens):
    folder = project / "model"
    block = EncoderArchitecture(name="encoder", **SIZES)
    model = store.build(block, tokens)
    store.save(folder, model.state_dict(), block, tokens)
    loaded, _ = store.load(folder)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True))
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"intermediate_size": 32', '"intermediate_size": 64'))
    with pytest.raises(SesameError, match=r"model.safetensors can't be read .*size mismatch"):
        store.load(folder)


def test_rotary_rms_norm_swiglu_untied_are_llama(tokens):
    """A pre-LN decoder with these four choices and no biases is a Llama (Touvron et al. 2023)."""
    size = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=tokens.vocab_size, rms_norm_eps=1e-5, num_key_value_heads=2, **size)
    theirs = transformers.LlamaForCausalLM(config).eval()
    block = DecoderArchitecture(
        name="decoder", num_layers=2, hidden_size=16, num_heads=2, intermediate_size=24, max_length=32, dropout=0,
        positions="rotary", norm="rms_norm", activation="swiglu", tie_word_embeddings=False,
    )  # fmt: skip
    ours, source = store.build(block, tokens).eval(), theirs.state_dict()
    state = {name: torch.zeros_like(value) for name, value in ours.state_dict().items() if name.endswith("bias")}
    state |= {
        "token_embedding.weight": source["model.embed_tokens.weight"],
        "output_embedding.weight": source["lm_head.weight"],
        "final_norm.weight": source["model.norm.weight"],
    }
    for i in range(2):
        layer = {name: source[f"model.layers.{i}.{name}.weight"] for name in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
            "input_layernorm", "post_attention_layernorm",
        )}  # fmt: skip
        state |= {
            f"blocks.{i}.attention.query_key_value.weight": torch.cat([layer[f"self_attn.{part}_proj"] for part in "qkv"]),
            f"blocks.{i}.attention.output.weight": layer["self_attn.o_proj"],
            f"blocks.{i}.feed_forward.0.weight": torch.cat([layer["mlp.gate_proj"], layer["mlp.up_proj"]]),
            f"blocks.{i}.feed_forward.2.weight": layer["mlp.down_proj"],
            f"blocks.{i}.attention_norm.weight": layer["input_layernorm"],
            f"blocks.{i}.feed_forward_norm.weight": layer["post_attention_layernorm"],
        }  # fmt: skip
    ours.load_state_dict(state)
    ids = torch.randint(5, tokens.vocab_size, (3, 20))
    assert torch.allclose(ours.logits(ours(ids)), theirs(ids).logits, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_share_the_buckets_of_t5(causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-200, 201)
    expected = T5Attention._relative_position_bucket(distance, bidirectional=not causal, num_buckets=32, max_distance=128)
    assert torch.equal(bucket(distance, causal), expected)


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal"), [("bert", False), ("gpt", True)])
def test_relative_positions_bias_attention_as_t5_does(tokens, name, causal):
    """Keys before a query and keys after it are not mistaken for each other, and what is to come has no weight."""
    from transformers.models.t5.modeling_t5 import T5Attention

    block = params.check(tiny_params()).models[name].architecture
    positions = store.build(block.model_copy(update={"positions": "relative"}), tokens).positions
    config = transformers.T5Config(
        d_model=16, d_kv=8, num_heads=2, is_decoder=causal, relative_attention_num_buckets=32, relative_attention_max_distance=128
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    theirs.relative_attention_bias.weight.copy_(positions.bias.weight)
    expected = theirs.compute_bias(20, 20)
    if causal:
        expected = expected.masked_fill(~torch.ones(20, 20, dtype=torch.bool).tril(), -torch.inf)
    torch.testing.assert_close(positions.mask(None, 20), expected)


@pytest.mark.parametrize("heads", [2, 8, 12])
def test_alibi_falls_as_in_bloom(heads):
    mask = torch.ones(1, 20, dtype=torch.long)
    theirs = build_alibi_tensor(mask, heads, torch.float32)[:, 0]  # (heads, 20), of the key's place
    torch.testing.assert_close(slopes(heads)[:, None] * torch.arange(20), theirs)


def test_debertas_decoder_alone_knows_absolute_positions(tokens, ids):
    """It asks the layer below the last one, twice; what is tuned later sees none of it."""
    block = DebertaArchitecture(name="deberta", **SIZES)
    model, (batch, lengths) = store.build(block, tokens).eval(), ids
    mask = (torch.arange(20) < lengths[:, None])[:, None, None]
    with torch.no_grad():
        before = model.layers(batch, lengths), model(batch, lengths)
        below, around = before[0][-2], model._relative(20)
        asking = below + model.position_embedding.weight[:20]
        for _ in range(2):
            asking = model.blocks[-1](below, asking, mask, *around)
        torch.testing.assert_close(before[1], asking)
        model.position_embedding.weight.add_(torch.randn(24, 16))
        assert torch.equal(model.top(batch, lengths), before[0][-1]) and not torch.allclose(model(batch, lengths), before[1], atol=1e-3)
    plain = store.build(block.model_copy(update={"mask_decoder": False}), tokens)
    assert plain.position_embedding is None
    with pytest.raises(ValueError, match="set num_layers to 2 or more"):
        DebertaArchitecture(name="deberta", **SIZES | {"num_layers": 1})


@pytest.mark.parametrize(("shared", "groups", "layers_of"), [
    ("none", 1, (4, 4)), ("all", 1, (1, 1)), ("all", 2, (2, 2)), ("attention", 1, (1, 4)), ("feed_forward", 2, (4, 2)),
])  # fmt: skip
def test_layers_share_what_they_are_told_to(tokens, tmp_path, shared, groups, layers_of):
    """As many weights as there are different layers, on the disk, too; trained, loaded and adapted as one."""
    block = EncoderArchitecture(name="encoder", **SIZES | {"num_layers": 4}, shared_layers=shared, layer_groups=groups)
    model = store.build(block, tokens)
    attention = 3 * (16 * 16 + 16) + (16 * 16 + 16) + 2 * 16
    feed_forward = (16 * 32 + 32) + (32 * 16 + 16) + 2 * 16
    assert store.count_parameters(model.blocks) == layers_of[0] * attention + layers_of[1] * feed_forward
    assert len(model.sublayers()) == sum(layers_of) and len({id(owner) for owner, _ in model.sublayers()}) == sum(layers_of)
    ids, lengths = torch.randint(5, tokens.vocab_size, (2, 12)), torch.tensor([12, 9])
    model.eval().top(ids, lengths).square().sum().backward()
    assert all(own.grad is not None for own in model.blocks.parameters())
    store.save(tmp_path / "model", model.state_dict(), block, tokens)
    assert torch.equal(store.load(tmp_path / "model")[0].eval().top(ids, lengths), model.top(ids, lengths))


POSITIONS = ["learned", "sinusoidal", "rotary", "relative", "alibi"]


@pytest.mark.parametrize("changes", [
    *({"name": name, "positions": positions, "norm_first": first}
      for name in ("encoder", "decoder") for positions in POSITIONS for first in (False, True)),
    {"name": "deberta"}, {"name": "deberta", "position_buckets": 6, "shared_projections": True, "norm_positions": True},
    {"name": "xlnet"},
], ids=lambda changes: "-".join(map(str, changes.values())))  # fmt: skip
def test_padding_and_the_future_change_nothing(tokens, changes):
    """Whatever the positions: an encoder does not see padding, a decoder not what is to come; and order matters to both."""
    raw = tiny_params()
    name = "gpt" if changes["name"] == "decoder" else "bert"
    raw["models"][name]["architecture"] |= changes
    if changes["name"] == "xlnet":
        raw["models"][name]["objective"], raw["studies"] = {"name": "permutation"}, {}
    torch.manual_seed(0)
    model = store.build(params.check(raw).models[name].architecture, tokens).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20 if parameter.ndim > 1 else 1)  # fresh weights hardly tell one place from another
    ids, lengths = torch.randint(5, tokens.vocab_size, (2, 12)), torch.tensor([12, 9])
    other = ids.clone()
    other[1, 9:] = 7
    assert torch.allclose(model.top(ids, lengths)[1, :9], model.top(other, lengths)[1, :9], atol=1e-5)
    turned = torch.cat([ids[:, :1], ids[:, 1:9].flip(1), ids[:, 9:]], 1)
    assert not torch.allclose(model.top(ids, lengths)[0, -1], model.top(turned, lengths)[0, -1], atol=1e-3)


@pytest.mark.parametrize("change", [
    {"activation": "swiglu"}, {"norm": "rms_norm"}, {"biases": False}, {"shared_layers": "attention"},
    {"positions": "relative"}, {"norm_first": True}, {"head_size": 4},
])  # fmt: skip
def test_what_transformers_has_no_model_for_is_not_exported(tokens, tmp_path, monkeypatch, change):
    from components.derive.checkpoints.export import export

    monkeypatch.chdir(tmp_path)
    block = params.check(tiny_params()).models["bert"].architecture.model_copy(update=change)
    store.save(tmp_path / "data/models/odd", store.build(block, tokens).state_dict(), block, tokens)
    with pytest.raises(SesameError, match=f"architecture.{next(iter(change))}"):
        export("odd")


def test_an_albert_without_its_matrix_is_not_exported(tokens, tmp_path, monkeypatch):
    from components.derive.checkpoints.export import export

    monkeypatch.chdir(tmp_path)
    block = EncoderArchitecture(name="encoder", **SIZES, shared_layers="all")
    store.save(tmp_path / "data/models/odd", store.build(block, tokens).state_dict(), block, tokens)
    with pytest.raises(SesameError, match="architecture.embedding_size: null has no counterpart in transformers' albert"):
        export("odd")


@pytest.mark.parametrize("kind", ["causal", "lengths", "bias", "none"])
def test_plain_attention_is_torchs(kind):
    """In bf16 on a CPU: as near to torch's attention in 32 bit as torch's own in bf16 is."""
    torch.manual_seed(0)
    heads = [torch.randn(3, 2, 20, 8, dtype=torch.bfloat16) for _ in range(3)]
    mask = {
        "lengths": (torch.arange(20) < torch.tensor([20, 7, 13])[:, None])[:, None, None, :], "bias": torch.randn(1, 2, 20, 20),
    }.get(kind)  # fmt: skip
    exact = scaled_dot_product_attention(*(part.float() for part in heads), attn_mask=mask, is_causal=kind == "causal")
    theirs = scaled_dot_product_attention(*heads, attn_mask=mask.bfloat16() if kind == "bias" else mask, is_causal=kind == "causal")
    ours = attention(*heads, mask, kind == "causal", 0.0)
    assert ours.dtype == torch.bfloat16 and (ours - exact).abs().max() <= max(0.02, 1.2 * (theirs - exact).abs().max())
    many = torch.stack([attention(*heads, mask, kind == "causal", 0.25) for _ in range(400)]).float()
    assert ((many.mean(0) - exact).abs() <= 5 * many.std(0) / 20 + 0.02).all() and many.std(0).mean() > 0.05


def test_dropout_drops_its_share_and_repeats_with_the_seed():
    for shape in ((1000, 203), (7,), (0, 3)):
        x = torch.rand(shape) + 1
        torch.manual_seed(3)
        one = dropout(x, 0.1)
        torch.manual_seed(3)
        assert torch.equal(one, dropout(x, 0.1)) and one.shape == x.shape
        torch.testing.assert_close(one[one != 0], (x / 0.9)[one != 0])
    zeros = (dropout(torch.ones(1000, 1003), 0.1) == 0).float()
    assert zeros.mean() == pytest.approx(0.1, abs=0.001) and zeros.mean(0).std() == pytest.approx(0.0095, rel=0.1)
    assert abs(np.corrcoef(zeros[:, :-1].flatten(), zeros[:, 1:].flatten())[0, 1]) < 0.005, "neighbours share 64 bits"
    x = torch.ones(4000, requires_grad=True)
    kept = dropout(x, 0.5)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach()) and Dropout(0.5).eval()(x) is x


@pytest.mark.parametrize("changes", [
    {}, {"norm_first": True, "positions": "rotary"}, {"positions": "relative"}, {"positions": "alibi", "shared_layers": "all"},
    {"num_layers": 1, "positions": "sinusoidal"}, {"name": "deberta"}, {"name": "deberta", "mask_decoder": False, "position_buckets": 8},
])  # fmt: skip
@pytest.mark.parametrize("padded", [True, False])
def test_the_last_layer_for_some_tokens_alone(tokens, ids, changes, padded):
    """Its outputs and all gradients are those of the layer over the whole text."""
    torch.manual_seed(0)
    family = DebertaArchitecture if changes.get("name") else EncoderArchitecture
    model = store.build(family(**{"name": "encoder"} | SIZES | {"dropout": 0.0} | changes), tokens)
    batch, lengths = ids if padded else (ids[0], torch.full((3,), ids[0].shape[1]))
    positions = torch.tensor([[0, 6, 3, 3], [12, 1, 0, 5], [6, 2, 4, 0]])
    weights, results = torch.randn(3, 4, 16), {}
    for kind in ("whole", "alone"):
        model.zero_grad()
        whole = model(batch, lengths)[torch.arange(3)[:, None], positions]
        hidden = whole if kind == "whole" else model.at(batch, lengths, None, positions)
        (hidden * weights).sum().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        results[kind] = {"hidden": hidden.detach(), **gradients}
    assert results["whole"].keys() == results["alone"].keys()
    for name, expected in results["whole"].items():
        torch.testing.assert_close(results["alone"][name], expected, atol=1e-5, rtol=1e-4, msg=name)
    assert model.at(batch, lengths, None, positions[:, :0]).shape == (3, 0, 16), "a batch without a target"
