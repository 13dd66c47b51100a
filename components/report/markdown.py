"""Rows of committed CSV tables, and how README.md and docs show them."""

from pathlib import Path

from components.stages import outputs

REPORT = Path("data/report")
RESULTS = Path("docs/results")
"""Tables of the report after runs with a profile: evaluations.csv, and layers.csv of probes."""


def rows(name: str, folder: Path = REPORT) -> list[dict[str, str]]:
    """The rows of a CSV table of the report, or of another folder."""
    return outputs.rows(folder / f"{name}.csv")


def find(name: str, folder: Path = REPORT, **wanted: str) -> dict[str, str]:
    """The first row of a table that has these values."""
    return next(row for row in rows(name, folder) if all(row[key] == value for key, value in wanted.items()))


def spread(row: dict[str, str]) -> str:
    """`0.697 ± 0.011`; an undefined figure is left out."""
    return " ± ".join(f"{float(row[key]):.3f}" for key in ("mean", "std") if row[key])


def interval(row: dict[str, str], middle: str, low: str, high: str, sign: str = "") -> str:
    """`0.327 [0.286, 0.370]` from three columns; with `sign` "+" for differences. A single item has no interval."""
    if not row[low]:
        return f"{float(row[middle]):{sign}.3f}"
    return f"{float(row[middle]):{sign}.3f} [{float(row[low]):{sign}.3f}, {float(row[high]):{sign}.3f}]"


def table(head: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])
