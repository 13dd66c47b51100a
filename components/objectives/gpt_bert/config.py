"""Settings of GPT-BERT."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Share
from components.objectives.config import ObjectiveBlock


class GptBert(ObjectiveBlock):
    """A decoder that learns as GPT and as BERT by turns (Charpentier and Samuel 2024): the same weights, output and text.

    Hidden tokens are predicted from the position before them, as a next token is. Unlike there, a step is of one kind,
    not a device, and the share of hidden tokens does not fall. Validation is of the causal model alone.
    """

    trains = ("left_to_right",)
    samples_title = "continuations"

    name: Literal["gpt_bert"]
    masked_steps: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the steps in which tokens are hidden and their document is read on both sides; the others read left to right."""
    mlm_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the ordinary tokens that are hidden in a masked step."""
    mask_share: Share = 0.8
    """Share of the hidden tokens that become [MASK] (BERT: 0.8)."""
    random_share: Share = 0.1
    """Share of the hidden tokens that become a random token (BERT: 0.1); the rest stays as it is."""

    @model_validator(mode="after")
    def shares_fit(self):
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share + random_share is more than 1; lower one of them")
        return self


Objective = GptBert
