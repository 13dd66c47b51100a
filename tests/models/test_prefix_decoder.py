"""The prefix language model: the decoder under another mask, padding, a token at a time, that it learns to write from a source."""

from itertools import islice

import pytest
import torch
from torch import nn

from components.models import store
from components.models.decoder.config import DecoderArchitecture
from components.models.prefix_decoder.config import PrefixDecoderArchitecture
from components.models.prefix_decoder.decoding import Decoding
from components.objectives.examples.source_target import generate_target, smoothed_losses
from components.text.tokenizer import CLS, SEP

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 16, "dropout": 0.0}
PREFIXES = ("both_sides", "left_to_right")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi")


class Vocabulary:
    vocab_size = 40


def built(seed=0, **settings):
    torch.manual_seed(seed)
    model = store.build(PrefixDecoderArchitecture(name="prefix_decoder", **SIZES | settings), Vocabulary).eval()
    for parameter in model.parameters():  # far from a start, so that positions and masks matter
        nn.init.normal_(parameter, std=0.3)
    return model


def pairs():
    ids, targets = torch.randint(5, 40, (3, 9)), torch.randint(5, 40, (3, 6))
    return ids, torch.tensor([9, 3, 6]), targets


@torch.no_grad()
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_it_is_the_decoder_under_another_mask(prefix, positions):
    """Each row alone, without padding: source, start, targets through a `decoder` with the same weights and the paper's mask
    (Raffel et al. 2020, figure 3)."""
    model = built(prefix=prefix, positions=positions)
    decoder = store.build(DecoderArchitecture(name="decoder", **SIZES | {"max_length": 32, "positions": positions}), Vocabulary).eval()
    decoder.load_state_dict(model.state_dict())
    ids, lengths, targets = pairs()
    hidden = model(ids, lengths, targets)
    for row, length in enumerate(lengths.tolist()):
        text = torch.cat([ids[row, :length], torch.tensor([CLS]), targets[row, :-1]])[None]
        mask = torch.ones(text.shape[1], text.shape[1], dtype=torch.bool).tril()
        mask[:length, :length] |= prefix == "both_sides"
        expected = decoder(text, None, mask[None, None])
        torch.testing.assert_close(hidden[row], expected[0, length:])
        # what a task reads is what the targets attend to
        torch.testing.assert_close(model.top(ids, lengths)[row, :length], expected[0, :length])
    if prefix == "left_to_right":
        torch.testing.assert_close(expected, decoder(text))


@torch.no_grad()
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_token_at_a_time_computes_what_all_at_once_do(prefix, positions, norm_first):
    """For rows that are kept, left out and reordered on the way."""
    model = built(prefix=prefix, positions=positions, norm_first=norm_first)
    ids, lengths, targets = pairs()
    whole, decoding = model(ids, lengths, targets), Decoding(model, ids, lengths, 8)
    first = decoding.read(decoding.opening())
    torch.testing.assert_close(torch.cat([first, decoding.read(targets[:, :2])], 1), whole[:, :3])
    decoding.select(rows := torch.tensor([2, 0, 1, 0]), 2)
    torch.testing.assert_close(decoding.read(targets[rows, 2:3]), whole[rows, 3:4])
    decoding.select(torch.tensor([2]))
    torch.testing.assert_close(decoding.read(targets[1:2, 3:5]), whole[1:2, 4:])


@torch.no_grad()
def test_weights_from_target_to_source_leave_the_rest_to_the_targets():
    model = built(positions="rotary")
    weights = Decoding.attention_weights(model, torch.arange(5, 12), torch.arange(20, 24))
    assert weights.shape == (2, 4, 7) and (weights > 0).all() and (weights.sum(2) < 1).all()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_it_learns_to_copy_a_source_backwards(prefix):
    torch.manual_seed(1)
    sizes = SIZES | {"hidden_size": 32, "intermediate_size": 64}
    model = store.build(PrefixDecoderArchitecture(name="prefix_decoder", prefix=prefix, **sizes), Vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def pair(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        source = torch.randint(5, 9, (rows, 4))
        end = torch.full((rows, 1), SEP)
        return torch.cat([source, end], 1), torch.cat([source.flip(1), end], 1)

    for source, target in islice(iter(lambda: pair(64), None), 200):
        loss, _, _ = smoothed_losses(model, {"ids": source, "lengths": torch.full((64,), 5), "targets": target})
        optimizer.zero_grad()
        (loss / target.numel()).backward()
        optimizer.step()
    model.eval()
    source, target = pair(20)
    written = [generate_target(model, row.tolist(), 6) for row in source]
    assert sum(text == row.tolist()[:-1] for text, row in zip(written, target, strict=True)) >= 18
