"""What is cheaper on paper, in time: integers, layers left out, units taken out, against the plain model in the same rounds."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from components import params
from components.derive.pruned import best, cut, norms, units_of
from components.finetune import kinds, methods
from components.finetune.data import Encoded
from components.labs.efficiency import measure, quantised
from components.models import store
from components.models.encoder.config import EncoderArchitecture
from tests.benchmarks.bench_finetune import RECIPE, TASK
from tests.benchmarks.made import PIECES
from tests.benchmarks.record import record

SIZES = {"name": "encoder", "num_layers": 4, "hidden_size": 256, "num_heads": 4, "intermediate_size": 1024, "max_length": 128}
PRUNED = 0.5
EXAMPLES = 64


@pytest.fixture
def split() -> Encoded:
    """As long as captions and sentences of reviews are: 8 to 64 pieces."""
    rng = np.random.default_rng(0)
    texts = [[torch.from_numpy(rng.integers(5, 8000, length))] for length in rng.integers(8, 65, EXAMPLES)]
    return Encoded(texts, [[torch.zeros_like(text) for text in own] for own in texts], [0] * EXAMPLES)


def classifier(architecture: EncoderArchitecture, recipe: params.Recipe = RECIPE) -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind = methods.build_kind(TASK, recipe, "task") if recipe.method == "early_exit" else kinds.build(TASK, recipe)
    return methods.build(store.build(architecture, PIECES), PIECES, recipe, kind, pair=False).eval()


def told(name: str, times: measure.Times, peer: str, promised: float = 1.0, alone: bool = False) -> None:
    """Against so many times the speed of the plain one, which is what it had in the same rounds."""
    for batch, ratio, own in (
        (1, times.ratio_alone, times.alone), (measure.TOGETHER, times.ratio_together, times.together),
    )[: 1 if alone else 2]:  # fmt: skip
        ours = 1 / float(np.median(own))
        record(f"{name}, batch {batch}", ours, promised * ours * ratio, "examples/s", peer)


def test_integers(split):
    plain = classifier(EncoderArchitecture(**SIZES))
    rounded = quantised.convert(copy.deepcopy(plain), params.Quantised(weights="int8")).eval()
    times = measure.times({"plain": plain, "int8": rounded}, dict.fromkeys(("plain", "int8"), split), "plain", EXAMPLES)
    told("int8, 4 x 256", times["int8"], "32 bits")


def test_units_taken_out(split):
    """Half of the inner units; the limit is what the FLOPs promise."""
    whole, narrow = EncoderArchitecture(**SIZES), EncoderArchitecture(**SIZES | {"intermediate_size": 512})
    plain, less = classifier(whole), classifier(narrow)
    every = units_of(plain.model, narrow)
    kept = [best(score, parts.left) for score, parts in zip(norms(plain.model.state_dict(), every), every, strict=True)]
    less.model.load_state_dict(cut(plain.model.state_dict(), every, kept))
    promised = measure.flops(plain, split, EXAMPLES) / measure.flops(less, split, EXAMPLES)
    times = measure.times({"plain": plain, "less": less}, dict.fromkeys(("plain", "less"), split), "plain", EXAMPLES)
    told("half of the inner units", times["less"], f"what FLOPs promise, {promised:.2f} x", promised)


@pytest.mark.parametrize("exit", [0, 1, 2])
def test_left_early(split, exit):
    """One example at a time, left at the same exit; the limit is what the FLOPs promise of reading to the end."""
    module = classifier(EncoderArchitecture(**SIZES), RECIPE.model_copy(update={"method": "early_exit"}))
    answers = {
        name: lambda texts, segments, last=last: module.predict_until(lambda at, _: at == last, texts, segments)
        for name, last in (("early", exit), ("late", 3))
    }  # fmt: skip
    promised = measure.flops(answers["late"], split, EXAMPLES) / measure.flops(answers["early"], split, EXAMPLES)
    times = measure.times(answers, dict.fromkeys(answers, split), "late", EXAMPLES)
    told(f"left after layer {exit + 1} of 4", times["early"], f"what FLOPs promise, {promised:.2f} x", promised, alone=True)
