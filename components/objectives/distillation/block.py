"""Settings of Distillation, as `components.derive.distilled` makes them."""

from typing import Literal

from components.objectives.block import ObjectiveBlock


class Distillation(ObjectiveBlock):
    """A teacher's distribution over the vocabulary, its states, and the text itself (DistilBERT, Sanh et al. 2019, section 3)."""

    name: Literal["distillation"] = "distillation"
    hard: dict
    """Settings of the teacher's own objective."""
    teacher: str
    """Its folder."""
    teacher_key: str
    """Of its weights and of the code of its objective: a save goes on under the same ones only."""
    temperature: float
    soft_weight: float
    hard_weight: float
    cosine_weight: float


Objective = Distillation
