"""What a loss is held against: the best guess without context, and an n-gram model, by definition and by hand."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from components import params
from components.objectives import build
from components.objectives.scoring import IGNORED
from components.pretrain import baselines
from components.text import encode
from components.text.tokenizer import CLS, MASK
from tests.conftest import tiny_params


def by_definition(stream: list[int], vocab_size: int, order: int):
    """Interpolated Kneser-Ney with the discounts of Chen and Goodman 1999, equations (17) to (26), with dictionaries."""
    counts = {order: Counter(tuple(stream[i : i + order]) for i in range(len(stream) - order + 1))}
    for size in range(order - 1, 0, -1):
        counts[size] = Counter(gram[1:] for gram in counts[size + 1])
    discounts, contexts = {}, defaultdict(list)
    for size, own in counts.items():
        n = Counter(own.values())
        y = n[1] / max(1, n[1] + 2 * n[2])
        discounts[size] = [0] + [k - (k + 1) * y * n[k + 1] / max(1, n[k]) for k in (1, 2, 3)]
        discounts[size] = [0] + [own if 0 < own < k else 0.5 for k, own in enumerate(discounts[size][1:], start=1)]
        for gram, count in own.items():
            contexts[gram[:-1], size].append(count)

    def probability(context: tuple, token: int) -> float:
        size = len(context) + 1
        lower = probability(context[1:], token) if context else 1 / vocab_size
        own = contexts.get((context, size))
        if not own:
            return lower
        freed = sum(discounts[size][min(3, count)] for count in own) / sum(own)
        count = counts[size][(*context, token)]
        return (count - discounts[size][min(3, count)] if count else 0) / sum(own) + freed * lower

    return probability


def test_kneser_ney_is_that_of_the_paper_and_adds_up_to_one():
    rng = np.random.default_rng(0)
    stream = [0]
    for _ in range(4000):  # a chain, so that longer contexts tell something
        stream.append(int((stream[-1] * 3 + rng.choice([0, 1, 1, 2, 5])) % 13) if rng.random() < 0.9 else int(rng.integers(13)))
    train, valid = np.array(stream[:3000]), np.array(stream[3000:])
    probability = by_definition(train.tolist(), 13, 3)
    found = baselines.KneserNey(train, 13, 3).probabilities(valid)
    expected = [probability(tuple(valid[max(0, i - 2) : i].tolist()), int(valid[i])) for i in range(len(valid))]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert sum(probability((1, 4), token) for token in range(13)) == pytest.approx(1)
    for context in ([1, 4], [7, 7], [12, 0]):
        whole = [baselines.KneserNey(train, 13, 3).probabilities(np.array([*context, token]))[-1] for token in range(13)]
        assert sum(whole) == pytest.approx(1)
    assert (baselines.KneserNey(train[:2], 13, 4).probabilities(valid) > 0).all(), "of a text that is shorter than the order"
    assert -np.log(found).mean() < -np.log(baselines.KneserNey(train, 13, 1).probabilities(valid)).mean() - 0.3


@pytest.mark.parametrize("name", ["clm", "mlm"])
def test_the_context_free_loss_is_that_of_counts(built, tokens, name):
    checked = params.check(tiny_params())
    block = checked.models["gpt" if name == "clm" else "bert"].objective
    objective = build(block, tokens)
    train, valid = (encode.load(built / "data/encoded/tiny", split) for split in ("train", "valid"))
    batches = objective.batches(train, 4, 32, seed=1)
    found = baselines.context_free_loss(objective, train, tokens.vocab_size, batches, objective.validation(valid, 4, 32))
    frequency = train.occurrences(tokens.vocab_size) + 1.0
    frequency /= frequency.sum()
    labels = []
    steps = objective.validation(valid, 4, 32)
    kept = baselines.unchanged_share(objective, batches)
    for step in range(steps.epoch_steps()):
        asked, seen = objective.token_targets(steps[step].tensors)
        for i in (asked != IGNORED).nonzero()[:, 0].tolist():
            likely = frequency[asked[i]]
            if seen is not None and seen[i] != MASK:
                likely = (1 - kept) * likely + kept * bool(seen[i] == asked[i])
            labels.append(-np.log(likely))
    assert found == pytest.approx(np.mean(labels)) and len(labels) > 50
    assert (kept < 1e-3) if name == "clm" else (0.3 < kept < 0.8), "a tenth of the targets is kept, a tenth drawn (appendix A)"


def test_an_n_gram_model_reads_documents_from_all_of_the_text(built):
    """As a model does at a budget below an epoch: the first tokens are those of the text's first part."""
    whole = encode.load(built / "data/encoded/tiny", "train")
    stream = np.concatenate([shard.tokens for shard in whole.shards])
    assert np.array_equal(baselines._drawn_tokens(whole, whole.num_tokens), stream)
    half = baselines._drawn_tokens(whole, whole.num_tokens // 2)
    [shard] = whole.shards
    bounds = shard.document_tokens
    documents = [tuple(stream[start:end]) for start, end in zip(bounds[:-1], bounds[1:], strict=True)]
    starts = [*np.flatnonzero(half == CLS), len(half)]
    read = [tuple(half[start:end]) for start, end in zip(starts[:-1], starts[1:], strict=True)]
    assert len(half) == whole.num_tokens // 2 and half[0] == CLS
    assert sum(document not in documents for document in read) <= 1, "but for the last one, whole"
    assert abs(np.mean([documents.index(document) for document in read if document in documents]) / len(documents) - 0.5) < 0.15
    assert np.array_equal(half, baselines._drawn_tokens(whole, whole.num_tokens // 2))


def test_a_pre_training_says_what_it_is_held_against(pretrained):
    for name, keys in (("gpt", {"context_free_loss", "ngram_loss", "ngram_bits_per_byte"}), ("bert", {"context_free_loss"})):
        figures = pretrained[name]
        assert keys <= figures.keys() and all(np.isfinite(figures[key]) for key in keys)
    assert "ngram_loss" not in pretrained["bert"], "its targets are no chain"
    gpt = pretrained["gpt"]
    assert gpt["ngram_bits_per_byte"] / gpt["ngram_loss"] == pytest.approx(gpt["bits_per_byte"] / gpt["loss"], rel=1e-3), (
        "of the same targets"
    )
    assert gpt["ngram_loss"] < gpt["context_free_loss"]


@pytest.fixture
def pretrained(project) -> dict[str, dict]:
    from components.core.tracking import Run
    from components.pretrain.training import pretrain

    checked = params.check(tiny_params())
    return {name: pretrain(checked.models[name], name, Path("data/models", name), Run(None)).metrics for name in ("gpt", "bert")}
