"""Settings of QuickThoughts."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class QuickThoughts(ObjectiveBlock):
    """A sentence's vector tells its neighbours from the other sentences of the batch (Logeswaran and Lee 2018)."""

    trains = ("recurrent", "left_to_right", "both_sides")
    compares_rows = True
    own_loss = True
    counted_rows = None
    samples_title = "nearest sentences"

    name: Literal["quick_thoughts"]
    encoders: Literal["two", "one"] = "two"
    """`two`: candidates are read by a second network of the same form, which is thrown away afterwards; the paper keeps both."""


Objective = QuickThoughts
