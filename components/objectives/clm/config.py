"""Settings of CausalLM."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class CausalLM(ObjectiveBlock):
    """Left-to-right language modelling over packed documents."""

    trains = ("left_to_right",)
    samples_title = "continuations"

    name: Literal["clm"]
    isolate_documents: bool = True
    """Whether a token sees only its document (attention mask and position ids), not the other documents in its sequence."""


Objective = CausalLM
