"""What MLflow takes: flat names of which no two are equal, values up to a length, and numbers."""

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

CURVES = "curves/"
"""Prefix of metrics that are logged at several steps; MLflow's page groups them by it."""


def flatten(value: dict) -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`; of `{"a.b": 1, "a": {"b": 2}}` both values."""
    names, leaves = zip(*_leaves(value), strict=True) if value else ((), ())
    return dict(zip(apart(names), leaves, strict=True))


def _leaves(value: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


LONGEST = 6000
"""Characters of a parameter that MLflow stores."""


def shortened(value: str) -> str:
    """Shorten a parameter to the length that MLflow stores, with a digest, so that different values stay different."""
    if len(value) <= LONGEST:
        return value
    return f"{value[: LONGEST - 100]}... ({len(value):,} characters, md5 {hashlib.md5(value.encode()).hexdigest()})"


LONGEST_NAME = 200
"""Characters. MLflow takes 250, of which `curves/` and the `_` of `apart` need some."""


def accepted(name: str) -> str:
    """Put `_` where MLflow refuses a character of a name, as of a data file's suite `center_embed (mod)`, or a part of it:
    MLflow reads `https://a.org` as a path. A long name ends in its digest, so that different names stay different."""
    parts = re.sub(r"[^\w.\- :/]", "_", name).split("/")
    name = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 33]}_{hashlib.md5(name.encode()).hexdigest()}"


def as_metrics(metrics: dict, step: int | None) -> list:
    """The numbers of a nested dictionary as MLflow's metrics."""
    from mlflow.entities import Metric

    now, prefix = int(time.time() * 1000), "" if step is None else CURVES
    flat = flatten(metrics)
    numbers = {key: flat[key] for key in flat if isinstance(flat[key], int | float) and not isinstance(flat[key], bool)}
    return [Metric(prefix + name, float(value), now, step or 0) for name, value in named(numbers)]


def named(flat: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a flat dictionary, each under a name of its own that MLflow takes."""
    return zip(apart(map(accepted, flat)), flat.values(), strict=True)


def apart(names: Iterable[str]) -> list[str]:
    """Give names that have become equal, as of `a (b)` and `a [b]`, one more `_` each: MLflow would keep the last value
    alone."""
    taken: dict[str, None] = {}
    for name in names:
        while name in taken:
            name += "_"
        taken[name] = None
    return list(taken)
