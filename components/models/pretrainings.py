"""The pre-trainings of one model, which differ in their seed (`pretrainings` of a model)."""

from pathlib import Path


def pretrainings(model: Path) -> list[Path]:
    """The folders of a model's pre-trainings: its own, which is the first, and those below it, from 2 on."""
    return [model, *sorted((model / "pretrainings").glob("*"), key=lambda folder: int(folder.name))]
