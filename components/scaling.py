"""How a loss falls with the tokens that are read: a power law with an offset, fitted to a few points, and what it promises beyond them.

loss(D) = E + A * D^-b with E, A >= 0, as Hoffmann et al. 2022 (equation 2) have it in the tokens alone. E is what no amount of this
text would go below.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from components.errors import SesameError

EXPONENTS = np.geomspace(0.02, 2.0, 300)
"""Among which b is looked for; 0.095 to 0.37 are published of language models (Kaplan et al. 2020; Hoffmann et al. 2022)."""
DRAWS = 1000
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

    The interval is a parametric bootstrap: losses are drawn around the means anew, by Student's t and the deviation pooled over the
    points. Runs that are the same trainings at several points are taken for apart.
    Raises SesameError for fewer than four points, or points of a single run, which tell nothing of the noise.
    """
    x, y, spread, count = (np.asarray(own, dtype=float) for own in (tokens, losses, deviations, runs))
    if len(set(x)) < LEAST:
        raise SesameError(f"a curve of three parameters needs {LEAST} budgets or more, and there are {len(set(x))}; add milestones")
    freedom = (count - 1).sum()
    if (count < 2).any():
        raise SesameError("an interval needs the spread over seeds, and there is one seed; add some")
    pooled = np.sqrt(((count - 1) * spread**2).sum() / freedom)
    drawn = np.random.default_rng(seed).standard_t(freedom, size=(DRAWS, len(y))) * pooled / np.sqrt(count)
    unit = float(np.exp(np.log(x).mean()))
    return Curve(unit, _least_squares(x / unit, np.concatenate([y[None], y + drawn]), count))


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
