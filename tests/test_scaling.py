"""Curves of loss against tokens, fitted to losses drawn from a known one."""

import numpy as np
import pytest

from components import scaling
from components.errors import SesameError

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


def test_three_budgets_or_one_seed_are_too_few():
    with pytest.raises(SesameError, match="needs 4 budgets or more, and there are 3"):
        scaling.fit(TOKENS[:3], [4, 3.5, 3.2], [0.1] * 3, [3] * 3)
    with pytest.raises(SesameError, match="there is one seed"):
        scaling.fit(TOKENS, [4, 3.5, 3.2, 3.1], [0.0] * 4, [1] * 4)
