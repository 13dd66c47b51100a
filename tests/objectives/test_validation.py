"""Validation reads all of a text, and says the same whatever the batches of the training and however many devices there
are."""

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from components import objectives, params
from components.models import store
from components.objectives.scoring import LossTotals
from components.pretrain.data import DummyBatch, StepLoader
from components.pretrain.module import loss_terms, standard_error
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SPECIALS

SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32, "dropout": 0}
PLAIN = {"num_layers": 1, "hidden_size": 16, "max_length": 32}
BILM = {"name": "bilm", "hidden_size": 16, "projection_size": 8, "char_embedding_size": 4, "char_filters": [[1, 4], [3, 8]]}
MODELS = {
    "mlm": ({"name": "encoder", **SIZES}, {}), "electra": ({"name": "encoder", **SIZES}, {"generator_size": 0.5}),
    "clm": ({"name": "decoder", **SIZES}, {}), "gpt_bert": ({"name": "decoder", **SIZES}, {}), "bilm": (BILM, {"window": 8}),
    "bptt": ({"name": "recurrent", **PLAIN}, {"window": 8}), "permutation": ({"name": "xlnet", **SIZES}, {}),
    "denoising": ({"name": "encoder_decoder", **SIZES}, {"noise": {"kind": "whole", "infilled": 0.3}}),
    "translation": ({"name": "encoder_decoder", **SIZES}, {}), "skip_thoughts": ({"name": "encoder", **SIZES}, {}),
    "quick_thoughts": ({"name": "encoder", **SIZES}, {}),
}  # fmt: skip


def in_pairs(text: Split) -> Split:
    """The documents' first two segments."""
    [shard] = text.shards
    firsts = shard.documents[:-1]
    tokens = [np.concatenate([[CLS], *(shard.tokens[a : b + 1] for a, b in shard.segments[i : i + 2])]) for i in firsts]
    offsets = np.cumsum([0, *map(len, tokens)])[:-1] - shard.segments[firsts, 0] + 1
    segments = np.concatenate([shard.segments[i : i + 2] + offset for i, offset in zip(firsts, offsets, strict=True)])
    return Split((Shard(np.concatenate(tokens), segments, 2 * np.arange(len(firsts) + 1)),))


@pytest.mark.parametrize("name", MODELS)
def test_a_validation_is_of_all_rows_whatever_the_batch(name, tokens, train_split):
    shard = train_split.shards[0]
    few = slice(None, shard.documents[-1 - len(shard) // 2])
    cut = shard.segments[few][-1, 1] + 1
    half = Split((Shard(shard.tokens[:cut], shard.segments[few], shard.documents[: len(shard) - len(shard) // 2 + 1]),))
    architecture, settings = MODELS[name]
    text = in_pairs(half) if name == "translation" else half
    torch.manual_seed(0)
    model = store.build(TypeAdapter(params.Architecture).validate_python(architecture), tokens)
    objective = objectives.build(TypeAdapter(params.Objective).validate_python({"name": name, **settings}), tokens)
    for network in objective.networks(model).values():
        network.eval()
    model.eval()

    def figures(batch_size: int, ranks: int) -> dict[str, float]:
        batches = objective.validation(text, batch_size, 32)
        sums, batch_losses = {}, []
        for rank in range(ranks):
            carry = None
            for [rows], counts in StepLoader(batches, 0, batches.epoch_steps(), ranks, slice(rank, rank + 1), 0, pinned=False):
                losses, carry = objective.losses(model, rows, carry)
                for part in loss_terms(counts) if not isinstance(rows, DummyBatch) else ():
                    found = zip(("loss", "correct"), losses[part], strict=True)
                    sums |= {f"{part}.{key}": sums.get(f"{part}.{key}", 0.0) + float(value) for key, value in found}
                if rank == 0:
                    sums |= {f"{part}.count": sums.get(f"{part}.count", 0) + counts[part] for part in loss_terms(counts)}
                    sums["bytes"] = sums.get("bytes", 0) + counts["bytes"]
                    sums["tokens"] = sums.get("tokens", 0) + counts["tokens"]
                    batch_losses.append(counts[objective.main])
        return LossTotals(sums).metrics(objective.main) | {"targets": sums[f"{objective.main}.count"], "tokens": sums["tokens"]}

    with torch.no_grad():
        one = figures(1, 1)
        others = [figures(size, ranks) for size, ranks in ((8, 1), (16, 3), (64, 2)) if name != "quick_thoughts" or ranks == 1]
    assert all(other == pytest.approx(one, rel=1e-5) for other in others), (one, others)
    ordinary = int((text.shards[0].tokens >= len(SPECIALS)).sum())
    assert one["tokens"] >= ordinary, "all of the text is read"
    if name in ("clm", "gpt_bert", "bptt", "bilm"):  # and all of it predicted, and where segments end: the [CLS] of documents is not
        directions = 2 if name == "bilm" else 1
        assert one["targets"] == directions * int((text.shards[0].tokens != CLS).sum())


def test_the_error_of_a_single_batch_is_not_known():
    assert standard_error(np.array([3.0]), np.array([2.0])) is None and standard_error(np.array([3.0, 5.0]), np.array([2.0, 2.0])) > 0
