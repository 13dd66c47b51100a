"""Tasks: labelled examples from the sources of `params.yaml` in one form (`python -m components.tasks NAME`), and their metrics.

`data/tasks/<name>/{train,dev,test}.jsonl` hold an example a line, `{"id", "text_a", "text_b", "label"}`; labels are
names or numbers, never indices; `card.json` says what they are. One more task is a block of `params.yaml`, no code.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.errors import SesameError
from components.stage import read_json

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Example:
    """One text or a pair of texts with its label: a name, a number, or None where the source has none."""

    id: str
    text_a: str
    text_b: str | None
    label: str | float | None

    def line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def read(path: str | Path, split: str) -> list[Example]:
    """The examples of one split of `data/tasks/<name>`."""
    file = Path(path) / f"{split}.jsonl"
    try:
        with file.open(encoding="utf-8") as lines:
            return [Example(**json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise SesameError(f"{file}: no such file; run its stage first (`sesame run task@{file.parent.name}`)") from None


def card(path: str | Path) -> dict:
    """What a task is: licence, sources, counts and label shares per split."""
    return read_json(Path(path) / "card.json")


def subset(examples: list[Example], size: int | None, seed: int) -> list[Example]:
    """A seeded subset in a fixed order; the smaller of two sizes is a part of the larger."""
    if size is None or size >= len(examples):
        return examples
    order = np.random.default_rng(seed).permutation(len(examples))
    return [examples[i] for i in order[:size]]
