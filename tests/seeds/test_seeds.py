"""Seeds apart: the shares by hand and under chance, the best of n by brute force, what stopping saves, a whole grid."""

import itertools
import json
import statistics

import numpy as np
import pandas as pd
import pytest

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.labs.seeds import __main__ as grid
from components.labs.seeds import chance, row
from tests.conftest import save_random, tiny_params

ADDITIVE = np.array([[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]])


def test_shares_by_hand():
    """Rows 0.1 and 0.4 about 0.25, columns 0.15, 0.25 and 0.35: sums of squares 0.135 and 0.04, nothing left."""
    weights, order = chance.effects(ADDITIVE)
    assert weights.share == pytest.approx(0.135 / 0.175) and order.share == pytest.approx(0.04 / 0.175)
    assert weights.by_chance == pytest.approx(0.135 / 0.175 * 1 / 3) and order.by_chance == pytest.approx(0.04 / 0.175 * 2 / 4)
    same = chance.effects(np.full((3, 4), 0.5))
    assert [part.share for part in same] == [0, 0] and min(part.p for part in same) == 1.0


def test_what_is_chance_is_called_so_and_what_is_none_is_seen():
    """A twentieth of grids without an effect is beyond p = .05, whatever the other kind of seed does; and that hides no smaller effect."""
    rng = np.random.default_rng(0)
    null = [part.p for _ in range(100) for part in chance.effects(rng.normal(size=(5, 6)))]
    assert 0.015 <= np.mean(np.array(null) < 0.05) <= 0.09
    rows = [chance.effects(rng.normal(size=(8, 8)) + 2 * rng.normal(size=(8, 1))) for _ in range(60)]
    assert np.mean([weights.p < 0.05 for weights, _ in rows]) == 1.0 and 0.01 <= np.mean([order.p < 0.05 for _, order in rows]) <= 0.12
    assert np.mean([order.share for _, order in rows]) == pytest.approx(np.mean([order.by_chance for _, order in rows]), rel=0.2)
    both = [chance.effects(rng.normal(size=(8, 8)) + 2 * rng.normal(size=(8, 1)) + rng.normal(size=(1, 8))) for _ in range(30)]
    assert np.mean([order.p < 0.05 for _, order in both]) > 0.9


def test_the_gain_of_the_best_and_how_sure_it_is():
    dev, judged = np.array([[0.1, 0.4], [0.3, 0.2]]), np.array([[0.6, 0.1], [0.5, 0.4]])
    best = [max(drawn, key=dev.ravel().__getitem__) for drawn in itertools.product(range(4), repeat=3)]
    value, low, high = chance.gain(dev, judged, 3)
    assert value == pytest.approx(judged.ravel()[best].mean() - 0.4) and low < value < high
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(8, 1))  # all that there is are eight initialisations
    alike = chance.gain(rows + 0.01 * rng.normal(size=(8, 8)), rows + 0.01 * rng.normal(size=(8, 8)), 10)
    free = rng.normal(size=(8, 8))
    apart = chance.gain(free, free, 10)
    assert alike[2] - alike[1] > 1.5 * (apart[2] - apart[1]), "64 trainings of eight are not 64"


def test_the_interval_of_the_gain_holds_the_truth():
    """A bootstrap's held it in 69 of 100 cases where both kinds of seed matter, and was too low in the others."""
    rng = np.random.default_rng(3)

    def split(scores: np.ndarray) -> np.ndarray:
        return scores + 3 * rng.normal(size=scores.shape)

    fresh = (6**2 + 6**2 + 4**2) ** 0.5 * rng.normal(size=(20_000, 30))  # trainings that share no seed
    true = np.take_along_axis(split(fresh), split(fresh).argmax(1)[:, None], axis=1).mean()
    grids = 6 * rng.normal(size=(100, 8, 1)) + 6 * rng.normal(size=(100, 1, 8)) + 4 * rng.normal(size=(100, 8, 8))
    intervals = [chance.gain(dev, judged, 30)[1:] for dev, judged in zip(split(grids), split(grids), strict=True)]
    assert np.mean([low <= true <= high for low, high in intervals]) >= 0.85


def test_of_trainings_with_the_same_score_on_dev_each_may_be_the_best():
    """The last one was."""
    judged = np.linspace(0.1, 0.9, 20).reshape(4, 5)
    assert chance.gain(np.full((4, 5), 0.5), judged, 10) == pytest.approx((0, 0, 0))
    dev, judged = np.array([0.1, 0.4, 0.4, 0.2]), np.array([0.6, 0.1, 0.5, 0.4])
    drawn = [np.array(own) for own in itertools.product(range(4), repeat=3)]
    by_hand = statistics.fmean(judged[own[dev[own] == dev[own].max()]].mean() for own in drawn) - 0.4
    assert chance._gain(dev, judged, 3) == pytest.approx(by_hand) == chance._gain(dev[::-1], judged[::-1], 3)


def test_the_best_of_n_on_dev_and_what_it_is_worth_elsewhere():
    dev, judged = np.array([0.1, 0.4, 0.3, 0.2, 0.5, 0.0]), np.array([0.6, 0.1, 0.5, 0.4, 0.2, 0.3])
    for found, n in zip(chance.trained_fully(dev, judged, 3, [1, 2, 6]), [1, 2, 6], strict=True):
        best = [max(drawn, key=dev.__getitem__) for drawn in itertools.combinations(range(6), n)]
        assert (found.begun, found.epochs) == (n, 3 * n)
        assert found.dev == pytest.approx(statistics.fmean(dev[best]), abs=0.01)
        assert found.judged == pytest.approx(statistics.fmean(judged[best]), abs=0.01)


def test_stopping_early_costs_fewer_epochs_and_nothing_where_the_first_look_is_the_last_word():
    rng = np.random.default_rng(1)
    dev, judged = rng.random(40), rng.random(40)
    [sure] = chance.stopped_early(dev, dev, judged, after=2, epochs=6, keep=0.25, begun=[10])
    [every] = chance.trained_fully(dev, judged, 6, [10])
    assert sure.epochs == 10 * 2 + 3 * 4 and (sure.dev, sure.judged) == (every.dev, every.judged)
    [blind] = chance.stopped_early(rng.random(40), dev, judged, after=2, epochs=6, keep=0.25, begun=[10])
    assert blind.dev == pytest.approx(chance.trained_fully(dev, judged, 6, [3])[0].dev, abs=0.02)  # as good as three that nobody looked at
    [wrong] = chance.stopped_early(-dev, dev, judged, after=2, epochs=6, keep=0.25, begun=[10])
    assert wrong.dev < blind.dev < sure.dev


def test_a_share_of_trainings_is_counted_without_rounding_errors():
    [found] = chance.stopped_early(np.arange(100.0), np.arange(100.0), np.arange(100.0), after=1, epochs=2, keep=0.55, begun=[100])
    assert found.epochs == 100 + 55


def checked(recipe: dict | None = None, **changes) -> params.Params:
    raw = tiny_params()
    raw["seed_grid"] = {"models": ["bert"], "tasks": ["same"], "initialisations": [3, 4], "orders": [5, 6, 7], "keep": 0.5} | changes
    raw["finetune"]["recipes"]["bert"] |= {"pair": "apart", "head": "mix"} | (recipe or {})  # learns what random weights can show
    return params.check(raw)


@pytest.fixture
def made(project, tokens) -> params.Params:
    own = checked()
    save_random(own, "bert", tokens)
    return own


def test_a_grid(made):
    for seed in (3, 4):
        found = row.row(made, f"bert-same-{seed}", Run(None))
        row.file(f"bert-same-{seed}").with_suffix(".json").write_text(json.dumps(found))
    lines = pd.read_csv(row.file("bert-same-3"))
    row.row(made, "bert-same-3", Run(None))
    again = pd.read_csv(row.file("bert-same-3"))
    assert len(lines) == 3 and lines.drop(columns="seconds").equals(again.drop(columns="seconds"))  # the same seeds, the same scores
    assert len({tuple(own) for own in lines.filter(like="epoch").to_numpy()}) > 1  # another order, another training
    page = grid.seed_grid(made, "all", Run(None))
    assert set(page["grids"]) == {"bert-same"} and 0 <= page["grids"]["bert-same"]["order_share"] <= 1
    text = grid.PAGE.read_text()
    assert "6 trainings score from" in text and "<svg" in text and "best on dev of 3" in text


def test_all_trainings_of_a_grid_have_the_same_examples(made):
    """Seeds draw weights and order alone, and the table's line says so."""
    assert row.row(checked(train_examples=60), "bert-same-3", Run(None))["protocol"].endswith("60 labelled examples")


def test_a_grid_of_random_weights_has_their_rate(made, monkeypatch):
    rates = []
    monkeypatch.setattr(row, "train", lambda setup, folder, recipe, *others: rates.append(recipe.learning_rate) or 1 / 0)
    for init in ("random", "pretrained"):
        with pytest.raises(ZeroDivisionError):
            row.row(checked({"learning_rate": 1e-6, "starts": {"random": {"learning_rate": 0.03}}}, init=init), "bert-same-3", Run(None))
    assert rates == [0.03, 1e-6]


def test_a_score_that_is_undefined_is_named(made):
    for seed in (3, 4):
        frame = pd.DataFrame({"initialisation": seed, "order": [5, 6, 7], "epoch_1": 0.5, "dev": [0.5, None if seed == 4 else 0.4, 0.3]})
        row.file(f"bert-same-{seed}").parent.mkdir(parents=True, exist_ok=True)
        frame.assign(judged=0.5, seconds=1.0).to_csv(row.file(f"bert-same-{seed}"), index=False)
    with pytest.raises(SesameError, match="bert on same, initialisation 4, order 6: the score is undefined"):
        grid.seed_grid(made, "all", Run(None))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"orders": [1, 1]}, "seed_grid.orders: 1 is listed twice"),
        ({"keep": 1.0}, "seed_grid.keep"),
        ({"models": ["berta"]}, "no 'berta' in models"),
        ({"tasks": ["sama"]}, "no 'sama' in tasks"),
        ({"recipe": {"patience": 1}}, "seed_grid.models: bert's recipe has patience"),
    ],
)
def test_wrong_params(changes, said):
    with pytest.raises(SesameError, match=said):
        checked(**changes)


def test_a_task_whose_test_split_has_no_labels_is_refused():
    raw = tiny_params()
    raw["tasks"]["same"]["test"] = {"source": {"kind": "files", "paths": ["raw/pairs.tsv"]}, "labelled": False}
    raw["seed_grid"] = {"models": ["bert"], "tasks": ["same"], "initialisations": [1, 2], "orders": [1, 2]}
    with pytest.raises(SesameError, match="seed_grid.tasks: same has no test split with labels"):
        params.check(raw)


def test_what_looks_undefined_looks_worst(made):
    for seed in (3, 4):
        frame = pd.DataFrame({"initialisation": seed, "order": [5, 6, 7], "epoch_1": [None, 0.2, 0.1], "epoch_2": 0.5, "dev": 0.5})
        row.file(f"bert-same-{seed}").parent.mkdir(parents=True, exist_ok=True)
        frame.assign(judged=[0.5, 0.4, 0.6], seconds=1.0).to_csv(row.file(f"bert-same-{seed}"), index=False)
        row.file(f"bert-same-{seed}").with_suffix(".json").write_text(json.dumps({"protocol": "dev split"}))
    found = grid.seed_grid(made, "all", Run(None))["grids"]["bert-same"]
    assert found["rank_after"] == [None] and "undefined" in grid.PAGE.read_text()


def test_a_row_that_is_not_declared():
    with pytest.raises(SesameError, match="is not in seed_grid of studies/params.yaml .there are: bert-same-3, bert-same-4"):
        row.row(checked(), "bert-same-9", Run(None))
