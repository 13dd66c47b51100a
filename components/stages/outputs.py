"""Reading what other stages wrote: an error about a missing or damaged file names the stage that writes it."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from components.core.errors import SesameError, one_line
from components.core.storage import metrics_path
from components.stages import registry


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error about a file of another stage into a SesameError that names the file and the stage to run again."""
    try:
        yield
    except FileNotFoundError:
        command = " ".join(["sesame run", *writer(path)])
        raise SesameError(f"{path}: no such file; run the stage that writes it first (`{command}`)") from None
    except MALFORMED as error:
        reason = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        stages = writer(path)
        # an unchanged stage is not run again: DVC brings back what it wrote
        advice = f"`sesame run {stages[0]}` brings back what its stage wrote" if stages else "run the stage that writes it"
        raise SesameError(f"{path} can't be read ({reason}); {advice}") from None


MALFORMED = (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, RuntimeError, SafetensorError)
"""Errors of parsers and libraries on a file that is truncated, empty, or of another format."""


def writer(path: Path) -> list[str]:
    """Return the stage that wrote a file under data/; an empty list if it is unknown."""
    above, _, inside = str(path.with_suffix("")).rpartition("data/")
    folder, *names = inside.split("/")
    stages = [stage.format(*names, "", "") for stage in registry.writers().get(folder, ())]
    ran = [stage for stage in stages if (Path(above) / metrics_path(*stage.split("@"))).exists()]
    return (ran or stages) if len(ran or stages) == 1 else []


def read_json(path: Path) -> Any:
    """Read a JSON file of another stage. Raise SesameError that names the file."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> Iterator[dict]:
    """Yield the JSON objects, one per line, of a file of another stage. Raise SesameError that names the file."""
    with reading(path), path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: {error.msg}") from None
            yield row


def rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file of another stage. Raise SesameError that names the file."""
    with reading(path), path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


METRICS = Path("data/report/metrics.json")
"""Stage -> metrics in the last report, of all stages that params.yaml declares; committed to git."""


def committed_metrics() -> dict[str, dict]:
    """Return stage -> metrics in the last report, from git; empty if they can't be read."""
    with suppress(SesameError, AttributeError):
        return {name: metrics for name, metrics in read_json(METRICS).items() if isinstance(metrics, dict)}
    return {}


def last_metrics(stage: str, name: str, of_studies: bool = False, committed: dict[str, dict] | None = None) -> dict:
    """Return the metrics of a stage's last run: from its file, else from git; empty if neither can be read.

    For many stages, read `committed_metrics` once. Only for estimates: a damaged file must not keep its stage from running.
    """
    with suppress(SesameError):
        return read_json(metrics_path(stage, name, of_studies))
    return (committed_metrics() if committed is None else committed).get(f"{stage}@{name}", {})
