"""Maps, self-learning and retrieval against their definitions, references and known behaviour on made-up spaces."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

from components import params
from components.embeddings import evaluate, self_learning
from components.embeddings.maps import Fitted, fit, least_squares, normalise, procrustes, rcsls, unit
from components.embeddings.neighbours import best_down, both_ways, crowding, nearest, top
from components.embeddings.retrieval import INVERSE_TEMPERATURE, RETRIEVALS, csls, inverted_softmax
from components.params.alignment import PRESETS


def rotation(draw: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(draw.standard_normal((d, d)))[0].astype(np.float32)


def method(name: str, **changes) -> params.Method:
    return params.Method(name=name, **PRESETS[name] | changes)


def same(pairs: int) -> np.ndarray:
    return np.stack([np.arange(pairs)] * 2, axis=1)


def tensor(rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rows.astype(np.float32))


# ---------------------------------------------------------------- maps


def test_normalise_is_unit_and_centred_before_the_last_step():
    x = np.random.default_rng(0).standard_normal((50, 8)) + 3
    centred = unit(x) - unit(x).mean(axis=0)
    np.testing.assert_allclose(normalise(x), unit(centred))
    np.testing.assert_allclose(np.linalg.norm(normalise(x), axis=1), 1)
    np.testing.assert_allclose(normalise(x, ["centre"]), x - x.mean(axis=0))
    assert not np.isnan(normalise(np.zeros((3, 4)))).any()


@pytest.mark.parametrize("learn", [least_squares, procrustes])
def test_a_pure_rotation_is_found_exactly(learn):
    draw = np.random.default_rng(0)
    x, r = draw.standard_normal((200, 20)).astype(np.float32), rotation(draw, 20)
    np.testing.assert_allclose(learn(x, x @ r), r, atol=1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_every_method_undoes_a_pure_rotation(name):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((600, 20)) * np.linspace(0.5, 2, 20)
    chosen = method(name)
    a, b = (normalise(side, chosen.normalise) for side in (x, x @ rotation(draw, 20)))
    rows = same(100)
    if chosen.self_learning:
        rows = self_learning.learn(a, b, rows, chosen).rows
    mapped, fixed = map(tensor, fit(a, b, rows, chosen).apply(a, b))
    found = nearest(mapped, fixed, 1, csls(fixed, mapped, 10))[1][:, 0].numpy()
    assert (found == np.arange(600)).mean() > 0.99


def test_procrustes_is_orthogonal_and_the_best_of_them():
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((2, 60, 10))
    w = procrustes(x, y)
    np.testing.assert_allclose(w @ w.T, np.eye(10), atol=1e-10)
    loss = np.linalg.norm(x @ w - y)
    assert all(loss <= np.linalg.norm(x @ rotation(draw, 10) - y) for _ in range(20))
    assert np.linalg.norm(x @ least_squares(x, y) - y) <= loss


def test_whitening_both_sides_and_rotating_is_canonical_correlation():
    """The preset of Faruqui and Dyer against scikit-learn's CCA: the same correlations of the same first dimensions."""
    draw = np.random.default_rng(0)
    common = draw.standard_normal((500, 6))
    noise = np.linspace(0.2, 2, 6)
    x, z = (
        np.hstack([common + noise * draw.standard_normal((500, 6)), draw.standard_normal((500, 4))]) @ draw.standard_normal((10, 10))
        for _ in range(2)
    )
    x, z = x - x.mean(axis=0), z - z.mean(axis=0)
    fitted = fit(x, z, same(500), method("faruqui_2014", dimensions=1.0))
    a, b = x @ fitted.source, z @ fitted.target
    np.testing.assert_allclose(a.T @ a, np.eye(10), atol=1e-8)  # uncorrelated, of one variance
    theirs = CCA(10, scale=False, max_iter=5000, tol=1e-10).fit(x, z).transform(x, z)
    own = [np.corrcoef(a[:, i], b[:, i])[0, 1] for i in range(10)]
    np.testing.assert_allclose(own[:6], [np.corrcoef(theirs[0][:, i], theirs[1][:, i])[0, 1] for i in range(6)], atol=1e-4)
    assert own == sorted(own, reverse=True)
    assert fit(x, z, same(500), method("faruqui_2014")).source.shape == (10, 5)


def test_whitening_undone_and_nothing_reweighted_is_the_rotation_of_the_whitened():
    """Artetxe et al. 2018a: each side has its own variances back, so that lengths and angles within a side are as they were."""
    draw = np.random.default_rng(0)
    x, z = draw.standard_normal((2, 300, 8)) * np.linspace(0.5, 3, 8)
    fitted = fit(x, z, same(300), method("artetxe_2018a", reweight=(0.0, 0.0)))
    for side, matrix in ((x, fitted.source), (z, fitted.target)):
        np.testing.assert_allclose(side @ matrix @ (side @ matrix).T, side @ side.T, atol=1e-8)


def test_directions_of_which_the_pairs_say_nothing_are_not_whitened():
    """Of ten pairs in thirty dimensions: where there is no re-weighting, the other twenty keep their lengths."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((400, 30))
    fitted = fit(x, x, same(10), method("artetxe_2018a", reweight=(0.0, 0.0), dewhiten=False))
    _, _, vt = np.linalg.svd(x[:10])
    rest = x @ vt[10:].T @ vt[10:]
    np.testing.assert_allclose(np.linalg.norm(rest @ fitted.source, axis=1), np.linalg.norm(rest, axis=1))
    whole = fit(x, x, same(10), method("artetxe_2018a"))
    assert np.isfinite(whole.source).all() and np.isfinite(whole.target).all()


def test_rcsls_makes_its_loss_smaller_than_procrustes_does():
    x, z = clustered(1000, 20)
    rows = slice(0, 400)

    def loss(w: np.ndarray) -> float:
        mapped, fixed = tensor(x @ w), tensor(z)
        pairs = (mapped[rows] * fixed[rows]).sum(dim=1)
        return float((-2 * pairs + crowding(mapped[rows], fixed, 5) + crowding(fixed[rows], mapped, 5)).mean())

    w = rcsls(x[rows], z[rows], x, z, 5)
    assert loss(w) < loss(procrustes(x[rows], z[rows])) - 1e-3
    assert np.linalg.norm(w, 2) <= 1 + 1e-5


def test_a_step_of_rcsls_goes_down_its_gradient():
    """The gradient against torch's own, the neighbours held fixed; one small step from Procrustes is along it."""
    x, z = clustered(600, 12)
    k, rate = 5, 1e-3
    start = tensor(procrustes(x[:200], z[:200])).requires_grad_()
    xs, zs = tensor(x), tensor(z)
    near_z = zs[nearest((xs[:200] @ start).detach(), zs, k)[1]].mean(dim=1)
    near_x = xs[nearest(zs[:200], (xs @ start).detach(), k)[1]].mean(dim=1)
    mapped = xs[:200] @ start
    (-2 * (mapped * zs[:200]) + mapped * near_z + (near_x @ start) * zs[:200]).sum(dim=1).mean().backward()
    stepped = start.detach() - rate * start.grad
    u, s, vt = torch.linalg.svd(stepped)
    expected = u * s.clamp(max=1) @ vt
    np.testing.assert_allclose(rcsls(x[:200], z[:200], x, z, k, rounds=1, rate=rate), expected.numpy(), atol=1e-5)


# ---------------------------------------------------------------- neighbours and retrieval


@pytest.mark.parametrize(("rows", "columns", "k"), [(3, 5, 9), (4, 200, 1), (7, 1000, 10), (5, 3333, 25)])
def test_top_is_what_sorting_all_gives(rows, columns, k):
    scores = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    values, places = top(scores, k)
    order = torch.argsort(-scores, dim=1, stable=True)[:, :k]
    assert torch.equal(places, order) and torch.equal(values, scores.gather(1, order))


@pytest.mark.parametrize(("columns", "k"), [(4, 3), (50, 10), (50, 1), (1000, 1), (1000, 10), (3333, 25)])
def test_ties_go_to_the_more_frequent(columns, k):
    """Also at the k-th place, where `topk` takes any of the equal ones: a word's twin at the end of the vocabulary comes second."""
    draw = torch.Generator().manual_seed(0)
    assert top(torch.zeros(2, columns), k)[1].tolist() == [list(range(k))] * 2
    scores = torch.randn(20, columns, generator=draw).round(decimals=1)  # many ties
    scores[:10] = torch.cat([scores[:10, : columns // 2], scores[:10, : columns - columns // 2]], 1)
    values, places = top(scores, k)
    order = torch.argsort(-scores, dim=1, stable=True)[:, :k]
    assert torch.equal(places, order) and torch.equal(values, scores.gather(1, order))


def test_one_product_serves_both_sides(monkeypatch):
    monkeypatch.setattr("components.embeddings.neighbours.SCORES", 200)  # several blocks
    draw = np.random.default_rng(0)
    x, z = tensor(unit(draw.standard_normal((40, 6)))), tensor(unit(draw.standard_normal((30, 6))))
    price_x, price_z = torch.rand(40), torch.rand(30)
    cosines = x @ z.T
    there, back = both_ways(x, z, price_x, price_z)
    assert torch.equal(there, (cosines - price_z).argmax(dim=1)) and torch.equal(back, (cosines.T - price_x).argmax(dim=1))
    there, back = both_ways(x, z)
    assert torch.equal(there, cosines.argmax(dim=1)) and torch.equal(back, cosines.argmax(dim=0))
    for k in (1, 4, 35):
        for mine, rows in zip((crowding(x, z, k), crowding(z, x, k)), (cosines, cosines.T), strict=True):
            torch.testing.assert_close(mine, rows.sort(dim=1, descending=True).values[:, :k].mean(dim=1))


def test_the_best_of_each_column_is_its_first_maximum():
    scores = torch.randn(1000, 4000, generator=torch.Generator().manual_seed(0)).round(decimals=1)  # many ties
    values, places = best_down(scores)
    assert torch.equal(values, scores.amax(dim=0))
    assert np.array_equal(places.numpy(), scores.numpy().argmax(axis=0))


def test_csls_and_the_inverted_softmax_are_their_formulas(monkeypatch):
    monkeypatch.setattr("components.embeddings.neighbours.SCORES", 200)
    draw = np.random.default_rng(0)
    source, target = unit(draw.standard_normal((40, 6))), unit(draw.standard_normal((30, 6)))
    queries, k = source[5:15], 4
    price, softmax = (retrieval(tensor(target), tensor(source), k).numpy() for retrieval in (csls, inverted_softmax))
    for x in queries:
        r_t = np.mean(sorted((x @ t for t in target), reverse=True)[:k])
        for j, y in enumerate(target):
            r_s = np.mean(sorted((s @ y for s in source), reverse=True)[:k])
            assert 2 * (x @ y - price[j]) - r_t == pytest.approx(2 * (x @ y) - r_t - r_s, abs=1e-6)
            probability = np.exp(INVERSE_TEMPERATURE * x @ y) / np.exp(INVERSE_TEMPERATURE * source @ y).sum()
            assert INVERSE_TEMPERATURE * (x @ y - softmax[j]) == pytest.approx(np.log(probability), abs=1e-4)


def clustered(
    n: int = 4000, d: int = 100, clusters: int = 50, within: float = 0.45, noise: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Words in clusters, and the same words rotated with noise: normalised, (n, d) each."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((clusters, d))[draw.integers(clusters, size=n)] + within * draw.standard_normal((n, d))
    y = x @ rotation(draw, d) + noise * draw.standard_normal((n, d))
    return normalise(x.astype(np.float32)), normalise(y.astype(np.float32))


ASKED = np.arange(3000, 3500)


def p1(x: np.ndarray, y: np.ndarray, fitted: Fitted, retrieval: str) -> float:
    mapped, fixed = map(tensor, fitted.apply(x, y))
    best = nearest(mapped[ASKED], fixed, 1, RETRIEVALS[retrieval](fixed, mapped, 10))[1][:, 0]
    return float((best.numpy() == ASKED).mean())


def test_the_known_behaviour_on_synthetic_spaces():
    """With as many pairs as dimensions least squares finds nothing and Procrustes with CSLS some; with many both do."""
    x, y = clustered()

    def of(name: str, seeds: int, retrieval: str) -> float:
        return p1(x, y, fit(x, y, same(seeds), method(name)), retrieval)

    assert of("mikolov_2013", 100, "csls") < 0.03
    assert 0.12 < of("xing_2015", 100, "csls") < 0.30
    least, best = of("mikolov_2013", 2000, "csls"), of("xing_2015", 2000, "csls")
    assert 0.75 < least < best and best > 0.9
    assert of("xing_2015", 2000, "nn") < best - 0.1  # hubs


@pytest.mark.long
def test_self_learning_gets_from_100_pairs_what_2000_give():
    x, y = clustered()
    learned = self_learning.learn(x, y, same(100), method("artetxe_2018b"))
    assert p1(x, y, fit(x, y, learned.rows, method("artetxe_2018b")), "csls") > 0.9
    few, again = (self_learning.learn(x, y, same(100), method("artetxe_2018b", self_learning={"max_rounds": 3})) for _ in range(2))
    assert np.array_equal(again.rows, few.rows) and again.objective == few.objective
    assert few.rounds == 3 and len(set(few.rows[: len(x), 1])) > len(x) / 4, "the last dictionary is chosen among all words"
    assert (learned.rows[:, 0] == learned.rows[:, 1]).mean() > 0.9 and learned.rounds < 200


@pytest.mark.parametrize("direction", ["forward", "union", "mutual"])
def test_a_dictionary_is_induced_one_way_both_ways_or_where_both_agree(direction):
    x, y = clustered(600, 20, clusters=10)
    how = method("artetxe_2018b", self_learning={"direction": direction, "keep": 1.0})
    rows, objective = self_learning.induce(tensor(x), tensor(x), 1.0, how, np.random.default_rng(0))
    assert len(rows) == {"forward": 600, "union": 1200, "mutual": 600}[direction]
    assert (rows[:, 0] == rows[:, 1]).all() and objective == pytest.approx(1, abs=1e-4)
    rows, _ = self_learning.induce(tensor(x), tensor(y), 1.0, how, np.random.default_rng(0))
    mutual = {(a, b) for a, b in rows.tolist()}
    assert direction != "mutual" or (len(rows) < 600 and len({b for _, b in mutual}) == len(mutual))
    some, _ = self_learning.induce(tensor(x), tensor(y), 0.1, how, np.random.default_rng(0))
    assert direction != "forward" or len(set(some[:, 1])) <= 60, "a tenth of the targets to choose among"


def test_without_any_pair_a_rotated_space_is_found():
    """And words in another order say nothing: the start looks at similarities alone."""
    x, y = clustered(1500, 30, clusters=30, noise=0.15)
    shuffled = np.random.default_rng(1).permutation(1500)
    how = method("artetxe_2018b", start="similarity")
    rows = self_learning.by_similarity(x, y[shuffled], 10)
    learned = self_learning.learn(x, y[shuffled], rows, how)
    assert (shuffled[learned.rows[:, 1]] == learned.rows[:, 0]).mean() > 0.9


# ---------------------------------------------------------------- figures


def test_the_rank_of_a_translation_counts_all_targets():
    targets = tensor(unit(np.array([[1, 0], [1, 1], [0, 1], [-1, 0]])))
    asked = tensor(np.array([[1.0, 0], [1, 0], [0, 1]]))
    assert evaluate.mean_reciprocal_rank(asked, targets, None, [[0], [3, 2], [3]]) == pytest.approx((1 + 1 / 3 + 1 / 4) / 3)
    assert evaluate.mean_reciprocal_rank(asked[:1], targets, torch.tensor([1.0, 0, 0, 0]), [[0]]) == pytest.approx(1 / 2)


def test_vectors_that_are_all_the_same_find_nothing():
    """Each translation was in the first place (embeddings-benchmark/mteb's issue 5092)."""
    same = tensor(unit(np.ones((50, 3))))
    golds = [[49], [20, 9], [0]]
    ranks = [int((nearest(same[:1], same, 50)[1][0] == gold).nonzero()) + 1 for gold in (49, 9, 0)]
    assert ranks == [50, 10, 1]
    mrr = evaluate.mean_reciprocal_rank(same[:3], same, None, golds)
    assert mrr == pytest.approx(sum(1 / rank for rank in ranks) / 3)


def test_a_hub_is_seen():
    even, hub = np.arange(20).reshape(10, 2), np.stack([np.arange(10), np.full(10, 15)], axis=1)
    assert evaluate.hubness(even, 20) == {"hub_skew": 0, "top_hub": 0.1}
    assert evaluate.hubness(hub, 20)["top_hub"] == 1 and evaluate.hubness(hub, 20)["hub_skew"] > 3


def test_a_rotated_space_has_the_same_shape_and_another_has_not():
    x, y = clustered(800, 30, clusters=20)
    draw = np.random.default_rng(2)
    rotated = x @ rotation(draw, 30)
    other = normalise(draw.standard_normal((800, 30)))
    assert evaluate.unlikeness(x, rotated, words=400) == pytest.approx(0, abs=1)
    assert evaluate.unlikeness(x, y, words=400) < evaluate.unlikeness(x, other, words=400) / 2
    assert evaluate.unlikeness(x, x[:300]) == pytest.approx(0, abs=1e-6), "as many words of each"


def test_the_graph_of_a_line_of_words():
    """Four words in a row, each joined with the nearest: two pairs, whose Laplacian has the eigenvalues 2, 2, 0, 0."""
    angles = np.array([0.0, 0.1, 1.0, 1.1])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    expected = np.array([[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, -1], [0, 0, -1, 1]])
    np.testing.assert_array_equal(evaluate.laplacian(rows, 1), expected)
    np.testing.assert_array_equal(np.diag(evaluate.laplacian(np.repeat(rows, 2, axis=0), 1)), np.ones(8))  # equal words: not themselves
    # three joined with all others have 4, 4, 4, 0; of 12 the first three make up 90 %, of 2, 2, 0, 0 the first two
    full = np.eye(4)
    assert evaluate.unlikeness(full, rows, k=1) == evaluate.unlikeness(rows, full, k=1)
    spectrum = np.linalg.eigvalsh(evaluate.laplacian(full, 1))[::-1]
    assert evaluate.unlikeness(full, rows, k=1) == pytest.approx(sum((spectrum[:2] - 2) ** 2))


def test_a_field_laid_over_a_presets_self_learning_leaves_its_others():
    alignment = {"source": "a", "target": "b", "dictionary": {"kind": "identical", "train": 1, "test": 1}}
    laid = params.Alignment(**alignment, methods=[{"preset": "conneau_2018", "self_learning": {"vocabulary": 5000}}]).methods[0]
    own = method("conneau_2018").self_learning
    assert laid.self_learning == own.model_copy(update={"vocabulary": 5000}) and own.direction == "mutual"


def test_presets_are_methods_of_their_papers():
    assert all(method(name).name == name for name in PRESETS)
    for a, b in itertools.combinations(PRESETS, 2):
        assert PRESETS[a] != PRESETS[b], f"{a} and {b} are one method under two names"
