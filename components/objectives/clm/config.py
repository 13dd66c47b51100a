"""Settings of CausalLM."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class CausalLM(ObjectiveBlock):
    """Left-to-right language modelling over packed documents."""

    trains = ("left_to_right",)
    samples_title = "continuations"

    name: Literal["clm"]
    isolate_documents: bool = True
    """A token sees its own document only (attention mask and position ids), not its neighbours in the row."""


Objective = CausalLM
