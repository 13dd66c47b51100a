"""Tables that stages wrote, as pandas holds them."""

from pathlib import Path

import pandas as pd


def of_csv(path: Path) -> pd.DataFrame:
    """A CSV file. An empty field alone says that there is nothing: `nan` and `null` are words, and names of models, too."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])
