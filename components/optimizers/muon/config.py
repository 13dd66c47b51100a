"""Settings of Muon."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Positive
from components.optimizers.adamw.config import AdamW


class Muon(AdamW):
    """Muon (Jordan et al. 2024) for the matrices of layers, query, key and value apart. `learning_rate`, `betas` and `eps` are AdamW's, for
    the rest: embeddings, heads, biases and norms. The schedule is one for both."""

    name: Literal["muon"]
    matrix_learning_rate: Positive = 0.02
    """Highest learning rate of the matrices. Its update has singular values near 1, so that it does not depend on the gradient's size."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of the running mean of the gradient, which is read as Nesterov's."""
    iterations: Annotated[int, Field(ge=1, le=20)] = 5
    """The number of Newton-Schulz iterations, which make an update orthogonal."""


Optimizer = Muon
