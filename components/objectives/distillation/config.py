"""Settings of Distillation, as `components.derive.distilled` makes them."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class Distillation(ObjectiveBlock):
    """A teacher's distribution over the vocabulary, its states, and the text itself (DistilBERT, Sanh et al. 2019, section 3); each of its
    layers (TinyBERT, Jiao et al. 2020) and how tokens relate in one of them (MiniLM 2, Wang et al. 2021)."""

    name: Literal["distillation"] = "distillation"
    hard: dict
    """Settings of the teacher's own objective."""
    teacher: str
    """Its folder."""
    teacher_key: str
    """The key of the teacher: its weights and the code of its objective. A save is resumed only under the same key."""
    temperature: float
    soft_weight: float
    hard_weight: float
    cosine_weight: float
    layer_weight: float
    relation_weight: float
    relation_heads: int | None
    relation_layer: int | None


Objective = Distillation
