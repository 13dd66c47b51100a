"""Settings of Translation."""

from typing import Annotated, Literal

from pydantic import Field

from components.objectives.config import ObjectiveBlock


class Translation(ObjectiveBlock):
    """The second text of each document from the first (Vaswani et al. 2017): a corpus whose reader is of `format: parallel`."""

    trains = ("source_then_target",)
    samples_title = "translations"

    name: Literal["translation"]
    reverse: bool = False
    """The first from the second."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the target's probability that is spread over the vocabulary (section 5.4); the loss that is reported is without."""


Objective = Translation
