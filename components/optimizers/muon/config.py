"""Settings of Muon."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import LearningRate
from components.optimizers.adamw.config import AdamW


class Muon(AdamW):
    """Muon (Jordan et al. 2024) for the matrices of layers, with query, key and value as separate matrices.

    `learning_rate`, `betas` and `eps` are AdamW's, for embeddings, heads, biases and norms, and CANINE's two layers of
    characters. Both share the schedule.
    """

    name: Literal["muon"]
    matrix_learning_rate: LearningRate = 0.02
    """Highest learning rate of the matrices. The singular values of an update are near 1, whatever the size of the gradient."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of the running mean of the gradient (Nesterov momentum)."""
    iterations: Annotated[int, Field(ge=1, le=20)] = 5
    """Number of Newton-Schulz iterations, which orthogonalise an update."""


Optimizer = Muon
