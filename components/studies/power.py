"""Power: the smallest differences that a study can detect, estimated before it runs from the deviation over seeds in past studies."""

from math import sqrt
from typing import NamedTuple

import pandas as pd

from components import params
from components.comparison.detection import detectable_errors
from components.params import LOSS
from components.studies.folders import LAST, REPORTS


class Power(NamedTuple):
    """The power of one measure in a study."""

    smallest: float
    """The smallest difference between two variants that a single comparison detects in four of five cases. Test items
    add to it."""
    studies: int
    """How many past studies the spread is of."""


def power(name: str, study: params.Study) -> dict[str, Power]:
    """The power of each measure that past studies have: a task, an evaluation, bits per byte. Empty for a study of one
    seed.

    The deviation is that of the study's last run, else of all studies: of other models and budgets,
    and so an estimate.
    """
    if (n := len(study.seeds)) < 2:
        return {}
    last_run = REPORTS / f"{name}.csv"
    past = [pd.read_csv(path) for path in ([last_run] if last_run.exists() else sorted(REPORTS.glob("*.csv")))]
    errors = detectable_errors(2 * (n - 1))
    powers = {}
    for measure in (LOSS, *study.measures):
        rows = [table[(table["milestone"] == LAST) & (table["n"] > 1)] for table in past if f"{measure}_std" in table]
        if measure == LOSS:  # a variant that is only tuned has the training of another one, which counts once
            rows = [table.drop_duplicates(["tokens", LOSS, f"{LOSS}_std"]) for table in rows]
        known = pd.concat([table[["n", f"{measure}_std"]].dropna() for table in rows]) if rows else pd.DataFrame()
        if len(known):
            degrees = known["n"] - 1
            variance = float((degrees * known[f"{measure}_std"] ** 2).sum() / degrees.sum())
            powers[measure] = Power(errors * sqrt(2 * variance / n), len(rows))
    return powers


def sentence(name: str, study: params.Study) -> str:
    """Describe a study's power before it runs."""
    if len(study.seeds) < 2:
        return "power    one seed shows no difference: name more under seeds"
    if not (powers := power(name, study)):
        return "power    unknown: no study with these measures has run"
    shown = ", ".join(f"{measure} {one.smallest:.3f}" for measure, one in powers.items())
    count = max(one.studies for one in powers.values())
    of = f"{count} past stud{'ies' if count > 1 else 'y'}"
    return (
        f"power    {len(study.seeds)} seeds a variant detect differences from these on, in four cases of five: {shown} "
        f"(each by itself; estimated from the deviation over seeds in {of}; test items and the correction add to it)"
    )
