"""Settings of SkipThoughts."""

from typing import Literal

from components.core.config import Size
from components.objectives.config import ObjectiveBlock


class SkipThoughts(ObjectiveBlock):
    """A sentence's vector is what the sentences before and after it are written from (Kiros et al. 2015). Its vocabulary expansion has no
    place here: to a model of pieces no word is unknown."""

    trains = ("recurrent", "left_to_right", "both_sides")
    own_loss = True
    counted_rows = None
    samples_title = "nearest sentences"

    name: Literal["skip_thoughts"]
    decoder_size: Size | None = None
    """Width of the two GRUs that write; null: the model's."""


Objective = SkipThoughts
