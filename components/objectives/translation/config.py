"""Settings of Translation."""

from typing import Annotated, Literal

from pydantic import Field

from components.objectives.config import ObjectiveBlock


class Translation(ObjectiveBlock):
    """Predict the second text of each document from the first (Vaswani et al. 2017); needs a corpus read with `format: parallel`."""

    trains = ("source_then_target",)
    samples_title = "translations"

    name: Literal["translation"]
    reverse: bool = False
    """Whether the first text is predicted from the second."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the target's probability that is spread over the vocabulary (section 5.4); the reported loss is without it."""


Objective = Translation
