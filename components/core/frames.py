"""Tables that stages wrote, as pandas data frames."""

from pathlib import Path

import pandas as pd

NAMES = (
    "variant", "model", "task", "study", "evaluation", "group", "label", "stratum", "phenomenon", "paradigm", "pair",
    "method", "against", "stage", "system", "point",
)  # fmt: skip
"""Columns that are text whatever they look like: a variant may be called `015` or `1e3`, and paradigms `1.1` and
`1.10`."""


def read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file. Only an empty field is missing: `nan` and `null` may be words, or names of models."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(NAMES, str))
