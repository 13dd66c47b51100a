"""How large a difference must be for a comparison to find it."""

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
