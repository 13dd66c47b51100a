"""The encoder for long texts: transformers' Longformer and Reformer, formulas, padding, cost, a training."""

from pathlib import Path

import pytest
import torch
import transformers
from ruamel.yaml import YAML
from torch.nn.functional import elu

from components import params
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.models import store
from components.models.common.positions import Positions
from components.models.encoder.config import EncoderArchitecture
from components.models.long_encoder.attention import HashAttention, LinearAttention, WindowAttention
from components.models.long_encoder.config import LongEncoderArchitecture
from tests.conftest import run_stage, tiny_params

SIZES = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "max_length": 64}
KINDS = ["full", "windows", "hashes", "linear"]
HIDDEN, HEADS = 32, 4


def settings(attention: str, **changes) -> LongEncoderArchitecture:
    small = {"windows": {"window": 4}, "hashes": {"chunk": 8}}
    sizes = SIZES | small.get(attention, {}) | changes
    return LongEncoderArchitecture(name="long_encoder", attention=attention, **sizes)


def build(tokens, attention: str, **changes) -> torch.nn.Module:
    torch.manual_seed(0)
    return store.build(settings(attention, **changes), tokens).eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 24, HIDDEN, generator=torch.Generator().manual_seed(1))


def padding(lengths: list[int], length: int) -> torch.Tensor:
    """-> (batch, 1, 1, length) bool."""
    return (torch.arange(length) < torch.tensor(lengths)[:, None])[:, None, None]


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_full_attention_is_the_encoders(tokens, positions):
    ours, encoder = build(tokens, "full", positions=positions), store.build(
        EncoderArchitecture(name="encoder", positions=positions, **SIZES), tokens
    ).eval()
    encoder.load_state_dict(ours.state_dict())
    ids, lengths = torch.randint(5, tokens.vocab_size, (3, 24)), torch.tensor([24, 9, 1])
    for a, b in zip(ours.layers(ids, lengths), encoder.layers(ids, lengths), strict=True):
        torch.testing.assert_close(a, b)


@torch.no_grad()
@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("lengths", [[24, 24, 24], [24, 13, 2]])
def test_windows_are_longformers(x, global_tokens, lengths):
    """Its global projections are set to those of all tokens, which are the only ones here."""
    ours = WindowAttention(settings("windows", global_tokens=global_tokens)).eval()
    config = transformers.LongformerConfig(
        hidden_size=HIDDEN, num_attention_heads=HEADS, attention_window=[8], num_hidden_layers=1,
        attention_probs_dropout_prob=0,
    )  # fmt: skip
    theirs = transformers.models.longformer.modeling_longformer.LongformerSelfAttention(config, 0).eval()
    weights, biases = ours.query_key_value.weight.chunk(3), ours.query_key_value.bias.chunk(3)
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        for module in (getattr(theirs, name), getattr(theirs, f"{name}_global")):
            module.load_state_dict({"weight": weight, "bias": bias})
    mask = padding(lengths, 24)
    kinds = torch.where(mask[:, 0, 0], 0.0, -10_000.0)
    kinds[:, :global_tokens] = 10_000.0  # their mask: below zero padding, above zero global
    attended = theirs(
        x, attention_mask=kinds, is_index_masked=kinds < 0, is_index_global_attn=kinds > 0,
        is_global_attn=bool(global_tokens),
    )[0]  # fmt: skip
    ours_out = ours(x, mask, False, Positions(settings("windows"), False))
    for row, length in enumerate(lengths):
        if length >= global_tokens:
            torch.testing.assert_close(ours_out[row, :length], ours.output(attended[row, :length]), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("rounds", [1, 3])
def test_hashes_are_reformers(x, rounds):
    """With at least a chunk of padding: their first chunk sees the last one, ours none."""
    ours = HashAttention(settings("hashes", rounds=rounds, biases=False)).eval()
    config = transformers.ReformerConfig(
        hidden_size=HIDDEN, num_attention_heads=HEADS, attention_head_size=HIDDEN // HEADS, lsh_attn_chunk_length=8,
        num_hashes=rounds, num_buckets=ours.buckets, lsh_num_chunks_before=1, lsh_num_chunks_after=0, hash_seed=7,
        is_decoder=False, lsh_attention_probs_dropout_prob=0.0, attn_layers=["lsh"],
    )  # fmt: skip
    theirs = transformers.models.reformer.modeling_reformer.LSHSelfAttention(config, 0).eval()
    torch.manual_seed(7)
    ours.rotations.copy_(torch.randn(HEADS, HIDDEN // HEADS, rounds, ours.buckets // 2).transpose(1, 2))
    for name, weight in zip(("query_key", "value"), ours.key_value.weight.chunk(2), strict=True):
        getattr(theirs, name).weight.copy_(weight)
    mask, lengths = padding([16, 13, 9], 24), [16, 13, 9]
    attended = theirs(x, attention_mask=mask[:, 0, 0].long()).hidden_states
    ours_out = ours(x, mask, False, Positions(settings("hashes"), False))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(ours_out[row, :length], ours.output(attended[row, :length]), atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_linear_attention_is_the_quadratic_sum(x, positions):
    ours, places = LinearAttention(settings("linear")).eval(), Positions(settings("linear", positions=positions), False)
    mask = padding([24, 10, 1], 24)
    query, key, value = ours.query_key_value(x).view(3, 24, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    query, key = elu(query) + 1, elu(key) + 1
    weights = (places.rotate(query) @ places.rotate(key).transpose(2, 3)) * mask
    weights = weights / (query @ key.transpose(2, 3) * mask).sum(3, keepdim=True)
    expected = ours.output((weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(ours(x, mask, False, places), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_padding_and_the_choice_of_tokens_change_nothing(tokens, kind, positions):
    """A row alone is what it is among longer ones, at each length, and the states of some tokens are those of all."""
    model = build(tokens, kind, positions=positions)
    ids, lengths = torch.randint(5, tokens.vocab_size, (7, 40)), torch.tensor([40, 1, 3, 4, 5, 17, 32])
    together = model.layers(ids, lengths)
    assert all(state.isfinite().all() for state in together)
    for row, length in enumerate(lengths.tolist()):
        alone = model.layers(ids[row : row + 1, :length], lengths[row : row + 1])
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a[0], b[row, :length], atol=1e-5, rtol=1e-5)
    some = torch.tensor([[0, 3, 20]] * 7)
    expected = together[-1].gather(1, some[..., None].expand(-1, -1, HIDDEN))
    torch.testing.assert_close(model.at(ids, lengths, None, some), expected)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "size_of", "others"), [("windows", "window", {}), ("hashes", "chunk", {"rounds": 1})])
def test_a_window_or_chunk_of_the_whole_text_is_full_attention(tokens, kind, size_of, others):
    """Of Reformer's, with keys of length one that no query shares with itself."""
    ids, lengths = torch.randint(5, tokens.vocab_size, (2, 30)), torch.tensor([30, 11])
    wide, wider = (build(tokens, kind, **{size_of: size}, **others) for size in (32, 64))
    weights = {key: value for key, value in wide.state_dict().items() if "rotations" not in key}
    wider.load_state_dict(weights, strict=False)
    torch.testing.assert_close(wide.top(ids, lengths)[1, :11], wider.top(ids, lengths)[1, :11])
    if kind == "windows":
        full = build(tokens, "full")
        full.load_state_dict(wide.state_dict())
        torch.testing.assert_close(wide.top(ids, lengths), full.top(ids, lengths), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_only_full_attention_costs_more_for_each_token_of_a_longer_text(tokens, kind):
    def flops_per_token(length: int) -> float:
        model = build(tokens, kind, max_length=1024)
        with flop_counter() as counter:
            model.top(torch.full((1, length), 5), torch.tensor([length])).sum().backward()
        return counter.get_total_flops() / length

    short, long = flops_per_token(256), flops_per_token(1024)
    assert long > 1.5 * short if kind == "full" else long < 1.06 * short


@pytest.mark.parametrize("kind, global_tokens", [("full", 1), ("windows", 1), ("linear", 1), ("windows", 0)])
def test_each_kind_learns_what_a_token_far_away_says(tokens, kind, global_tokens):
    """The last token is to tell which of eight is the first. Two layers of windows alone don't reach it: ln 8."""
    model = build(tokens, kind, max_length=32, dropout=0.0, global_tokens=global_tokens).train()
    optimizer, choices, length = torch.optim.AdamW(model.parameters(), 3e-3), 8, 32
    for _ in range(200):
        ids = torch.full((16, length), 5 + choices)
        ids[:, 0] = torch.randint(5, 5 + choices, (16,))
        states = model(ids, torch.full((16,), length), positions=torch.full((16, 1), length - 1))
        loss = torch.nn.functional.cross_entropy(model.logits(states[:, 0]), ids[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.8 if global_tokens else loss.item() > 1.95


def test_it_is_trained_and_tuned(project):
    raw = tiny_params(studies={})
    raw["models"]["bert"]["architecture"] = {"name": "long_encoder", "attention": "hashes", **SIZES, "chunk": 8}
    raw["finetune"] |= {"models": ["bert"], "seeds": [1], "inits": ["pretrained"]}
    YAML().dump(raw, project / "params.yaml")
    for module, name in (("components.pretrain", "bert"), ("components.finetune", "bert-same")):
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    trained, _ = store.load(Path("data/models/bert"))
    drawn, _ = store.load(Path("data/models/bert"), pretrained=False)
    saved, new = (model.blocks[1].attention.rotations for model in (trained, drawn))
    assert not torch.equal(saved, new), "rotations are saved with the weights"


def test_positions_that_need_a_bias_for_each_pair_are_refused():
    raw = tiny_params(studies={})
    raw["models"]["bert"]["architecture"] = {"name": "long_encoder", **SIZES, "positions": "alibi"}
    with pytest.raises(SesameError, match="models.bert.architecture.positions"):
        params.check(raw)
