"""How a loss falls with the tokens that are read, and the size of what reads them: a power law with an offset, fitted to a few points, and
what it promises beyond them.

`fit`: loss(D) = E + B * D^-b with E, B >= 0, as Hoffmann et al. 2022 (equation 2) have it in the tokens alone. E is what no amount of this
text would go below. `fit_surface`: the whole of it, loss(N, D) = E + A * N^-a + B * D^-b with the N parameters of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from components.core.errors import SesameError

EXPONENTS = np.geomspace(0.02, 2.0, 300)
"""Among which b is looked for; 0.095 to 0.37 are published of language models (Kaplan et al. 2020; Hoffmann et al. 2022)."""
DRAWS = 1000
NOTHING = 1e-6
"""Nats: what is less is a rounding error of the fit."""
LEAST = 4
"""Points; a curve of three parameters goes through any three."""


@dataclass(frozen=True)
class Promise:
    """A figure that the fitted curve gives, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """`3.91 [3.84, 3.97]`."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Curve:
    """A fitted curve and those of its bootstrap."""

    unit: float
    """Tokens; A is the loss above E there."""
    fitted: np.ndarray  # (1 + draws, 3): E, A, b; the fit itself first

    def at(self, tokens: float) -> Promise:
        """The loss after so many tokens: of the curve, not of one more run beside it."""
        offset, scale, exponent = self.fitted.T
        return _promise(offset + scale * (tokens / self.unit) ** -exponent)

    def gain(self, now: float, then: float) -> Promise:
        """By how much the loss is lower after `then` tokens than after `now`."""
        _, scale, exponent = self.fitted.T
        return _promise(scale * ((now / self.unit) ** -exponent - (then / self.unit) ** -exponent))

    @property
    def floor(self) -> Promise:
        """E."""
        return _promise(self.fitted[:, 0])


def _promise(figures: np.ndarray) -> Promise:
    low, high = np.quantile(figures[1:], [0.025, 0.975])
    return Promise(float(figures[0]), float(low), float(high))


def fit(tokens: Sequence[float], losses: Sequence[float], deviations: Sequence[float], runs: Sequence[int], seed: int = 1) -> Curve:
    """The curve through mean losses after so many tokens, each of several runs with a standard deviation.

    The interval is a parametric bootstrap: losses are drawn around the means again, by Student's t and the deviation
    pooled over the points. Runs that are the same trainings at several points are taken for apart. Raises SesameError
    for fewer than four points, or points of a single run, which tell nothing of the noise.
    """
    x, y, spread, count = (np.asarray(own, dtype=float) for own in (tokens, losses, deviations, runs))
    if len(set(x)) < LEAST:
        raise SesameError(f"a curve of three parameters needs {LEAST} budgets or more, and there are {len(set(x))}; add milestones")
    drawn, _ = _drawn(y, spread, count, seed)
    unit = float(np.exp(np.log(x).mean()))
    return Curve(unit, _least_squares(x / unit, np.concatenate([y[None], drawn]), count))


def _least_squares(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """E, A and b of each row of `y` (rows, points): exact in E and A for each exponent, of which the best is taken."""
    share = weights / weights.sum()
    basis = x[None, :] ** -EXPONENTS[:, None]  # (exponents, points)
    mean_y, mean_x = y @ share, basis @ share
    across = (y * share) @ basis.T  # (rows, exponents)
    of_x, of_y = (basis**2) @ share, (y**2) @ share
    scale = (across - mean_y[:, None] * mean_x) / (of_x - mean_x**2)
    scale = np.maximum(scale, 0.0)  # a loss does not rise with tokens
    offset = mean_y[:, None] - scale * mean_x
    scale = np.where(offset < 0, across / of_x, scale)  # nor is there one below 0
    offset = np.maximum(offset, 0.0)
    error = of_y[:, None] - 2 * (offset * mean_y[:, None] + scale * across)
    error += offset**2 + 2 * offset * scale * mean_x + scale**2 * of_x
    best, rows = error.argmin(1), np.arange(len(y))
    return np.stack([offset[rows, best], scale[rows, best], EXPONENTS[best]], axis=1)


RATES = np.geomspace(0.02, 2.0, 40)
"""Among which a and b of a surface are looked for together."""


@dataclass(frozen=True)
class Surface:
    """A fitted surface and those of its bootstrap."""

    units: tuple[float, float]
    """Parameters and tokens, where A and B are what the two cost."""
    fitted: np.ndarray  # (1 + draws, 5): E, A, a, B, b; the fit itself first
    deviation: float
    """Of one training about its mean, pooled over the rungs: taken for the same everywhere."""
    freedom: int
    """Degrees that it is known with."""

    def at(self, parameters: float, tokens: float, runs: int | None = None, seed: int = 2) -> Promise:
        """The loss of a size after so many tokens: of the surface, or of the mean of so many `runs`, which have noise of their own."""
        offset, scale, rate, other, decay = self.fitted.T
        losses = offset + scale * (parameters / self.units[0]) ** -rate + other * (tokens / self.units[1]) ** -decay
        if runs:
            noise = np.random.default_rng(seed).standard_t(self.freedom, len(losses)) * self.deviation / np.sqrt(runs)
            losses = losses + np.where(np.arange(len(losses)) > 0, noise, 0.0)
        return _promise(losses)

    @property
    def to_size(self) -> Promise | None:
        """b / (a + b): of ten times the compute, 10 to the power of it goes into parameters where the loss is to be least, the rest into
        tokens (Hoffmann et al. 2022, equation 4; theirs is 0.46). Where size is found to bring nothing 0, where tokens do 1; None where
        neither brings anything."""
        _, scale, rate, other, decay = self.fitted.T
        no_size, no_tokens = scale < NOTHING, other < NOTHING
        shares = np.where(no_size, 0.0, np.where(no_tokens, 1.0, decay / (rate + decay)))
        return None if no_size[0] and no_tokens[0] else _promise(shares)


def fit_surface(
    parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float], deviations: Sequence[float], runs: Sequence[int],
    seed: int = 1,
) -> Surface:  # fmt: skip
    """The surface through mean losses of models of so many parameters after so many tokens; its interval is a bootstrap as in `fit`.

    Raises SesameError for fewer than three sizes or budgets, which leave an exponent open, or rungs of a single run.
    """
    n, d, y, spread, count = (np.asarray(own, dtype=float) for own in (parameters, tokens, losses, deviations, runs))
    if (sizes := len(set(n))) < 3 or len(set(d)) < 3:
        raise SesameError(f"a surface needs three sizes and three budgets or more; fitted are {sizes} sizes and {len(set(d))} budgets")
    drawn, pooled = _drawn(y, spread, count, seed)
    units = float(np.exp(np.log(n).mean())), float(np.exp(np.log(d).mean()))
    return Surface(units, _nearest(n / units[0], d / units[1], np.concatenate([y[None], drawn]), count), pooled, int((count - 1).sum()))


def _drawn(y: np.ndarray, spread: np.ndarray, count: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Means drawn again by Student's t, (draws, points), and the deviation pooled over the points."""
    if (count < 2).any():
        raise SesameError("an interval needs the spread over seeds, and there is one seed; add some")
    freedom = (count - 1).sum()
    pooled = np.sqrt(((count - 1) * spread**2).sum() / freedom)
    return y + np.random.default_rng(seed).standard_t(freedom, size=(DRAWS, len(y))) * pooled / np.sqrt(count), float(pooled)


def _nearest(n: np.ndarray, d: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """E, A, a, B and b of each row of `y` (rows, points): for each pair of exponents exact in E, A and B, none of them below 0."""
    root, best = np.sqrt(weights / weights.sum()), np.full(len(y), np.inf)
    made = np.zeros((len(y), 5))
    for rate, decay in product(RATES, RATES):
        basis = np.stack([np.ones_like(n), n**-rate, d**-decay])
        open_rows = np.ones(len(y), dtype=bool)
        for kept in ((0, 1, 2), (1, 2), (0, 2), (0, 1), (0,), (1,), (2,)):
            used, target = basis[list(kept)] * root, y[open_rows] * root
            solved = target @ np.linalg.pinv(used)  # (rows, kept)
            error = ((solved @ used - target) ** 2).sum(1)
            rows, good = np.flatnonzero(open_rows), (error < best[open_rows]) & (solved >= 0).all(1)
            whole = np.zeros((int(good.sum()), 3))
            whole[:, kept] = solved[good]
            best[rows[good]] = error[good]
            made[rows[good]] = np.insert(whole, [2, 3], [rate, decay], axis=1)
            if len(kept) == 3:  # where one of the three would be below 0 the best is without it, and no better than with it
                open_rows = np.zeros(len(y), dtype=bool)
                open_rows[rows[(error < best[rows]) & ~good]] = True
            if not open_rows.any():
                break
    return made
