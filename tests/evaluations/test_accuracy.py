"""Accuracy and margin of pairs, and their errors."""

import numpy as np
import pytest

from components.core.errors import SesameError
from components.evaluations.minimal_pairs.accuracy import accuracies
from components.evaluations.minimal_pairs.pairs import Pair

PAIRS = [
    Pair(f"{name}-{i}", name, what, "a", "b") for name, what in (("x", "p"), ("y", "p"), ("z", "q")) for i in range(40)
]


def test_figures_are_means_over_paradigms():
    good, bad = np.zeros(120, np.float32), np.zeros(120, np.float32)
    good[:30] = 2  # three quarters of x are right, the rest ties
    bad[40:80] = 1  # y is wrong
    good[80:] = np.tile([3, -1], 20)
    good[119] = np.nan
    pieces = np.zeros(120), np.r_[np.ones(20), np.zeros(100)]
    found = accuracies(PAIRS, good, bad, pieces)
    x, y, z = found.paradigms.values()
    assert (x.accuracy, x.margin, x.pairs, x.unequal) == (0.875, 1.5, 40, 0.5)
    assert (y.accuracy, y.margin) == (0, -1) and y.accuracy_error == y.margin_error == 0
    assert z.accuracy == pytest.approx(20 / 39) and z.pairs == 39 and found.left_out == 1
    assert found.phenomena["p"].accuracy == pytest.approx(0.4375) and found.phenomena["p"].pairs == 80
    assert found.overall.accuracy == pytest.approx((0.875 + 0 + 20 / 39) / 3) and found.overall.pairs == 119
    assert found.overall.unequal == pytest.approx(20 / 119)
    assert found == accuracies(PAIRS, good, bad, pieces) != accuracies(PAIRS, good, bad, pieces, seed=1)


def test_each_pair_may_count_the_same():
    own = [Pair(str(i), "many" if i < 300 else "few", "all", "a", "b") for i in range(400)]
    good = np.where(np.arange(400) % 4 < np.where(np.arange(400) < 300, 3, 1), 1.0, -1.0)
    found = accuracies(own, good, np.zeros(400), by_pair=True)
    assert found.overall == found.phenomena["all"]
    assert found.overall.accuracy == pytest.approx((225 + 25) / 400)
    assert found.overall.accuracy_error == pytest.approx((0.75 * 0.25 / 400) ** 0.5, rel=0.1)
    assert accuracies(own, good, np.zeros(400)).overall.accuracy == pytest.approx(0.5)


def test_rounding_is_a_tie():
    assert accuracies(PAIRS[:1], np.float32([-100.00001]), np.float32([-100])).overall.accuracy == 0.5


def test_errors_are_those_of_the_binomial_and_of_paradigms():
    draws = np.random.default_rng(0)
    names = [f"p{i}" for i in range(30)]
    own = [Pair(f"{name}-{i}", name, "all", "a", "b") for name in names for i in range(100)]
    level = np.repeat(draws.uniform(0.2, 0.9, 30), 100)
    good = np.where(draws.random(3000) < level, 1.0, -1.0)
    found = accuracies(own, good, np.zeros(3000), samples=2000)
    first = found.paradigms["p0"]
    assert first.accuracy_error == pytest.approx((first.accuracy * (1 - first.accuracy) / 100) ** 0.5, rel=0.1)
    between = np.std([one.accuracy for one in found.paradigms.values()]) / 30**0.5  # holds the error of the pairs, too
    assert between < found.overall.accuracy_error < 1.3 * between
    assert found.overall.margin_error == pytest.approx(2 * found.overall.accuracy_error, rel=0.01)


def test_what_goes_wrong_is_a_line():
    with pytest.raises(SesameError, match="120 pairs, 2 scores of right, 3 of wrong sentences: equal numbers"):
        accuracies(PAIRS, np.zeros(2), np.zeros(3))
    with pytest.raises(SesameError, match="none of 1 pairs was scored"):
        accuracies(PAIRS[:1], np.array([np.nan]), np.zeros(1))
