"""Scaling laws: loss against tokens, and against the model's parameters: a power law with an offset, fitted to a few points, and its
extrapolation.

`fit`: loss(D) = E + B * D^-b with E, B >= 0, as equation 2 of Hoffmann et al. 2022 with the tokens only. E is the loss with infinite
text. `fit_surface`: the complete equation, loss(N, D) = E + A * N^-a + B * D^-b with N parameters of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import least_squares

from components.core.errors import SesameError

EXPONENTS = np.geomspace(0.02, 2.0, 300)
"""The grid for b; published values for language models are 0.095 to 0.37 (Kaplan et al. 2020; Hoffmann et al. 2022)."""
DRAWS = 1000
NEGLIGIBLE = 1e-6
"""Nats: smaller terms are rounding errors of the fit."""
MIN_POINTS = 4
"""A curve of three parameters fits any three points."""


@dataclass(frozen=True)
class Estimate:
    """A value of the fitted curve, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """`3.91 [3.84, 3.97]`."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Curve:
    """A fitted curve, and those of its bootstrap."""

    unit: float
    """Tokens at which A is the loss above E."""
    fitted: np.ndarray  # (1 + draws, 3): E, A, b; the fit itself first

    def at(self, tokens: float) -> Estimate:
        """The loss after so many tokens: of the curve, without the noise of another run."""
        offset, scale, exponent = self.fitted.T
        return _estimate(offset + scale * (tokens / self.unit) ** -exponent)

    def gain(self, now: float, then: float) -> Estimate:
        """The decrease of the loss from `now` to `then` tokens."""
        _, scale, exponent = self.fitted.T
        return _estimate(scale * ((now / self.unit) ** -exponent - (then / self.unit) ** -exponent))

    @property
    def floor(self) -> Estimate:
        """E."""
        return _estimate(self.fitted[:, 0])


def _estimate(figures: np.ndarray) -> Estimate:
    low, high = np.quantile(figures[1:], [0.025, 0.975])
    return Estimate(float(figures[0]), float(low), float(high))


def fit(tokens: Sequence[float], losses: Sequence[float], deviations: Sequence[float], runs: Sequence[int], seed: int = 1) -> Curve:
    """Fit a curve to mean losses after so many tokens, each of several runs with a standard deviation.

    The interval is a parametric bootstrap: losses are drawn around the means with Student's t and the deviation pooled over
    the points. Runs that are the same trainings at several points are treated as independent. Raises SesameError for fewer than
    four points, or points of a single run, which have no estimate of the noise.
    """
    x, y, spread, count = (np.asarray(values, dtype=float) for values in (tokens, losses, deviations, runs))
    if len(set(x)) < MIN_POINTS:
        raise SesameError(f"a curve of three parameters needs {MIN_POINTS} budgets or more, and there are {len(set(x))}; add milestones")
    samples, _ = _bootstrap(y, spread, count, seed)
    unit = float(np.exp(np.log(x).mean()))
    return Curve(unit, _least_squares(x / unit, np.concatenate([y[None], samples]), count))


def _least_squares(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """E, A and b for each row of `y` (rows, points): exact in E and A for each exponent, of which the best is chosen."""
    share = weights / weights.sum()
    basis = x[None, :] ** -EXPONENTS[:, None]  # (exponents, points)
    mean_y, mean_x = y @ share, basis @ share
    across = (y * share) @ basis.T  # (rows, exponents)
    of_x, of_y = (basis**2) @ share, (y**2) @ share
    scale = (across - mean_y[:, None] * mean_x) / (of_x - mean_x**2)
    scale = np.maximum(scale, 0.0)  # a loss does not increase with tokens
    offset = mean_y[:, None] - scale * mean_x
    scale = np.where(offset < 0, across / of_x, scale)  # and is not below 0
    offset = np.maximum(offset, 0.0)
    error = of_y[:, None] - 2 * (offset * mean_y[:, None] + scale * across)
    error += offset**2 + 2 * offset * scale * mean_x + scale**2 * of_x
    best, rows = error.argmin(1), np.arange(len(y))
    return np.stack([offset[rows, best], scale[rows, best], EXPONENTS[best]], axis=1)


RATES = np.geomspace(0.02, 2.0, 40)
"""The grid for a and b of a surface, from whose best point least squares goes on."""


@dataclass(frozen=True)
class Surface:
    """A fitted surface, and those of its bootstrap."""

    units: tuple[float, float]
    """Parameters and tokens at which A and B are the two terms."""
    fitted: np.ndarray  # (1 + draws, 5): E, A, a, B, b; the fit itself first
    deviation: float
    """Of one training around its mean, pooled over the rungs."""
    freedom: int
    """Degrees of freedom of the deviation."""

    def at(self, parameters: float, tokens: float, runs: int | None = None, seed: int = 2) -> Estimate:
        """The loss of a model of this size after so many tokens: of the surface, or with the noise of the mean of `runs`."""
        offset, scale, rate, other, decay = self.fitted.T
        losses = offset + scale * (parameters / self.units[0]) ** -rate + other * (tokens / self.units[1]) ** -decay
        if runs:
            noise = np.random.default_rng(seed).standard_t(self.freedom, len(losses)) * self.deviation / np.sqrt(runs)
            losses = losses + np.where(np.arange(len(losses)) > 0, noise, 0.0)
        return _estimate(losses)

    @property
    def size_exponent(self) -> Estimate | None:
        """b / (a + b): the share of a compute budget's exponent that goes into parameters for the lowest loss, the rest goes into tokens
        (Hoffmann et al. 2022, equation 4; their estimate is 0.46). 0 where size has no effect, 1 where tokens have none; None where
        neither has."""
        _, scale, rate, other, decay = self.fitted.T
        no_size, no_tokens = scale < NEGLIGIBLE, other < NEGLIGIBLE
        shares = np.where(no_size, 0.0, np.where(no_tokens, 1.0, decay / (rate + decay)))
        return None if no_size[0] and no_tokens[0] else _estimate(shares)


def fit_surface(
    parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float], deviations: Sequence[float], runs: Sequence[int],
    seed: int = 1,
) -> Surface:  # fmt: skip
    """Fit a surface to mean losses of models with so many parameters after so many tokens; the interval is a bootstrap as in `fit`.

    Raises SesameError for fewer than three sizes or budgets, which do not determine an exponent, or rungs of a single run.
    """
    n, d, y, spread, count = (np.asarray(values, dtype=float) for values in (parameters, tokens, losses, deviations, runs))
    if (sizes := len(set(n))) < 3 or len(set(d)) < 3:
        raise SesameError(f"a surface needs three sizes and three budgets or more; fitted are {sizes} sizes and {len(set(d))} budgets")
    samples, deviation = _bootstrap(y, spread, count, seed)
    units = float(np.exp(np.log(n).mean())), float(np.exp(np.log(d).mean()))
    draws, ratios = np.concatenate([y[None], samples]), (n / units[0], d / units[1])
    coarse = _grid_search(*ratios, draws, count)
    fitted = np.stack([_refined(*ratios, losses, count, start) for losses, start in zip(draws, coarse, strict=True)])
    return Surface(units, fitted, deviation, int((count - 1).sum()))


def _bootstrap(y: np.ndarray, spread: np.ndarray, count: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Means drawn with Student's t, (draws, points), and the deviation pooled over the points."""
    if (count < 2).any():
        raise SesameError("an interval needs a deviation over seeds, and there is a single seed; add some")
    freedom = (count - 1).sum()
    pooled = np.sqrt(((count - 1) * spread**2).sum() / freedom)
    return y + np.random.default_rng(seed).standard_t(freedom, size=(DRAWS, len(y))) * pooled / np.sqrt(count), float(pooled)


def _grid_search(n: np.ndarray, d: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """E, A, a, B and b for each row of `y` (rows, points): exact in E, A and B, none below 0, for each pair of exponents."""
    root, best = np.sqrt(weights / weights.sum()), np.full(len(y), np.inf)
    fitted = np.zeros((len(y), 5))
    for rate, decay in product(RATES, RATES):
        basis = np.stack([np.ones_like(n), n**-rate, d**-decay])
        open_rows = np.ones(len(y), dtype=bool)
        for kept in ((0, 1, 2), (1, 2), (0, 2), (0, 1), (0,), (1,), (2,)):
            used, target = basis[list(kept)] * root, y[open_rows] * root
            solved = target @ np.linalg.pinv(used)  # (rows, kept)
            error = ((solved @ used - target) ** 2).sum(1)
            rows, good = np.flatnonzero(open_rows), (error < best[open_rows]) & (solved >= 0).all(1)
            complete = np.zeros((int(good.sum()), 3))
            complete[:, kept] = solved[good]
            best[rows[good]] = error[good]
            fitted[rows[good]] = np.insert(complete, [2, 3], [rate, decay], axis=1)
            if len(kept) == 3:  # where a term would be below 0, the best fit is without it and not better than with it
                open_rows = np.zeros(len(y), dtype=bool)
                open_rows[rows[(error < best[rows]) & ~good]] = True
            if not open_rows.any():
                break
    return fitted


def _refined(n: np.ndarray, d: np.ndarray, y: np.ndarray, weights: np.ndarray, start: np.ndarray) -> np.ndarray:
    """E, A, a, B and b by least squares over the losses (points,), from the best point of the grid."""
    root = np.sqrt(weights / weights.sum())

    def residuals(surface: np.ndarray) -> np.ndarray:
        offset, scale, rate, other, decay = surface
        return (offset + scale * n**-rate + other * d**-decay - y) * root

    def gradients(surface: np.ndarray) -> np.ndarray:
        _, scale, rate, other, decay = surface
        of_size, of_text = n**-rate, d**-decay
        columns = [np.ones_like(n), of_size, -scale * of_size * np.log(n), of_text, -other * of_text * np.log(d)]
        return np.stack(columns, 1) * root[:, None]

    lowest, highest = [0, 0, RATES[0], 0, RATES[0]], [np.inf, np.inf, RATES[-1], np.inf, RATES[-1]]
    start = np.clip(start, lowest, highest)
    return least_squares(residuals, start, gradients, bounds=(lowest, highest), method="dogbox").x
