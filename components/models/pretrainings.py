"""The pre-trainings of one model, which differ in their seed (`repeats` of a model)."""

from pathlib import Path


def pretrainings(model: Path) -> list[Path]:
    """The folders of a model's pre-trainings: its own, which is the first, and those below it, by seed."""
    return [model, *sorted((model / "repeats").glob("*"), key=lambda folder: int(folder.name))]
