"""Expected validation performance: golden values, the definition by brute force, the bands, where curves cross."""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.labs.search import curve, page
from components.labs.search.curve import Curve

RESULTS = [
    0.412, 0.655, 0.583, 0.701, 0.000, 0.688, 0.529, 0.714, 0.667, 0.491,
    0.702, 0.610, 0.688, 0.345, 0.575, 0.733, 0.648, 0.266, 0.597, 0.719,
]  # fmt: skip
ONE = {"trials": 1.0, "hours": 0.5, "kwh": 0.1}


@pytest.mark.parametrize(
    ("trials", "expected", "unbiased"),
    [  # both sums in exact fractions, apart from this code
        (1, 0.5661500000, 0.5661500000),
        (2, 0.6563925000, 0.6611421053),
        (5, 0.7049625884, 0.7087778638),
        (10, 0.7192557992, 0.7232605707),
        (20, 0.7268511168, 0.7330000000),
    ],
)
def test_golden_values(trials, expected, unbiased):
    found = Curve(RESULTS, ONE, 0.95)
    assert found.at(trials) == pytest.approx(expected, abs=1e-9) and found.unbiased(trials) == pytest.approx(unbiased, abs=1e-9)


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 6])
def test_the_mean_best_over_all_draws_with_and_without_putting_back(trials):
    few = [0.2, 0.9, 0.4, 0.4, 0.7, 0.0]
    found = Curve(few, ONE, 0.9)
    assert found.at(trials) == pytest.approx(statistics.fmean(map(max, itertools.product(few, repeat=trials))))
    assert found.unbiased(trials) == pytest.approx(statistics.fmean(map(max, itertools.combinations(few, trials))))


def test_most_trials_that_params_allow_don_t_overflow():
    """opda's binomials are floats. `v_tuning_curve` sums whole-number trials; ours goes on between them."""
    found = Curve(list(np.linspace(0, 1, 1000)), ONE, 0.5)
    trials = np.array([1, 500, 1000])
    assert np.isfinite(found.unbiased(trials)).all() and found.unbiased(1000) == 1.0
    assert (found.at(trials) == pytest.approx(found.point.v_tuning_curve(trials))) and found.at(1) < found.at(1.5) < found.at(2)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.5, 0.8, 0.95]))
def test_the_band_holds_the_curve_and_widens_with_confidence(results, confidence):
    found, wider = Curve(results, ONE, confidence), Curve(results, ONE, 0.99)
    trials = np.arange(1, len(results) + 1)
    for values, (low, high), (lower, higher) in (
        (found.median(trials), found.band(trials), wider.band(trials)),
        (found.at(trials), found.expected_band(trials), wider.expected_band(trials)),
    ):
        assert (low >= 0).all() and (low <= values + 1e-9).all() and (values <= high + 1e-9).all() and (high <= 1).all()
        assert (lower <= low + 1e-9).all() and (higher >= high - 1e-9).all()
    assert 0 <= found.reach <= len(results)


def test_the_band_holds_the_true_curve_as_often_as_it_says():
    """Uniform scores: the best of n is expected at n / (n + 1), its median is 0.5^(1 / n)."""
    trials, rng = np.arange(1, 9), np.random.default_rng(0)
    held = {"median": 0, "expected": 0}
    for _ in range(60):
        found = Curve(rng.random(8).tolist(), ONE, 0.8)
        for name, (low, high), true in (
            ("median", found.band(trials), 0.5 ** (1 / trials)),
            ("expected", found.expected_band(trials), trials / (trials + 1)),
        ):
            held[name] += bool(((low <= true) & (true <= high)).all())
    assert min(held.values()) >= 48


@pytest.mark.parametrize(("trials", "reach"), [(10, 1), (20, 2), (40, 4), (60, 6), (100, 10), (200, 19)])
def test_how_far_the_band_has_an_upper_end(trials, reach):
    """The table of docs/search.md."""
    assert Curve(np.linspace(0.1, 0.9, trials).tolist(), ONE, 0.95).reach == reach


def test_where_two_curves_cross_depends_on_what_a_trial_costs():
    steady = Curve([0.6] * 20, {"trials": 1, "hours": 1.0, "kwh": 1.0}, 0.95)
    rare = Curve([0.3] * 15 + [0.9] * 5, {"trials": 1, "hours": 4.0, "kwh": 30.0}, 0.95)  # 0.9 - 0.6 * 0.75^n > 0.6 from n = 3 on
    compared = curve.compare(steady, rare, "trials")
    assert compared.ahead == [(1, 1.0, 2.0), (-1, 3.0, 20.0)]
    hours = curve.compare(steady, rare, "hours")
    assert hours.ahead[0][:2] == (1, 4.0) and hours.ahead[1][0] == -1 and hours.ahead[1][2] == 20.0
    crossing = 4 * np.log(0.5) / np.log(0.75)  # 9.64 hours
    assert hours.ahead[0][2] < crossing < hours.ahead[1][1] and hours.ahead[1][1] - hours.ahead[0][2] < 0.1
    assert curve.compare(steady, rare, "kwh").ahead == []
    assert page.sentence("a", "b", compared, "CPU") == "Ahead: a from 1 to 2 trials, b from 3 to 20 trials; no difference beyond the bands."
    assert "No budget in common" in page.sentence("a", "b", curve.compare(steady, rare, "kwh"), "CPU")
    same = page.sentence("a", "b", curve.compare(steady, steady, "trials"), "CPU")
    assert same == "Ahead: neither from 1 to 20 trials; no difference beyond the bands."


def test_a_large_difference_between_many_trials_is_beyond_the_bands():
    rng = np.random.default_rng(0)
    good, bad = (Curve((centre + 0.02 * rng.random(60)).tolist(), ONE, 0.95) for centre in (0.9, 0.2))
    compared = curve.compare(bad, good, "trials")
    assert compared.beyond and compared.beyond[0][:2] == (-1, 1.0) and compared.beyond[0][2] < 60
    assert "beyond the bands: good from 1 to" in page.sentence("bad", "good", compared, "CPU")


def test_what_failed_counts_as_nothing():
    assert [curve.clipped(score) for score in (0.7, None, float("nan"), -0.2, 0.0)] == [0.7, 0.0, 0.0, 0.0, 0.0]
    np.testing.assert_array_equal(curve.best_so_far([None, 0.2, None, 0.1, 0.5]), [np.nan, 0.2, 0.2, 0.2, 0.5])
