"""Settings of BidirectionalLM."""

from typing import Literal, Self

from components.core.config import Size
from components.objectives.config import ObjectiveBlock, quoted


class BidirectionalLM(ObjectiveBlock):
    """A forward and a backward language model over continuous streams of text (Peters et al. 2018, section 3.1)."""

    trains = ("each_direction",)
    continues = True
    samples_title = "nearest words in context"

    name: Literal["bilm"]
    window: Size = 32
    """Tokens of back-propagation through time; the state is passed on to the next window."""

    def check_prompt(self, prompt: str) -> None:
        if prompt.count("*") != 2:
            raise ValueError(f"prompt {quoted(prompt)} must mark one *word*")

    def row_length(self, max_length: int) -> int:
        return self.window

    def with_row_length(self, length: int) -> Self:
        return self.model_copy(update={"window": length})


Objective = BidirectionalLM
