"""Settings of AdamW."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Added, Positive
from components.optimizers.config import OptimizerBlock


class AdamW(OptimizerBlock):
    """Fused AdamW with bias correction (Loshchilov and Hutter 2019)."""

    name: Annotated[Literal["adamw"], Added(neutral="adamw")] = "adamw"
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    """Decay of the running means of the gradient and of its square. BERT: 0.9, 0.999; RoBERTa: 0.9, 0.98 (Liu et al.
    2019, section 3.1)."""
    eps: Positive = 1e-6
    """Added to the root of the second mean (RoBERTa: 1e-6)."""


Optimizer = AdamW
