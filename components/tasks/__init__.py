"""Tasks: labelled examples from the sources of `params.yaml` in one form (`python -m components.tasks NAME`), and their metrics.

`data/tasks/<name>/<split>.jsonl` hold an example a line, `{"id", "text_a", "text_b", "label"}` and what its kind of task
needs besides; labels are names or numbers, never indices; `card.json` says what they are. One more task is a block of
`params.yaml`, no code; files that are no plain table need a file in `readers`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.core.errors import SesameError
from components.core.storage import read_json, read_lines, reading

Label = str | float | list[str] | None
"""By kind of task: a label's name; a score; the names of the right choices; the right answers, or
texts; a tag per word. None where there is none."""


@dataclass(frozen=True)
class Example:
    """One text or a pair of texts with its label."""

    id: str
    text_a: str
    text_b: str | None
    label: Label
    group: str | None = None
    """Examples of a group are judged together: answers to one question, versions of one sentence."""
    choices: dict[str, str] | None = None
    """Choice: name -> text, read as text_b one by one."""
    words: list[str] | None = None
    """Tagging: the words of text_a."""
    spans: list[tuple[str, int, int]] | None = None
    """Places that must survive a cut, (field, first character, end): marked words, or where the answers stand in text_b."""

    def line(self) -> str:
        """As JSON; what is not there is left out."""
        required = ("id", "text_a", "text_b", "label")
        there = {key: value for key, value in asdict(self).items() if key in required or value is not None}
        return json.dumps(there, ensure_ascii=False) + "\n"


def read(path: str | Path, split: str) -> list[Example]:
    """The examples of one split of `data/tasks/<name>`. Raises SesameError where there is no such split, or its file is broken."""
    folder, file = Path(path), Path(path) / f"{split}.jsonl"
    if not file.exists() and (there := sorted(other.stem for other in folder.glob("*.jsonl"))):
        raise SesameError(f"task {folder.name} has no split {split} (there are: {', '.join(there)})")
    with reading(file):
        rows = list(read_lines(file))
        if not rows:
            raise ValueError("no examples")
        for row in rows:
            if "spans" in row:
                row["spans"] = [tuple(span) for span in row["spans"]]
        return [Example(**row) for row in rows]


def predictions(folder: Path, split: str, init: str) -> dict[int | None, dict[str, object]]:
    """seed -> id -> prediction, out of a folder's `predictions.jsonl`; the seed of what draws no random numbers is None.

    Raises SesameError where there are none.
    """
    found: dict[int | None, dict[str, object]] = {}
    with reading(file := folder / "predictions.jsonl"):
        for row in read_lines(file):
            if row["split"] == split and row["init"] == init:
                found.setdefault(row["seed"], {})[row["id"]] = row["prediction"]
    if not found:
        raise SesameError(f"{folder} has no predictions for the {split} split from {init} weights")
    return found


def card(path: str | Path) -> dict:
    """What a task is: sources, counts and label shares per split."""
    return read_json(Path(path) / "card.json")


def subset(examples: list[Example], size: int | None, seed: int | list[int]) -> list[Example]:
    """A seeded subset in a fixed order; the smaller of two sizes is a part of the larger.

    Examples that are judged together stay together: whole groups are drawn, as many as fit into `size`, and one at least.
    """
    if size is None or size >= len(examples):
        return examples
    groups = judged_together(examples)
    drawn: list[int] = []
    for i in np.random.default_rng(seed).permutation(len(groups)):
        if drawn and len(drawn) + len(groups[i]) > size:
            break
        drawn += groups[i]
    return [examples[i] for i in drawn]


def judged_together(examples: Sequence[Example]) -> list[list[int]]:
    """The places of the examples of each group, in the order of their first ones; an example without a group is one of its own."""
    groups: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault(f"{i}" if example.group is None else f"group {example.group}", []).append(i)
    return list(groups.values())
