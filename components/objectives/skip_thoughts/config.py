"""Settings of SkipThoughts."""

from typing import Literal

from components.core.config import Size
from components.objectives.config import ObjectiveBlock


class SkipThoughts(ObjectiveBlock):
    """Generate the sentences before and after a sentence from its vector (Kiros et al. 2015). Without the paper's vocabulary
    expansion, since no word is unknown to a model of subword tokens."""

    trains = ("recurrent", "left_to_right", "both_sides")
    incomparable_loss = True
    reads_layers = True
    flops_batch_size = None
    samples_title = "nearest sentences"

    name: Literal["skip_thoughts"]
    decoder_size: Size | None = None
    """Width of the two GRU decoders; null: the model's."""


Objective = SkipThoughts
