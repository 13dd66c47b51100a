"""How large a difference must be for a comparison to find it, and what none at all says."""

from functools import cache
from math import nan

from scipy.optimize import brentq
from scipy.stats import nct, norm
from scipy.stats import t as student

LEVEL = 0.05
"""Of a test, two-sided."""
POWER = 0.8
"""The share of cases in which a difference of the detectable size is found."""
NORMAL = 10_000
"""Degrees of freedom from which Student's t is taken for normal: the noncentral one is slow and inexact there."""


@cache
def detectable_errors(degrees: float) -> float:
    """The true difference, in standard errors, that Student's test with so many degrees of freedom finds in POWER of the cases.

    By the noncentral t: the sum of both quantiles of the central one would be found in .77 of the cases with 2 degrees, .79 with 4.
    NaN where there are no degrees of freedom.
    """
    if not degrees > 0:
        return nan
    if degrees > NORMAL:
        return float(norm.ppf(1 - LEVEL / 2) + norm.ppf(POWER))
    critical = student.ppf(1 - LEVEL / 2, degrees)
    return float(brentq(lambda errors: nct.sf(critical, degrees, errors) - POWER, 0, 3 * critical))


def without_variance(middle: float, groups: int) -> tuple[float, float]:
    """Half the width of the interval, and p, where the difference is `middle` in each run and each group of examples.

    A variance of 0 is an estimate, too: 5 of 5 right answers do not exclude a model that is wrong in half of the cases. The
    share of groups that differ from these has an exact upper bound (Clopper and Pearson 1934), and such a group moves the
    mean by 1 + |middle| at most, for scores from 0 to 1. p is the level at which the interval would end at 0: where all
    groups differ by 1, that of the sign test. Where the sampling of examples is ignored, the interval has no width.
    """
    if not groups:
        return 0.0, float(middle == 0)
    reach = 1 + abs(middle)
    return reach * (1 - (LEVEL / 2) ** (1 / groups)), min(1.0, 2 * reach**-groups)
