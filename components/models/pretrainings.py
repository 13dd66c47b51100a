"""The pre-trainings of one model with different seeds (`pretrainings` of a model)."""

from pathlib import Path


def pretrainings(model: Path) -> list[Path]:
    """Return the folders of a model's pre-trainings: the model's folder is the first, the others are below it, from number 2 on."""
    return [model, *sorted((model / "pretrainings").glob("*"), key=lambda folder: int(folder.name))]
