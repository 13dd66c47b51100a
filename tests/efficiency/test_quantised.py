"""Weights in fewer bits: what they become, what they weigh, and that what is shared stays shared."""

import copy

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.nn.utils import parametrize

from components import params
from components.finetune import kinds, methods
from components.finetune.methods import lora
from components.labs.efficiency import measure, quantised
from components.models import store
from components.tasks import Example
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())
TASK, RECIPE = CHECKED.tasks["same"], CHECKED.finetune.recipes["bert"]
ROWS = [Example(str(i), text, "a man", "yes") for i, text in enumerate(("the dog sees the river", "two children", "my friend"))]


def tuned(tokens, name: str = "bert", recipe: params.Recipe = RECIPE, **architecture):
    torch.manual_seed(0)
    block = CHECKED.models[name].architecture
    model = store.build(type(block).model_validate(block.model_dump() | architecture), tokens)
    kind = kinds.build(TASK, recipe)
    return methods.build(model, tokens, recipe, kind, pair=True).eval(), kind.encode(ROWS, tokens)


def logits(module: nn.Module, split) -> torch.Tensor:
    [batch] = measure.in_batches(split, 3)
    with torch.no_grad():
        return measure.answering(module)(batch.texts, batch.segments)


def test_values_by_hand():
    weight = torch.tensor([[1.0, -0.6, 0.26, 0.0], [8.0, 0.2, -4.0, 3.0]])
    torch.testing.assert_close(quantised.ternary(weight), torch.tensor([[0.8, -0.8, 0, 0], [5, 0, -5, 5]]))
    torch.testing.assert_close(quantised.int4(weight)[0], torch.tensor([7, -4, 2, 0]) / 7)
    rows = torch.randn(5, 40)
    for name, steps in (("int8", 127.5), ("int4", 7)):
        scale = rows.abs().amax(1, keepdim=True) / steps
        assert ((quantised.ROUNDED[name](rows) - rows).abs() <= scale / 2 + 1e-6).all() and quantised.ROUNDED[name](
            rows
        ).shape == rows.shape
    assert not quantised.int8(torch.zeros(2, 3)).any() and not quantised.ternary(torch.zeros(2, 3)).any()


def test_a_gradient_passes_by_the_rounding():
    linear = nn.Linear(4, 2, bias=False)
    plain = linear.weight.detach().clone()
    parametrize.register_parametrization(linear, "weight", quantised.Rounding("ternary"))
    x = torch.randn(3, 4)
    linear(x).sum().backward()
    torch.testing.assert_close(linear.parametrizations.weight.original.grad, x.sum(0).expand(2, 4))
    torch.testing.assert_close(linear.weight, quantised.ternary(plain))


@pytest.mark.parametrize("weights", list(quantised.ROUNDED))
@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_answers_are_those_of_the_rounded_weights(name, weights, tokens):
    module, split = tuned(tokens, name)
    how = params.Quantised(weights=weights)
    by_hand = copy.deepcopy(module)
    with torch.no_grad():
        for linear in quantised.matrices(by_hand):
            linear.weight.copy_(quantised.ROUNDED[weights](linear.weight))
    rounded = quantised.convert(module, how)
    # with int8 the inputs of each product are rounded, too
    torch.testing.assert_close(logits(rounded, split), logits(by_hand, split), rtol=0, atol=0.02 if weights == "int8" else 1e-6)
    if weights == "int8":  # torch's own rounding is the one that was trained for
        [first] = [part for name, part in rounded.named_modules() if name == "model.blocks.0.feed_forward.0"]
        ours = by_hand.model.blocks[0].feed_forward[0].weight.detach()
        apart, step = (first.weight().dequantize() - ours).abs(), ours.abs().amax(1, keepdim=True) / 127
        assert (apart > 1e-6).float().mean() < 0.01 and (apart <= step).all(), "but for those that lie between two steps"
    kinds_of = {type(part).__module__ for part in rounded.modules() if type(part).__name__ == "Linear"}
    assert ("torch.ao.nn.quantized.dynamic.modules.linear" in kinds_of) == (weights == "int8")


def test_low_rank_updates_answer_from_within_the_weights(tokens):
    """As they would be shipped (Hu et al. 2022): no product more, and in 8 bits as any other weights."""
    module, split = tuned(tokens, recipe=params.Recipe.model_validate(RECIPE.under({"method": "lora"}) | {"method": "lora"}))
    plain, _ = tuned(tokens)
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(weights, std=0.1)
    before = logits(module, split)
    lora.merge(module)
    torch.testing.assert_close(logits(module, split), before)
    assert not torch.allclose(logits(plain, split), before, atol=1e-3)
    assert store.count_parameters(module) == store.count_parameters(plain)
    rounded = quantised.convert(module, params.Quantised(weights="int8"))
    torch.testing.assert_close(logits(rounded, split), before, rtol=0, atol=0.03)


@pytest.mark.parametrize("weights", [None, *quantised.ROUNDED])
def test_what_depends_on_its_batch_is_read_alone(tokens, weights):
    """An answer in ten of an int8 MiniLM was another one beside 127 others (as in fastembed-rs' issue 107)."""
    module, split = tuned(tokens)
    how = weights and params.Quantised(weights=weights)
    answer = measure.answering(quantised.convert(module, how) if how else module)
    alone, together = measure.logits(answer, split, size=1), measure.logits(answer, split)
    assert alone.shape == together.shape == (3, 1, 2)
    assert np.allclose(alone, together, atol=1e-6) != quantised.depends_on_batch(how)


def test_layers_that_share_weights_stay_right(tokens):
    """ALBERT: one set of matrices, used by every layer."""
    module, split = tuned(tokens, num_layers=2, shared_layers="all")
    assert len(quantised.matrices(module)) == 5, "four of the one layer, and the head"
    by_hand = copy.deepcopy(module)
    with torch.no_grad():
        for linear in quantised.matrices(by_hand):
            linear.weight.copy_(quantised.int8(linear.weight))
    rounded = quantised.convert(module, params.Quantised(weights="int8"))
    torch.testing.assert_close(logits(rounded, split), logits(by_hand, split), rtol=0, atol=0.02)
    first, second = rounded.model.blocks
    assert first.attention is second.__dict__["attention"], "they still are one"


def test_the_output_that_is_tied_to_the_embedding_is_left_alone(tokens):
    module, _ = tuned(tokens, "gpt")
    before = module.model.token_embedding.weight.clone()
    rounded = quantised.convert(module, params.Quantised(weights="int4"))
    assert torch.equal(rounded.model.token_embedding.weight, before)


def test_bytes_are_of_what_answers_packed(tokens):
    module, split = tuned(tokens)
    used = measure.weights(module, split)
    names = {name for name, part in module.named_parameters() if any(part is own for own in used)}
    assert "head.output.weight" in names and not any("masked" in name or "next_sentence" in name for name in names)
    plain = quantised.size(used, module, None)
    assert plain == 4 * sum(part.numel() for part in used)
    every = sum(linear.weight.numel() for linear in quantised.matrices(module))
    rows = sum(linear.out_features for linear in quantised.matrices(module))
    assert plain - quantised.size(used, module, params.Quantised(weights="int8")) == 3 * every - 4 * rows
    sizes = [quantised.size(used, module, params.Quantised(weights=weights)) for weights in ("ternary", "int4", "int8")]
    assert sizes == sorted(sizes) and sizes[-1] < plain


def test_what_no_answer_depends_on_has_no_bytes(tokens):
    """A task that reads the encoder's states alone: the decoder's matrices were taken off a sum that they were not in."""
    architecture = {"name": "encoder_decoder", "num_layers": 1, "decoder_layers": 6, "hidden_size": 16, "num_heads": 2}
    architecture |= {"intermediate_size": 32, "max_length": 32}
    model = store.build(TypeAdapter(params.Architecture).validate_python(architecture), tokens)
    kind = kinds.build(TASK, RECIPE)
    module = methods.build(model, tokens, RECIPE, kind, pair=True).eval()
    used = measure.weights(module, kind.encode(ROWS, tokens))
    [layer], head = module.model.encoder.blocks, module.head
    read = [linear for part in (layer, head) for linear in part.modules() if isinstance(linear, nn.Linear)]
    by_hand = 4 * sum(part.numel() for part in used) - sum(3 * linear.weight.numel() - 4 * linear.out_features for linear in read)
    assert quantised.size(used, module, params.Quantised(weights="int8")) == by_hand > 0
