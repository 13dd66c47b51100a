"""Curves of loss against tokens, fitted to losses drawn from a known one."""

import numpy as np
import pytest

from components.comparison import scaling
from components.core.errors import SesameError

TOKENS = np.array([1e5, 3e5, 1e6, 3e6])


def truth(tokens):
    """Of a small model on a small text."""
    return 3.0 + 1.2 * (np.asarray(tokens) / 1e6) ** -0.3


def measured(seed: int, noise: float = 0.02, seeds: int = 3) -> scaling.Curve:
    """The fit to as many trainings at each budget."""
    losses = truth(TOKENS)[:, None] + np.random.default_rng(seed).normal(0, noise, (len(TOKENS), seeds))
    return scaling.fit(TOKENS, losses.mean(1), losses.std(1, ddof=1), [seeds] * len(TOKENS), seed)


def test_the_interval_covers_the_true_curve_as_often_as_it_says():
    """95 % of 80 fits, give or take two standard errors: inside the budgets, ten times beyond them, and of what is gained."""
    curves = [measured(seed) for seed in range(80)]
    for told, true in (
        ([curve.at(1e6) for curve in curves], truth(1e6)), ([curve.at(3e7) for curve in curves], truth(3e7)),
        ([curve.gain(3e6, 3e7) for curve in curves], truth(3e6) - truth(3e7)),
    ):  # fmt: skip
        covered = np.mean([own.low <= true <= own.high for own in told])
        assert 0.90 <= covered <= 0.99
    widths = [[own.high - own.low for own in (curve.at(1e6), curve.at(3e7))] for curve in curves]
    assert np.median(widths, 0)[1] > 3 * np.median(widths, 0)[0], "what lies beyond is known less well"


def test_without_noise_the_curve_is_found():
    curve = scaling.fit(TOKENS, truth(TOKENS), [1e-9] * 4, [3] * 4)
    assert curve.at(3e7).value == pytest.approx(truth(3e7), abs=2e-3) and curve.floor.value == pytest.approx(3.0, abs=0.02)
    assert curve.gain(3e6, 3e7).value == pytest.approx(truth(3e6) - truth(3e7), abs=2e-3)


def test_what_does_not_fall_gains_nothing_and_no_loss_is_below_zero():
    flat = scaling.fit(TOKENS, [2.0, 2.01, 2.02, 2.03], [0.001] * 4, [3] * 4)
    assert flat.gain(3e6, 3e7).value == 0 and flat.at(3e7).value == pytest.approx(2.015)
    steep = scaling.fit(TOKENS, [4.0, 2.7, 1.3, 0.1], [0.01] * 4, [3] * 4)
    assert steep.floor.low >= 0 and steep.at(1e12).low >= 0


SIZES, BUDGETS = np.repeat([2e5, 7e5, 2e6], 3), np.tile([3e5, 1e6, 3e6], 3)


def surface(parameters, tokens):
    return 2.0 + 1.0 * (parameters / 7e5) ** -0.35 + 1.2 * (tokens / 1e6) ** -0.3


def test_the_interval_of_a_rung_covers_the_surface_and_trainings_to_come():
    """At twice the size and three times the tokens of what was fitted; of few fits, since each takes most of a second."""
    held = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        losses = surface(SIZES, BUDGETS)[:, None] + rng.normal(0, 0.02, (9, 3))
        fitted = scaling.fit_surface(SIZES, BUDGETS, losses.mean(1), losses.std(1, ddof=1), [3] * 9, seed)
        true, next_mean = surface(4e6, 9e6), surface(4e6, 9e6) + rng.normal(0, 0.02, 3).mean()
        at, of_runs = fitted.at(4e6, 9e6), fitted.at(4e6, 9e6, runs=3)
        assert of_runs.value == at.value and of_runs.high - of_runs.low > at.high - at.low > 0
        held += [at.low <= true <= at.high, of_runs.low <= next_mean <= of_runs.high]
    assert sum(held) >= 10


def test_without_noise_the_surface_is_found():
    fitted = scaling.fit_surface(SIZES, BUDGETS, surface(SIZES, BUDGETS), [1e-9] * 9, [3] * 9)
    assert fitted.at(4e6, 9e6).value == pytest.approx(surface(4e6, 9e6), abs=1e-6), "between the exponents of the grid, too"
    assert fitted.size_exponent.value == pytest.approx(0.3 / 0.65, abs=1e-4)
    flat = scaling.fit_surface(SIZES, BUDGETS, [3.0] * 9, [1e-9] * 9, [3] * 9)
    assert flat.at(1e9, 1e9).value == pytest.approx(3.0)  # nothing is gained where nothing was


def test_what_brings_nothing_gets_no_compute():
    fitted = scaling.fit_surface(SIZES, BUDGETS, 2 + (BUDGETS / 1e6) ** -0.3, [1e-9] * 9, [3] * 9)
    assert fitted.size_exponent.value == 0
    fitted = scaling.fit_surface(SIZES, BUDGETS, 2 + (SIZES / 7e5) ** -0.3, [1e-9] * 9, [3] * 9)
    assert fitted.size_exponent.value == 1
    assert scaling.fit_surface(SIZES, BUDGETS, [3.0] * 9, [1e-9] * 9, [3] * 9).size_exponent is None


def test_two_sizes_or_one_seed_fit_no_surface():
    with pytest.raises(SesameError, match="needs three sizes and three budgets or more; fitted are 2 sizes and 3 budgets"):
        scaling.fit_surface(SIZES[:6], BUDGETS[:6], [3.0] * 6, [0.1] * 6, [2] * 6)
    with pytest.raises(SesameError, match="there is a single seed"):
        scaling.fit_surface(SIZES, BUDGETS, [3.0] * 9, [0.0] * 9, [1] * 9)


def test_three_budgets_or_one_seed_are_too_few():
    with pytest.raises(SesameError, match="needs 4 budgets or more, and there are 3"):
        scaling.fit(TOKENS[:3], [4, 3.5, 3.2], [0.1] * 3, [3] * 3)
    with pytest.raises(SesameError, match="there is a single seed"):
        scaling.fit(TOKENS, [4, 3.5, 3.2, 3.1], [0.0] * 4, [1] * 4)
