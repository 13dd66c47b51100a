"""Matrices as products of two thin ones: nearest to what they were, fewer weights, shared where they were shared."""

import copy

import pytest
import torch
from torch import nn

from components.labs.efficiency import factorised
from tests.efficiency.test_quantised import logits, tuned


@pytest.mark.parametrize("bias", [True, False])
def test_two_thin_matrices_are_the_nearest_of_their_rank(bias):
    torch.manual_seed(0)
    linear, x = nn.Linear(12, 20, bias), torch.randn(7, 12)
    thin = factorised.thin(linear, 0.5)
    kept = factorised.rank(linear, 0.5)
    assert kept == 3 and sum(own.weight.numel() for own in thin) == 3 * 32 <= 0.5 * 240
    lost = torch.linalg.svdvals(linear.weight)[kept:].square().sum()
    torch.testing.assert_close((thin[1].weight @ thin[0].weight - linear.weight).square().sum(), lost)
    torch.testing.assert_close(thin(x), x @ (thin[1].weight @ thin[0].weight).T + (linear.bias if bias else 0))
    assert factorised.rank(nn.Linear(4, 4), 0.01) == 1


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_the_layers_are_thin_and_the_rest_is_as_it_was(name, tokens):
    module, split = tuned(tokens, name)
    whole = copy.deepcopy(module)
    factorised.factorise(module, 0.4)
    before, after = ({own: part.numel() for own, part in each.named_parameters() if part.ndim > 1} for each in (whole, module))
    layers, left = (sum(size for own, size in each.items() if ".blocks." in own) for each in (before, after))
    assert 0.3 * layers < left <= 0.4 * layers
    assert {own: size for own, size in before.items() if ".blocks." not in own} == {
        own: size for own, size in after.items() if ".blocks." not in own
    }
    assert logits(module, split).shape == logits(whole, split).shape and not torch.equal(logits(module, split), logits(whole, split))


def test_a_rank_that_is_full_changes_nothing(tokens):
    module, split = tuned(tokens)
    before = logits(module, split)
    factorised.factorise(module, 2.0)
    torch.testing.assert_close(logits(module, split), before, rtol=1e-3, atol=1e-3)


def test_layers_that_share_weights_still_do(tokens):
    module, split = tuned(tokens, num_layers=2, shared_layers="all")
    factorised.factorise(module, 0.5)
    first, second = module.model.blocks
    assert isinstance(first.attention.output, nn.Sequential) and first.attention is second.__dict__["attention"]
    assert torch.isfinite(logits(module, split)).all()
