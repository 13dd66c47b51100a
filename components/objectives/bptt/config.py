"""Settings of RecurrentLM."""

from typing import Literal, Self

from components.core.config import Size
from components.models.common.config import ArchitectureBlock
from components.objectives.config import ObjectiveBlock


class RecurrentLM(ObjectiveBlock):
    """Language modelling over continuous streams of text by truncated back-propagation through time (Merity et al. 2018, section 4.1;
    windows are of one length here)."""

    trains = ("recurrent",)
    continues = True
    samples_title = "continuations"

    name: Literal["bptt"]
    window: Size = 70
    """Tokens of back-propagation; the state is passed on to the next window."""
    backward: bool = False
    """Whether the text is read from its end, and each token predicted from those after it."""

    def check_reader(self, architecture: ArchitectureBlock) -> None:
        super().check_reader(architecture)
        if architecture.backward != self.backward:
            raise ValueError("objective.backward and architecture.backward differ; set both to the same value")

    def row_length(self, max_length: int) -> int:
        return self.window

    def with_row_length(self, length: int) -> Self:
        return self.model_copy(update={"window": length})


Objective = RecurrentLM
