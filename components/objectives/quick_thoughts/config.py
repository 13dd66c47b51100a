"""Settings of QuickThoughts."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class QuickThoughts(ObjectiveBlock):
    """Identify a sentence's neighbours among the sentences of the batch by their vectors (Logeswaran and Lee 2018)."""

    trains = ("recurrent", "left_to_right", "both_sides")
    contrastive = True
    incomparable_loss = True
    reads_layers = True
    flops_batch_size = None
    samples_title = "nearest sentences"

    name: Literal["quick_thoughts"]
    encoders: Literal["two", "one"] = "two"
    """`two`: candidates are read by a second network of the same architecture, which is discarded afterwards; the paper keeps both."""


Objective = QuickThoughts
