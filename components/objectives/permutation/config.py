"""Settings of PermutationLM."""

from typing import Annotated, Literal

from pydantic import Field

from components.objectives.config import ObjectiveBlock


class PermutationLM(ObjectiveBlock):
    """The last tokens of an order that is drawn, each from all that stand before it in that order (Yang et al. 2019, section 2.3)."""

    trains = ("any_order",)
    continues = True
    samples_title = "likeliest fillings of [MASK]"

    name: Literal["permutation"]
    predicted_share: Annotated[float, Field(gt=0, lt=1)] = 1 / 6
    """The share of a row's ordinary tokens that is predicted: the last ones of their order (the paper's K = 6)."""
    memory: Annotated[int, Field(ge=0, le=2**20)] | None = None
    """Tokens before a row that it sees, of the row that it continues; null: half as many as a row has. No gradient goes into them."""

    def check_prompt(self, prompt: str) -> None:
        if "[MASK]" not in prompt:
            raise ValueError(f"prompt {prompt!r} has no [MASK]; mark the place to fill with [MASK]")


Objective = PermutationLM
