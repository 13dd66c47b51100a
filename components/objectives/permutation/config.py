"""Settings of PermutationLM."""

from typing import Annotated, Literal

from pydantic import Field

from components.objectives.config import ObjectiveBlock, check_has_gap


class PermutationLM(ObjectiveBlock):
    """The last tokens of a random order, each predicted from all before it in that order (Yang et al. 2019, section 2.3)."""

    trains = ("any_order",)
    continues = True
    samples_title = "likeliest fillings of [MASK]"

    name: Literal["permutation"]
    predicted_share: Annotated[float, Field(gt=0, lt=1)] = 1 / 6
    """The share of a sequence's ordinary tokens that is predicted: the last ones of the order (the paper's K = 6)."""
    memory: Annotated[int, Field(ge=0, le=2**20)] | None = None
    """Tokens before a sequence that it attends to, without gradient; null: half the length of a sequence."""

    def check_prompt(self, prompt: str) -> None:
        check_has_gap(prompt)


Objective = PermutationLM
