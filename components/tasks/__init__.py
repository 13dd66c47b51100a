"""Tasks: labelled examples from the sources of `params.yaml` in one format (`python -m components.tasks NAME`), and their metrics.

`data/tasks/<name>/<split>.jsonl` have one example per line, `{"id", "text_a", "text_b", "label"}` and further fields by kind of task;
labels are names or numbers, never indices; `card.json` describes them. To add a task, add a section to `params.yaml`, without code; files
that are not plain tables need a module in `readers`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.core.errors import SesameError
from components.stages.outputs import read_json, read_lines, reading

Label = str | float | list[str] | None
"""By kind of task: the name of a label; a score; the names of the correct choices; the correct answers or texts; a tag per word. None
without a label."""


@dataclass(frozen=True)
class Example:
    """One text or a pair of texts with its label."""

    id: str
    text_a: str
    text_b: str | None
    label: Label
    group: str | None = None
    """Examples of a group are evaluated together: answers to one question, versions of one sentence."""
    choices: dict[str, str] | None = None
    """Choice: name -> text, each read as text_b."""
    words: list[str] | None = None
    """Tagging: the words of text_a."""
    spans: list[tuple[str, int, int]] | None = None
    """Spans that truncation must keep, (field, first character, end): marked words, or the answers in text_b."""
    cluster: str | None = None
    """Examples of a split that share a text, as questions on one passage, have the same: they depend on each other, and an interval takes
    them together."""

    def line(self) -> str:
        """Return the example as a line of JSON, without optional fields that are None."""
        required = ("id", "text_a", "text_b", "label")
        fields = {key: value for key, value in asdict(self).items() if key in required or value is not None}
        return json.dumps(fields, ensure_ascii=False) + "\n"


def read(path: str | Path, split: str) -> list[Example]:
    """Read the examples of a split of `data/tasks/<name>`. Raise SesameError if there is no such split, or its file is damaged."""
    folder, file = Path(path), Path(path) / f"{split}.jsonl"
    if not file.exists() and (splits := sorted(other.stem for other in folder.glob("*.jsonl"))):
        raise SesameError(f"task {folder.name} has no split {split} (there are: {', '.join(splits)})")
    with reading(file):
        rows = list(read_lines(file))
        if not rows:
            raise ValueError("no examples")
        for row in rows:
            if "spans" in row:
                row["spans"] = [tuple(span) for span in row["spans"]]
        return [Example(**row) for row in rows]


def predictions(folder: Path, split: str, init: str) -> dict[int | None, dict[str, object]]:
    """Return seed -> id -> prediction from a folder's `predictions.jsonl`; the seed is None for a method without random numbers.

    Raise SesameError if there are none.
    """
    by_seed: dict[int | None, dict[str, object]] = {}
    with reading(file := folder / "predictions.jsonl"):
        for row in read_lines(file):
            if row["split"] == split and row["init"] == init:
                by_seed.setdefault(row["seed"], {})[row["id"]] = row["prediction"]
    if not by_seed:
        raise SesameError(f"{folder} has no predictions for the {split} split from {init} weights")
    return by_seed


def card(path: str | Path) -> dict:
    """Read the description of a task: sources, counts and label shares per split."""
    return read_json(Path(path) / "card.json")


def subset(examples: list[Example], size: int | None, seed: int | list[int]) -> list[Example]:
    """Return a random subset in a fixed order; a smaller subset is contained in a larger one.

    Groups stay complete: as many are drawn as fit into `size`, and at least one.
    """
    if size is None or size >= len(examples):
        return examples
    groups = group_indices(examples)
    chosen: list[int] = []
    for i in np.random.default_rng(seed).permutation(len(groups)):
        if chosen and len(chosen) + len(groups[i]) > size:
            break
        chosen += groups[i]
    return [examples[i] for i in chosen]


def group_indices(examples: Sequence[Example]) -> list[list[int]]:
    """Return the indices of the examples of each group, in the order of the first ones; an example without a group is a group."""
    return _indices(example.group for example in examples)


def cluster_indices(examples: Sequence[Example]) -> list[list[int]]:
    """Return the indices of the examples that depend on each other, in the order of the first ones: those of a cluster, or of a group where
    they share no text."""
    return _indices(example.group if example.cluster is None else f"cluster {example.cluster}" for example in examples)


def _indices(names: Iterable[str | None]) -> list[list[int]]:
    """Return the indices of each name, in the order of the first ones; each None is a name of its own."""
    named: dict[object, list[int]] = {}
    for i, name in enumerate(names):
        named.setdefault(i if name is None else name, []).append(i)
    return list(named.values())
