"""Settings of Distillation, built by `components.derive.distilled`."""

from typing import Literal

from components.objectives.config import ObjectiveBlock


class Distillation(ObjectiveBlock):
    """Distillation from a teacher's token distribution, its hidden states and the text (DistilBERT, Sanh et al. 2019, section 3),
    from each of its layers (TinyBERT, Jiao et al. 2020), and from relations between tokens (MiniLM 2, Wang et al. 2021)."""

    name: Literal["distillation"] = "distillation"
    hard: dict
    """Settings of the teacher's objective."""
    teacher: str
    """The teacher's folder."""
    teacher_key: str
    """A hash of the teacher's weights and of the code of its objective: a checkpoint is resumed only with the same key."""
    temperature: float
    soft_weight: float
    hard_weight: float
    cosine_weight: float
    layer_weight: float
    relation_weight: float
    relation_heads: int | None
    relation_layer: int | None


Objective = Distillation
