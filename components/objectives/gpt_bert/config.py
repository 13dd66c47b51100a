"""Settings of GPT-BERT."""

from typing import Annotated, Literal

from pydantic import Field

from components.objectives.examples.config import MaskedTokens


class GptBert(MaskedTokens):
    """A decoder that learns as GPT and as BERT by turns (Charpentier and Samuel 2024): the same weights, output and text.

    Targets of a masked step are predicted from the position before them, as a next token is. Unlike there, a step is of
    one kind, not a device, and the share of targets does not fall. Validation is of the causal model alone.
    """

    trains = ("left_to_right",)
    samples_title = "continuations"

    name: Literal["gpt_bert"]
    masked_steps: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the steps in which tokens are masked and a document is read on both sides; the others read left to right."""


Objective = GptBert
